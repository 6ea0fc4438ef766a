"""Secures the connections that this process makes: TLS, and a login. For clients, and for brokers among themselves.

layer = secured(protocol, security, host)
await loop.create_connection(lambda: layer, host, port)
await layer.handshake                                   # TlsFailure
lifetime_ms = await log_in(ask, security.login, host)   # LoginFailed
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from odradek.config.kerberos import KerberosIdentity
from odradek.config.listener_security import ListenerSecurity
from odradek.config.sasl import GSSAPI, OAUTHBEARER, PLAIN, SCRAM_MECHANISMS
from odradek.model.errors import ErrorCode, OdradekError
from odradek.model.lazy import lazy
from odradek.net.tls import InnerProtocol, TlsFailure, TlsLayer
from odradek.protocol import Message
from odradek.protocol.messages.security.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.protocol.messages.security.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from odradek.security.sasl.exchange import ClientExchange, LoginRefused
from odradek.security.sasl.oauthbearer import BearerClient
from odradek.security.sasl.plain import PlainClient
from odradek.security.sasl.scram import ScramClient

if TYPE_CHECKING:
    from odradek.security.sasl import kerberos
else:
    kerberos = lazy("odradek.security.sasl.kerberos")

__all__ = [
    "LoginCredentials",
    "LoginFailed",
    "OutgoingSecurity",
    "SecuredProtocol",
    "TlsFailure",
    "broker_login",
    "log_in",
]

_NONCE_BYTES: Final = 24
_STEPS_MAX: Final = 10


def _random_nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


class LoginFailed(OdradekError):
    """The other side refused the login; the message has the reason, for people. `is_over`: a retry is
    useless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginCredentials:
    """Our identity for a login. `token`, for OAUTHBEARER, returns the present token. `kerberos` is for GSSAPI."""

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    is_by_token: bool = False
    """User and password are a delegation token's id and HMAC."""
    token: Callable[[], str] | None = field(default=None, repr=False)
    is_token_fetched: bool = False
    """The token comes from another server."""
    prepare: Callable[[], Awaitable[None]] | None = field(default=None, repr=False)
    """Awaited before a login; it makes sure that there is a token. Raises LoginFailed."""
    kerberos: KerberosIdentity | None = None
    nonce: Callable[[], str] = field(default=_random_nonce, repr=False)
    """Returns a new nonce that no one can guess, for each SCRAM login."""

    @property
    def contacts_others(self) -> bool:
        """Returns whether a step may wait for another server: it then needs a thread."""
        return self.kerberos is not None or self.is_token_fetched

    def exchange(self, host: str) -> ClientExchange:
        """Returns the client side of the login to the broker at `host`. Raises LoginFailed."""
        if self.mechanism == PLAIN:
            return PlainClient(self.user, self.password)
        if self.mechanism in SCRAM_MECHANISMS:
            return ScramClient(
                self.mechanism, self.user, self.password, self.nonce(), is_token=self.is_by_token
            )
        if self.mechanism == OAUTHBEARER and self.token is not None:
            return BearerClient(self.token)
        if self.mechanism == GSSAPI and self.kerberos is not None:
            try:
                return kerberos.KerberosClient(self.kerberos, host)
            except ImportError as error:
                raise LoginFailed(
                    f"GSSAPI needs pip install 'odradek[kerberos]' and MIT Kerberos: {error}"
                ) from None
        raise LoginFailed(f"sasl.mechanism={self.mechanism} is not supported")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingSecurity:
    """The TLS and the login of outgoing connections. Without both a connection is plain text."""

    context: Callable[[], ssl.SSLContext] | None = None
    login: LoginCredentials | None = None
    handshake_s: float = 10.0


