"""Tokens of OAUTHBEARER: signed JWTs (RFC 7515, RFC 7519) against their issuer's keys (RFC 7517). Pure; needs `cryptography`.

The algorithm must be of the list below and fit the key: no `none`, and no HMAC, which would take a public key for a secret.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.security.sasl.exchange import LoginRefused, LoginSuccess

if TYPE_CHECKING:
    from cryptography import exceptions
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
else:
    exceptions = lazy("cryptography.exceptions")
    hashes = lazy("cryptography.hazmat.primitives.hashes")
    ec = lazy("cryptography.hazmat.primitives.asymmetric.ec")
    padding = lazy("cryptography.hazmat.primitives.asymmetric.padding")
    rsa = lazy("cryptography.hazmat.primitives.asymmetric.rsa")
    utils = lazy("cryptography.hazmat.primitives.asymmetric.utils")

_ALGORITHMS: Final = {
    "RS256": ("RSA", "SHA256"),
    "RS384": ("RSA", "SHA384"),
    "RS512": ("RSA", "SHA512"),
    "PS256": ("RSA", "SHA256"),
    "PS384": ("RSA", "SHA384"),
    "PS512": ("RSA", "SHA512"),
    "ES256": ("P-256", "SHA256"),
    "ES384": ("P-384", "SHA384"),
    "ES512": ("P-521", "SHA512"),
}
_CURVES: Final = {"P-256": ("SECP256R1", 32), "P-384": ("SECP384R1", 48), "P-521": ("SECP521R1", 66)}
_RSA_BITS_MIN: Final = 2048
_TOKEN_CHARACTERS_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A public key of an issuer. `kind` is RSA or the name of a curve; `algorithm` the only allowed one, where the issuer
    names it."""

    kind: str
    public_key: Any
    algorithm: str | None = None


