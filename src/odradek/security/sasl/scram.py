"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), as Kafka has them (KIP-84), both sides.

    client:  n,,n=alice,r=CLIENT_NONCE
    server:  r=CLIENT_NONCE+SERVER_NONCE,s=SALT,i=ITERATIONS
    client:  c=biws,r=CLIENT_NONCE+SERVER_NONCE,p=PROOF
    server:  v=SIGNATURE

RFC 5802 asks for SASLprep, which makes passwords alike that look alike. Kafka does without, and so does this: a user that
one client makes has to get in with another.

What a broker stores does not let anyone log in: `StoredKey` is a hash of what the client proves to have. A user that does not
exist is led through the same steps, with the same work, and with a salt that is its own and always the same.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from odradek.security.sasl.exchange import ExchangeStep, LoginRefused, LoginSuccess
from odradek.security.sasl.users import ITERATIONS_MIN, CredentialShapes, ScramCredential

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_CLIENT_KEY, _SERVER_KEY = b"Client Key", b"Server Key"
_NAME: Final = r"(?:[^,=]|=2C|=3D)*"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"[A-Za-z0-9+/=]+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[^,]*)*"
_FIRST: Final = re.compile(
    rf"(?P<gs2>(?P<binding>n|y|p=[^,]*),(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>(?P<reserved>m=[^,]*,)?n=(?P<user>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))\Z"
)
_FINAL: Final = re.compile(
    rf"(?P<without_proof>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})\Z"
)
_SERVER_FIRST: Final = re.compile(
    rf"(?P<reserved>m=[^,]*,)?r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]{{0,8}})(?:,.*)?\Z"
)
_TOKEN_AUTH: Final = "tokenauth"
_SHARES: Final = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCredential:
    """A delegation token as one logs in with it (KIP-48): its id is the user, its HMAC the password."""

    credential: ScramCredential
    owner: str
    expires_ms: int