class SecuredProtocol:
    """A protocol with TLS around it, or without. Used once."""

    def __init__(
        self, inner: InnerProtocol, security: OutgoingSecurity | None, host: str, *, timeout_s: float
    ) -> None:
        self.handshake: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        """Done when the inner protocol is connected, or with a TlsFailure."""
        self.protocol: Any = inner
        self._layer: TlsLayer | None = None
        if security is None or security.context is None:
            self.handshake.set_result(None)
            return
        self._layer = self.protocol = TlsLayer(
            inner,
            security.context(),
            server_hostname=host,
            is_server=False,
            handshake_s=timeout_s,
            on_end=self._ended,
        )

    def abort(self) -> None:
        """Closes the connection, also in the middle of the handshake, of which the inner protocol knows nothing. Idempotent."""
        self.handshake.cancel()
        if self._layer is not None:
            self._layer.abort()

    def _ended(self, failure: TlsFailure | None) -> None:
        if self.handshake.done():
            return
        if failure is None:
            self.handshake.set_result(None)
        else:
            self.handshake.set_exception(failure)


async def log_in(
    ask: Callable[[Message], Awaitable[object]], credentials: LoginCredentials, host: str
) -> int:
    """Logs in. Returns for how many milliseconds the login is valid; 0: without a limit. Raises LoginFailed.

    `ask` sends a request and returns its answer.
    """
    handshake = await ask(SaslHandshakeRequest(mechanism=credentials.mechanism))
    assert isinstance(handshake, SaslHandshakeResponse)
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        enabled = ", ".join(handshake.mechanisms) or "none"
        raise LoginFailed(
            f"it does not accept the mechanism {credentials.mechanism} (sasl.mechanism); it accepts {enabled}"
        )
    if handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise LoginFailed("its listener takes no logins: is security.protocol right?")
    if handshake.error_code:
        raise LoginFailed(f"it refuses the login: {ErrorCode.of(handshake.error_code).name}")
    if credentials.prepare is not None:
        await credentials.prepare()
    exchange = credentials.exchange(host)
    challenge = b""
    lifetime_ms = 0
    try:
        for _ in range(_STEPS_MAX):
            if credentials.contacts_others:
                response = await asyncio.to_thread(exchange.step, challenge)
            else:
                response = exchange.step(challenge)
            if response is None:
                break
            reply = await ask(SaslAuthenticateRequest(auth_bytes=response))
            assert isinstance(reply, SaslAuthenticateResponse)
            if reply.error_code:
                raise LoginFailed(_refusal(credentials, reply))
            challenge, lifetime_ms = bytes(reply.auth_bytes), reply.session_lifetime_ms
    except LoginRefused as error:
        raise LoginFailed(str(error)) from None
    if not exchange.is_done:
        raise LoginFailed("the login did not come to its end")
    return lifetime_ms


def _refusal(credentials: LoginCredentials, response: SaslAuthenticateResponse) -> str:
    if response.error_code != ErrorCode.SASL_AUTHENTICATION_FAILED:
        return f"it refuses the login: {ErrorCode.of(response.error_code).name}"
    if credentials.mechanism == OAUTHBEARER:
        return f"it does not accept the token: {response.error_message or 'no reason is given'}"
    if credentials.kerberos is not None:
        who = credentials.kerberos.principal or "the ticket's user"
        return f"it does not accept the Kerberos login of {who}: its log says why"
    return f"user or password is wrong (user {credentials.user!r}, mechanism {credentials.mechanism})"


def broker_login(security: ListenerSecurity, nonce: Callable[[], str]) -> LoginCredentials | None:
    """Returns this broker's login to other brokers, from their listener's settings; None where these contain none."""
    mechanism = security.inter_broker_mechanism
    settings = security.mechanisms.get(mechanism)
    if mechanism == GSSAPI:
        identity = security.kerberos
        if identity is None:
            return None
        service = identity.service or identity.principal.partition("/")[0]
        return LoginCredentials(mechanism=mechanism, kerberos=replace(identity, service=service))
    jaas = None if settings is None else settings.jaas
    if jaas is None or "username" not in jaas.options:
        return None
    return LoginCredentials(
        mechanism=mechanism,
        user=jaas.options["username"],
        password=jaas.options.get("password", ""),
        is_by_token=jaas.flag("tokenauth"),
        nonce=nonce,
    )