IssuerKeys = Mapping[str, IssuerKey]
"""An issuer's keys by key id; "" for a key without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTerms:
    """The claims that a token must have."""

    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    skew_s: float = 30.0
    accepts_unsigned: bool = False


def parse_jwks(text: str | bytes, where: str) -> dict[str, IssuerKey]:
    """Returns the keys of a JWKS document. Those that sign nothing here are left out; ConfigError where none is left."""
    try:
        document = json.loads(text)
        entries = document["keys"]
        keys = {
            str(entry.get("kid", "")): key for entry in entries if (key := _issuer_key(entry)) is not None
        }
    except ImportError:
        raise ConfigError("OAUTHBEARER needs pip install 'odradek[security]'") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, LoginRefused):
        raise ConfigError(f"{where} is no JWKS document") from None
    if not keys:
        raise ConfigError(
            f"{where} holds no key to check signatures with (RSA of {_RSA_BITS_MIN} bits, or EC)"
        )
    return keys


def _issuer_key(entry: Mapping[str, Any]) -> IssuerKey | None:
    if entry.get("use", "sig") != "sig":
        return None
    algorithm = entry.get("alg")
    if entry["kty"] == "RSA":
        numbers = rsa.RSAPublicNumbers(_number(entry["e"]), _number(entry["n"]))
        key = numbers.public_key()
        return IssuerKey("RSA", key, algorithm) if key.key_size >= _RSA_BITS_MIN else None
    if entry["kty"] == "EC" and entry["crv"] in _CURVES:
        curve = getattr(ec, _CURVES[entry["crv"]][0])()
        point = ec.EllipticCurvePublicNumbers(_number(entry["x"]), _number(entry["y"]), curve)
        return IssuerKey(entry["crv"], point.public_key(), algorithm)
    return None


def _number(text: str) -> int:
    return int.from_bytes(_decoded(text), "big")


class TokenValidator:
    """Validates tokens of OAUTHBEARER. `keys` returns the issuer's current keys; `unknown_key` is called with a key id that
    is not among them. Times are ms since 1970."""

    def __init__(
        self,
        terms: TokenTerms,
        keys: Callable[[], IssuerKeys],
        wall_ms: Callable[[], int],
        unknown_key: Callable[[str], None] = lambda key_id: None,
    ) -> None:
        self._terms = terms
        self._keys = keys
        self._wall_ms = wall_ms
        self._unknown_key = unknown_key

    def validate(self, token: str) -> LoginSuccess:
        """LoginRefused for a token that is not valid now."""
        return self._user(self._signed_claims(token))

    def claims(self, token: str) -> Mapping[str, object]:
        """Returns all claims of a token that is valid now, or raises LoginRefused."""
        claims = self._signed_claims(token)
        self._user(claims)
        return claims

    def _signed_claims(self, token: str) -> Mapping[str, object]:
        parts = token.split(".")
        if len(parts) != 3 or len(token) > _TOKEN_CHARACTERS_MAX:
            raise LoginRefused("the token is no JWT")
        header, claims = _json(parts[0], "header"), _json(parts[1], "claims")
        if header.get("alg") == "none" and self._terms.accepts_unsigned:
            if parts[2]:
                raise LoginRefused("the token has a signature and says that it has none")
        else:
            self._check_signature(header, parts)
        return claims

    def _check_signature(self, header: Mapping[str, object], parts: list[str]) -> None:
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
            raise LoginRefused(f"the token's algorithm {algorithm!r} is not accepted")
        if "crit" in header:
            raise LoginRefused("the token has extensions that must be understood (crit)")
        key = self._key(str(header.get("kid", "")))
        kind, digest = _ALGORITHMS[algorithm]
        if key.kind != kind or (key.algorithm is not None and key.algorithm != algorithm):
            raise LoginRefused(f"the token's algorithm {algorithm} does not fit its key")
        signature, signed = _decoded(parts[2]), f"{parts[0]}.{parts[1]}".encode()
        try:
            _verify(key, algorithm, getattr(hashes, digest)(), signature, signed)
        except (exceptions.InvalidSignature, ValueError):
            raise LoginRefused("the token's signature is wrong") from None

    def _key(self, key_id: str) -> IssuerKey:
        keys = self._keys()
        key = keys.get(key_id)
        if key is None and not key_id and len(keys) == 1:
            key = next(iter(keys.values()))
        if key is None:
            self._unknown_key(key_id)
            raise LoginRefused(f"the token's key {key_id!r} is not known")
        return key

    def _user(self, claims: Mapping[str, object]) -> LoginSuccess:
        terms, now_s = self._terms, self._wall_ms() / 1000
        expires_s = _time(claims, "exp")
        if expires_s is None:
            raise LoginRefused("the token does not say when it expires")
        if now_s >= expires_s + terms.skew_s:
            raise LoginRefused("the token has expired")
        for claim, what in (("nbf", "is not valid yet"), ("iat", "was issued in the future")):
            since_s = _time(claims, claim)
            if since_s is not None and since_s > now_s + terms.skew_s:
                raise LoginRefused(f"the token {what}")
        if terms.issuer is not None and claims.get("iss") != terms.issuer:
            raise LoginRefused("the token is of another issuer")
        audiences = claims.get("aud")
        named = [audiences] if isinstance(audiences, str) else audiences
        if terms.audiences and not (
            isinstance(named, list) and any(name in terms.audiences for name in named)
        ):
            raise LoginRefused("the token is for another audience")
        scope = claims.get(terms.scope_claim)
        if scope is not None and not isinstance(scope, str | list):
            raise LoginRefused(f"the token's claim {terms.scope_claim} is no scope")
        subject = claims.get(terms.subject_claim)
        if not isinstance(subject, str) or not subject.strip():
            raise LoginRefused(f"the token does not say who it is for ({terms.subject_claim})")
        is_over_here = now_s >= expires_s  # by our clock, which may be ahead of the issuer's
        return LoginSuccess(user=subject, expires_ms=int((expires_s + terms.skew_s * is_over_here) * 1000))


def _verify(key: IssuerKey, algorithm: str, digest: Any, signature: bytes, signed: bytes) -> None:
    if algorithm.startswith("RS"):
        key.public_key.verify(signature, signed, padding.PKCS1v15(), digest)
    elif algorithm.startswith("PS"):
        salted = padding.PSS(padding.MGF1(digest), digest.digest_size)
        key.public_key.verify(signature, signed, salted, digest)
    else:
        length = _CURVES[key.kind][1]
        if len(signature) != 2 * length:
            raise ValueError("the signature has a wrong length")
        r, s = int.from_bytes(signature[:length], "big"), int.from_bytes(signature[length:], "big")
        key.public_key.verify(utils.encode_dss_signature(r, s), signed, ec.ECDSA(digest))


def _json(part: str, what: str) -> Mapping[str, Any]:
    try:
        value = json.loads(_decoded(part))
    except (ValueError, RecursionError):
        raise LoginRefused(f"the token's {what} cannot be read") from None
    if not isinstance(value, dict):
        raise LoginRefused(f"the token's {what} cannot be read")
    return value


def _time(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise LoginRefused(f"the token's claim {name} is no time")
    return float(value)


def _decoded(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise LoginRefused("a part of the token is not base64") from None
