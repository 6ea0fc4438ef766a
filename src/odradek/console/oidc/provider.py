"""An identity provider that speaks OpenID Connect: Authorization Code with PKCE (RFC 6749, 7636, 9207, 9700).

Its answers come over TLS from the addresses of its own metadata, whose `issuer` is exactly the one that was configured. The ID
token is checked against its keys: signature, issuer, audience, times, nonce. Calls block, and run on threads, a few at a time.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import quote, quote_plus, urlencode, urlsplit

from odradek.console.oidc.flow import LoginFlow
from odradek.console.oidc.transport import (
    ProviderAnswer,
    ProviderRefusedError,
    ProviderUnavailableError,
    check_url,
    request,
)
from odradek.model.errors import ConfigError
from odradek.net.token_issuer import TIME_USED
from odradek.runtime.ports import Clock
from odradek.security.sasl.exchange import LoginRefused
from odradek.security.sasl.tokens import IssuerKey, TokenTerms, TokenValidator, parse_jwks
from odradek.telemetry import events

_log = events.caused_by_peers("console")

METADATA_PATH: Final = "/.well-known/openid-configuration"
CALLBACK_PATH: Final = "/login/callback"
METADATA_S: Final = 3600.0
"""The time for which the provider's metadata and keys are used."""
KEYS_PAUSE_S: Final = 30.0
"""A key id that is unknown has the keys fetched again, at most so often."""
CALLS_AT_ONCE: Final = 8
TOKEN_LENGTH_MAX: Final = 64 << 10
CODE_LENGTH_MAX: Final = 4_096
SHORTEST_S: Final = 60.0
"""The lifetime of a token whose provider states none."""
NAME_LENGTH_MAX: Final = 256
_HTTP_OK: Final = 200
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcOptions:
    """How the console is registered at its identity provider."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    """Empty for a public client, which PKCE protects."""
    public_url: str
    """The console's own address, as browsers reach it, without a path."""
    scope: str = "openid"
    sends_id_token: bool = False
    """Whether brokers get the ID token; else the access token."""
    ca_file: str = ""

    def __post_init__(self) -> None:
        check_url(self.issuer, "--oidc-issuer")
        parts = urlsplit(check_url(self.public_url, "--public-url"))
        if parts.path not in ("", "/") or parts.query:
            raise ConfigError(f"--public-url {self.public_url!r}: expected an address without a path")

    @property
    def origin(self) -> str:
        return self.public_url.rstrip("/")

    @property
    def redirect_uri(self) -> str:
        """The one address to which the provider sends browsers back. It is registered there, letter by letter."""
        return self.origin + CALLBACK_PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcTokens:
    """What the provider issued. Tokens stay in this process, and go to brokers and to the provider only."""

    subject: str
    name: str
    """What pages show: a name that people know, where the provider has one."""
    token: str = field(repr=False)
    """What brokers get, by OAUTHBEARER."""
    refresh_token: str = field(default="", repr=False)
    requested_s: float
    expires_s: float
    """The end of `token`, by the monotonic clock."""

    def is_fresh(self, now_s: float) -> bool:
        """Tells whether more than a fifth of the token's time is left, as Kafka's clients count."""
        return now_s < self.requested_s + TIME_USED * (self.expires_s - self.requested_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metadata:
    """What the provider publishes about itself."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str
    revocation_endpoint: str
    has_issuer_in_answers: bool
    takes_secret_in_header: bool


class OidcProvider:
    """One provider, for the whole console."""

    def __init__(self, options: OidcOptions, clock: Clock) -> None:
        self.options: Final = options
        self._clock = clock
        self._metadata: _Metadata | None = None
        self._keys: Mapping[str, IssuerKey] = {}
        self._read_s = self._keys_read_s = -METADATA_S
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._lock = asyncio.Lock()
        terms = TokenTerms(issuer=options.issuer, audiences=(options.client_id,))
        self._validator = TokenValidator(terms, lambda: self._keys, clock.wall_ms)

    @property
    def name(self) -> str:
        """The provider's host, as the login page shows it."""
        return urlsplit(self.options.issuer).netloc

    async def authorization_url(self, flow: LoginFlow) -> str:
        """Returns where the browser goes to log in."""
        endpoint = (await self._described()).authorization_endpoint
        fields = {
            "response_type": "code",
            "client_id": self.options.client_id,
            "redirect_uri": self.options.redirect_uri,
            "scope": self.options.scope,
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": flow.challenge,
            "code_challenge_method": "S256",
        }
        return endpoint + ("&" if "?" in endpoint else "?") + urlencode(fields)

    async def code_of(self, query: Mapping[str, str], flow: LoginFlow) -> str:
        """Returns the code of a browser that came back. ProviderRefusedError for an answer to something else."""
        if not hmac.compare_digest(query.get("state", "").encode(), flow.state.encode()):
            raise ProviderRefusedError("the answer belongs to another login (state)")
        issuer = query.get("iss")
        needs_issuer = (await self._described()).has_issuer_in_answers
        if issuer != self.options.issuer and (issuer is not None or needs_issuer):
            raise ProviderRefusedError("the answer is of another identity provider (iss)")
        if query.get("error"):
            detail = query.get("error_description", "")
            raise ProviderRefusedError(f"{query['error'][:100]}: {detail[:300]}".rstrip(": "))
        code = query.get("code", "")
        if not code or len(code) > CODE_LENGTH_MAX:
            raise ProviderRefusedError("the answer has no code")
        return code

    async def exchange(self, code: str, flow: LoginFlow) -> OidcTokens:
        """Returns the tokens for a code, after all checks."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.options.redirect_uri,
            "code_verifier": flow.verifier,
        }
        fields, requested_s = await self._tokens(form)
        claims = await self._claims(fields.get("id_token"))
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), flow.nonce.encode()):
            raise ProviderRefusedError("the ID token is of another login (nonce)")
        return self._issued(fields, claims, requested_s, "")

    async def refresh(self, tokens: OidcTokens) -> OidcTokens:
        """Returns fresh tokens of the same user."""
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token}
        fields, requested_s = await self._tokens(form)
        claims: Mapping[str, object] = {"sub": tokens.subject, "preferred_username": tokens.name}
        if fields.get("id_token") is not None:
            claims = await self._claims(fields["id_token"])
            if claims.get("sub") != tokens.subject:
                raise ProviderRefusedError("the refreshed ID token is of another user")
        elif self.options.sends_id_token:
            raise ProviderRefusedError("the provider refreshes no ID token")
        return self._issued(fields, claims, requested_s, tokens.refresh_token)

    async def revoke(self, tokens: OidcTokens) -> None:
        """Ends the refresh token at the provider, where it can (RFC 7009). A failure is logged; the token is forgotten."""
        try:
            endpoint = (await self._described()).revocation_endpoint
            if endpoint and tokens.refresh_token:
                form = {"token": tokens.refresh_token, "token_type_hint": "refresh_token"}
                await self._post(endpoint, form)
        except (ProviderUnavailableError, ProviderRefusedError) as error:
            _log.warning("console_token_not_revoked", reason=str(error))

    async def logout_url(self) -> str:
        """Returns where a browser logs out of the provider, too; "" where the provider has no such page."""
        endpoint = (await self._described()).end_session_endpoint
        if not endpoint:
            return ""
        fields = {
            "client_id": self.options.client_id,
            "post_logout_redirect_uri": self.options.origin + "/login",
        }
        return endpoint + ("&" if "?" in endpoint else "?") + urlencode(fields)

    def _issued(
        self,
        fields: Mapping[str, object],
        claims: Mapping[str, object],
        requested_s: float,
        refresh_token: str,
    ) -> OidcTokens:
        token = fields.get("id_token" if self.options.sends_id_token else "access_token")
        if not isinstance(token, str) or not 0 < len(token) <= TOKEN_LENGTH_MAX or not token.isascii():
            raise ProviderRefusedError("the provider issues no usable token")
        if str(fields.get("token_type", "Bearer")).lower() != "bearer":
            raise ProviderRefusedError("the provider issues tokens that are no bearer tokens")
        fresh = fields.get("refresh_token")
        subject = str(claims["sub"])
        name = claims.get("preferred_username") or claims.get("email") or subject
        return OidcTokens(
            subject=subject,
            name=str(name)[:NAME_LENGTH_MAX],
            token=token,
            refresh_token=fresh
            if isinstance(fresh, str) and len(fresh) <= TOKEN_LENGTH_MAX
            else refresh_token,
            requested_s=requested_s,
            expires_s=requested_s + self._lifetime_s(fields, token),
        )

    def _lifetime_s(self, fields: Mapping[str, object], token: str) -> float:
        """Returns the shorter of what the provider states and what the token itself states, if it is readable."""
        stated = []
        seconds = fields.get("expires_in")
        if (
            isinstance(seconds, int | float)
            and not isinstance(seconds, bool)
            and not self.options.sends_id_token
        ):
            stated.append(float(seconds))
        expires_s = _unchecked_claims(token).get("exp")
        if isinstance(expires_s, int | float) and not isinstance(expires_s, bool):
            stated.append(expires_s - self._clock.wall_ms() / 1000)
        return min(stated, default=SHORTEST_S)

    async def _claims(self, token: object) -> Mapping[str, object]:
        """Returns the claims of an ID token for this console. Unknown keys are fetched once."""
        if not isinstance(token, str):
            raise ProviderRefusedError("the provider issues no ID token: the scope needs openid")
        await self._described()
        key_id = str(_unchecked_header(token).get("kid", ""))
        now_s = self._clock.monotonic()
        if key_id not in self._keys and now_s - self._keys_read_s > KEYS_PAUSE_S:
            async with self._lock:
                if now_s - self._keys_read_s > KEYS_PAUSE_S:
                    await self._read_keys()
        try:
            claims = self._validator.claims(token)
        except LoginRefused as error:
            raise ProviderRefusedError(f"the ID token is refused: {error}") from None
        party = claims.get("azp")
        audiences = claims.get("aud")
        has_many = isinstance(audiences, list) and len(audiences) > 1
        if party != self.options.client_id and (party is not None or has_many):
            raise ProviderRefusedError("the ID token is for another client (azp)")
        return claims

    async def _tokens(self, form: dict[str, str]) -> tuple[Mapping[str, object], float]:
        described = await self._described()
        requested_s = self._clock.monotonic()
        response = await self._post(described.token_endpoint, form)
        if response.status != _HTTP_OK:
            error = str(response.fields.get("error", ""))[:100]
            raise ProviderRefusedError(
                f"{self.name} issues no token: HTTP {response.status} {error}".rstrip()
            )
        return response.fields, requested_s

    async def _post(self, url: str, form: dict[str, str]) -> ProviderAnswer:
        """Sends a form with this client's identity."""
        options = self.options
        described = await self._described()
        authorization = ""
        if options.client_secret and described.takes_secret_in_header:
            pair = f"{quote_plus(options.client_id)}:{quote_plus(options.client_secret)}"
            authorization = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            form = {**form, "client_id": options.client_id}
            if options.client_secret:
                form["client_secret"] = options.client_secret
        return await self._on_thread(
            lambda: request(url, self._clock, form=form, authorization=authorization, ca_file=options.ca_file)
        )

    async def _described(self) -> _Metadata:
        """Returns the provider's metadata, read at most once an hour."""
        now_s = self._clock.monotonic()
        if self._metadata is not None and now_s - self._read_s < METADATA_S:
            return self._metadata
        async with self._lock:
            if self._metadata is None or now_s - self._read_s >= METADATA_S:
                url = self.options.issuer.rstrip("/") + METADATA_PATH
                response = await self._on_thread(
                    lambda: request(url, self._clock, ca_file=self.options.ca_file)
                )
                self._metadata = self._parsed(response, url)
                await self._read_keys()
                self._read_s = now_s
        return self._metadata

    def _parsed(self, response: ProviderAnswer, url: str) -> _Metadata:
        fields = response.fields
        if response.status != _HTTP_OK or fields.get("issuer") != self.options.issuer:
            stated = quote(str(fields.get("issuer", ""))[:200], safe=":/")
            raise ProviderRefusedError(
                f"{url} is not of --oidc-issuer, but of {stated!r} (HTTP {response.status})"
            )

        def endpoint(name: str, *, is_needed: bool = True) -> str:
            value = fields.get(name, "")
            if not value and not is_needed:
                return ""
            try:
                return check_url(str(value), name)
            except ConfigError as error:
                raise ProviderRefusedError(f"{url}: {error}") from None

        methods = fields.get("code_challenge_methods_supported")
        if isinstance(methods, list) and "S256" not in methods:
            raise ProviderRefusedError(f"{url}: the provider does not speak PKCE with S256")
        ways = fields.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        return _Metadata(
            authorization_endpoint=endpoint("authorization_endpoint"),
            token_endpoint=endpoint("token_endpoint"),
            jwks_uri=endpoint("jwks_uri"),
            end_session_endpoint=endpoint("end_session_endpoint", is_needed=False),
            revocation_endpoint=endpoint("revocation_endpoint", is_needed=False),
            has_issuer_in_answers=fields.get("authorization_response_iss_parameter_supported") is True,
            takes_secret_in_header="client_secret_basic" in ways if isinstance(ways, list) else True,
        )

    async def _read_keys(self) -> None:
        assert self._metadata is not None
        url = self._metadata.jwks_uri
        response = await self._on_thread(lambda: request(url, self._clock, ca_file=self.options.ca_file))
        try:
            self._keys = parse_jwks(json.dumps(dict(response.fields)), url)
        except ConfigError as error:
            raise ProviderUnavailableError(str(error)) from None
        self._keys_read_s = self._clock.monotonic()

    async def _on_thread(self, call: Callable[[], T]) -> T:
        async with self._slots:
            return await asyncio.to_thread(call)


def _unchecked_header(token: str) -> Mapping[str, object]:
    return _decoded(token.partition(".")[0])


def _unchecked_claims(token: str) -> Mapping[str, object]:
    parts = token.split(".")
    return _decoded(parts[1]) if len(parts) == 3 else {}


def _decoded(part: str) -> Mapping[str, object]:
    """Returns a part of a token before it is checked: only to choose a key, or to see when the token ends."""
    try:
        content = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