def credential_of(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Returns the credential for a password that is already salted, as AlterUserScramCredentials sends it."""
    algorithm = HASHES[mechanism]
    client_key = hmac.digest(salted_password, _CLIENT_KEY, algorithm)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(algorithm, client_key).digest(),
        server_key=hmac.digest(salted_password, _SERVER_KEY, algorithm),
        iterations=iterations,
    )


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's Hi: takes milliseconds, on purpose. The password counts byte by byte, as in Kafka and librdkafka."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramLookup:
    """The server's look-ups of users and tokens."""

    credential: Callable[[str], ScramCredential | None]
    token: Callable[[str], TokenCredential | None]
    secret: bytes = field(repr=False)
    """The salts of users that do not exist are made with it."""
    shapes: CredentialShapes = field(default_factory=CredentialShapes)
    """The shapes of existing users' credentials."""


class ScramServer:
    """The broker's side of a SCRAM login. `nonce` is fresh, printable, and without a comma."""

    def __init__(self, mechanism: str, lookup: ScramLookup, nonce: str) -> None:
        self._algorithm = HASHES[mechanism]
        self._lookup = lookup
        self._own_nonce = nonce
        self._user = ""
        self._owner: TokenCredential | None = None
        self._is_known = False
        self._credential: ScramCredential | None = None
        self._decoy: ScramCredential | None = None
        self._gs2 = ""
        self._nonce = ""
        self._messages = ""

    def step(self, response: bytes) -> ExchangeStep:
        try:
            text = response.decode()
        except UnicodeDecodeError:
            raise LoginRefused("the message is not UTF-8") from None
        return self._first(text) if self._credential is None else self._final(text, self._credential)

    def _first(self, text: str) -> ExchangeStep:
        match = _FIRST.match(text)
        if match is None:
            raise LoginRefused("the first message has not SCRAM's form")
        if match["binding"].startswith("p="):
            raise LoginRefused("the client wants channel binding, which no mechanism here has")
        if match["reserved"]:
            raise LoginRefused("the client sends an extension that must be understood (m=)")
        self._user = _unescaped(match["user"])
        authorization_id = _unescaped(match["authzid"] or "")
        if not self._user:
            raise LoginRefused("the user is empty")
        if authorization_id not in ("", self._user):
            raise LoginRefused(f"user {self._user!r} wants to act as {authorization_id!r}")
        extensions = dict(part.split("=", 1) for part in match["extensions"].split(",") if part)
        self._credential = self._find(is_token=extensions.get(_TOKEN_AUTH, "").lower() == "true")
        self._gs2, self._nonce = match["gs2"], match["nonce"] + self._own_nonce
        salt = base64.b64encode(self._credential.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._messages = f"{match['bare']},{challenge}"
        return ExchangeStep(challenge=challenge.encode())

    def _find(self, *, is_token: bool) -> ScramCredential:
        if is_token:
            self._owner = self._lookup.token(self._user)
            credential = None if self._owner is None else self._owner.credential
        else:
            credential = self._lookup.credential(self._user)
        self._is_known = credential is not None
        self._decoy = self._fake()  # made and kept in any case: to make it takes time, and so does to free it
        return self._decoy if credential is None else credential

    def _fake(self) -> ScramCredential:
        secret, user = self._lookup.secret, self._user.encode()
        share = int.from_bytes(hmac.digest(secret, b"shape" + user, "sha256")[:4], "big") / _SHARES
        iterations, salt_bytes = self._lookup.shapes.draw(share)
        salt = hmac.digest(secret, b"salt" + user, "sha256")
        if salt_bytes > len(salt):
            salt = hashlib.shake_256(salt).digest(salt_bytes)
        keys = hmac.digest(secret, b"keys" + user, self._algorithm)
        return ScramCredential(
            salt=salt[:salt_bytes], stored_key=keys, server_key=keys, iterations=iterations
        )

    def _final(self, text: str, credential: ScramCredential) -> ExchangeStep:
        match = _FINAL.match(text)
        if match is None:
            raise LoginRefused("the last message has not SCRAM's form")
        channel, proof = _decoded(match["channel"]), _decoded(match["proof"])
        if channel != self._gs2.encode():
            raise LoginRefused("the last message is about another header than the first")
        if not hmac.compare_digest(match["nonce"].encode(), self._nonce.encode()):
            raise LoginRefused(
                "the nonce is not the one that the server sent: librdkafka before 2.6.1 does so: upgrade it"
            )
        messages = f"{self._messages},{match['without_proof']}".encode()
        signature = hmac.digest(credential.stored_key, messages, self._algorithm)
        if len(proof) != len(signature):
            raise LoginRefused("the proof has a wrong length")
        client_key = _xor(proof, signature)
        is_right = hmac.compare_digest(
            hashlib.new(self._algorithm, client_key).digest(), credential.stored_key
        )
        if not is_right or not self._is_known:
            raise LoginRefused(f"user {self._user!r}: no such user, or a wrong password")
        verifier = base64.b64encode(hmac.digest(credential.server_key, messages, self._algorithm))
        return ExchangeStep(challenge=b"v=" + verifier, end=self._end())

    def _end(self) -> LoginSuccess:
        if self._owner is None:
            return LoginSuccess(user=self._user)
        return LoginSuccess(user=self._owner.owner, expires_ms=self._owner.expires_ms, is_by_token=True)


class ScramClient:
    """The client's side of a SCRAM login. With `is_token`, user and password are a delegation token's."""

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self._mechanism = mechanism
        self._algorithm = HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        token = f",{_TOKEN_AUTH}=true" if is_token else ""
        self._bare = f"n={_escaped(user)},r={nonce}{token}"
        self._sent = 0
        self._verifier = b""
        self.is_done = False

    def step(self, challenge: bytes) -> bytes | None:
        self._sent += 1
        if self._sent == 1:
            return f"n,,{self._bare}".encode()
        if self._sent == 2:
            return self._proof(challenge)
        self._verify(challenge)
        return None

    def _proof(self, challenge: bytes) -> bytes:
        text = challenge.decode("utf-8", "replace")
        if text.startswith("e="):
            raise LoginRefused(f"the broker refuses: {text[2:]}")
        match = _SERVER_FIRST.match(text)
        if match is None or match["reserved"]:
            raise LoginRefused("the broker's first message has not SCRAM's form")
        if not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise LoginRefused("the broker's nonce does not begin with ours")
        iterations = int(match["iterations"])
        if iterations < ITERATIONS_MIN:
            raise LoginRefused(f"the broker asks for {iterations} iterations, fewer than {ITERATIONS_MIN}")
        salted_password = salted(self._mechanism, self._password, _decoded(match["salt"]), iterations)
        credential = credential_of(self._mechanism, salted_password, b"", iterations)
        without_proof = f"c=biws,r={match['nonce']}"
        messages = f"{self._bare},{text},{without_proof}".encode()
        client_key = hmac.digest(salted_password, _CLIENT_KEY, self._algorithm)
        signature = hmac.digest(credential.stored_key, messages, self._algorithm)
        self._verifier = hmac.digest(credential.server_key, messages, self._algorithm)
        proof = base64.b64encode(_xor(client_key, signature)).decode()
        return f"{without_proof},p={proof}".encode()

    def _verify(self, challenge: bytes) -> None:
        text = challenge.decode("utf-8", "replace")
        if not text.startswith("v="):
            raise LoginRefused(f"the broker refuses: {text.removeprefix('e=')}")
        if not hmac.compare_digest(_decoded(text[2:].partition(",")[0]), self._verifier):
            raise LoginRefused("the broker does not know this user's credentials: it is not who it should be")
        self.is_done = True


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise LoginRefused("a part of the message is not base64") from None
