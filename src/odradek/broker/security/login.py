"""Logins at work: between a connection and the dispatcher where clients have to log in (SASL).

`security/sasl/session.py` decides. This module reads requests and writes responses, delays the response to a
failed login, and disconnects a client that does not log in within a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from odradek.model.errors import ErrorCode
from odradek.net.connection import Connection
from odradek.net.replies import Chunks, HeldReply, PeerError, Reply
from odradek.protocol import APIS, RequestHeader, decode, decode_request_header, encode_response
from odradek.protocol.messages.security.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.protocol.messages.security.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from odradek.runtime.ports import Clock
from odradek.security.audit import clipped
from odradek.security.principals import USER, Requester
from odradek.security.sasl.exchange import LoginRefused
from odradek.security.sasl.session import (
    API_VERSIONS,
    SASL_HANDSHAKE,
    IllegalSaslState,
    LoginSession,
    LoginState,
)
from odradek.telemetry import events

_log = events.caused_by_peers("security")
_SIZE: Final = Struct(">i")
_GREETINGS_MAX: Final = 3
"""A client may have to ask for ApiVersions again, in a version that the broker knows."""
_READ_SECONDS: Final = 0.2
_HANDSHAKE_KEY: Final = SASL_HANDSHAKE.to_bytes(2, "big")
_MESSAGE: Final = "Authentication failed: invalid credentials with SASL mechanism {}"
"""The client's message, the same for every reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginAttempt:
    """One attempt to log in, for observers. `reason`: why it failed, clipped; None for a success."""

    principal: str
    mechanism: str
    listener: str
    host: str
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginTerms:
    """The rules for logins at one listener."""

    failure_delay_s: float
    login_s: float
    observe: Callable[[LoginAttempt], None] = lambda attempt: None


class LoginGate:
    """The `RequestHandler` of one connection. `serve` is the dispatcher."""

    def __init__(
        self,
        connection: Connection,
        serve: Callable[[Connection, memoryview], Reply],
        session: LoginSession,
        terms: LoginTerms,
        clock: Clock,
    ) -> None:
        self._connection = connection
        self._serve = serve
        self._session = session
        self._terms = terms
        self._clock = clock
        self._greetings = 0
        self._deadline: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(
            terms.login_s, self._overdue
        )
        connection.on_lost[self] = self._stop_deadline

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        session = self._session
        if session.state is LoginState.OPEN and frame[:2] != _HANDSHAKE_KEY:
            if session.is_expired(self._clock.monotonic()):
                raise PeerError("the session has expired, and the client did not log in again")
            return self._serve(connection, frame)
        if session.state is LoginState.RAW:
            return self._raw_token(bytes(frame))
        header, position = decode_request_header(frame)
        now = self._clock.monotonic()
        try:
            session.check(header.api_key, now)
        except IllegalSaslState as error:
            raise PeerError(str(error)) from None
        if header.api_key == API_VERSIONS:
            return self._greet(connection, header, frame)
        api = APIS[header.api_key]
        if header.api_version not in api.versions:
            raise PeerError(f"{api.name} version {header.api_version} is not supported ({api.versions} are)")
        if header.api_key == SASL_HANDSHAKE:
            if session.state is LoginState.OPEN and not session.may_renew(now):
                return self._serve(connection, frame)  # which responds with ILLEGAL_SASL_STATE
            chosen, _ = decode(SaslHandshakeRequest, header.api_version, frame, position)
            return self._handshake(header, chosen, now)
        token, _ = decode(SaslAuthenticateRequest, header.api_version, frame, position)
        return self._authenticate(header, bytes(token.auth_bytes))

    def _greet(self, connection: Connection, header: RequestHeader, frame: memoryview) -> Reply:
        self._greetings += 1
        if self._greetings > _GREETINGS_MAX:
            raise PeerError(
                f"the client sent ApiVersions more than {_GREETINGS_MAX} times, and did not log in"
            )
        reply = self._serve(connection, frame)
        if header.api_version in APIS[API_VERSIONS].versions:
            self._session.greeted()
        return reply

    def _handshake(self, header: RequestHeader, request: SaslHandshakeRequest, now: float) -> Reply:
        outcome = self._session.choose(request.mechanism, header.api_version, now)
        response = SaslHandshakeResponse(error_code=outcome.error, mechanisms=list(outcome.mechanisms))
        chunks = encode_response(SASL_HANDSHAKE, header.api_version, header.correlation_id, response)
        if not outcome.is_refused:
            return chunks
        self._failed(f"the client wants mechanism {request.mechanism!r}, which is not enabled")
        return HeldReply(self._last_words(chunks))

    def _authenticate(self, header: RequestHeader, token: bytes) -> Reply:
        try:
            challenge, lifetime_ms = self._step(token)
        except LoginRefused as error:
            self._failed(str(error))
            refused = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=_MESSAGE.format(self._session.mechanism),
            )
            return HeldReply(self._last_words(self._encoded(header, refused)))
        response = SaslAuthenticateResponse(
            error_message=None, auth_bytes=challenge, session_lifetime_ms=lifetime_ms
        )
        return self._encoded(header, response)

    @staticmethod
    def _encoded(header: RequestHeader, response: SaslAuthenticateResponse) -> Chunks:
        return encode_response(header.api_key, header.api_version, header.correlation_id, response)

    def _raw_token(self, token: bytes) -> Reply:
        try:
            challenge, _ = self._step(token)
        except LoginRefused as error:
            self._failed(str(error))
            return HeldReply(self._last_words(None))
        return [_SIZE.pack(len(challenge)), challenge]

    def _step(self, token: bytes) -> tuple[bytes, int]:
        step, lifetime_ms = self._session.step(token, self._clock.monotonic(), self._clock.wall_ms())
        if step.end is not None:
            self._stop_deadline()
            connection = self._connection
            requester = Requester(
                USER + step.end.user,
                connection.peer_host,
                is_by_token=step.end.is_by_token,
                is_authenticated=True,
            )
            connection.log_in(requester)
            self._observe(requester.principal, None)
        return step.challenge, lifetime_ms

    def _failed(self, reason: str) -> None:
        connection, reason = self._connection, clipped(reason)  # it names what the peer sent
        _log.warning(
            "login_failed",
            peer=connection.peer,
            listener=connection.listener.name,
            mechanism=self._session.mechanism,
            reason=reason,
        )
        self._observe(connection.requester.principal, reason)

    def _observe(self, principal: str, reason: str | None) -> None:
        connection = self._connection
        self._terms.observe(
            LoginAttempt(
                principal=principal,
                mechanism=self._session.mechanism,
                listener=connection.listener.name,
                host=connection.peer_host,
                reason=reason,
            )
        )

    async def _last_words(self, chunks: Chunks | None) -> Chunks | None:
        """Returns the answer to a failed login, and the end of the connection after it."""
        await asyncio.sleep(self._terms.failure_delay_s)
        # Not at once: clients that find the end of the stream right after the response do not read the
        # response.
        asyncio.get_running_loop().call_later(_READ_SECONDS, self._connection.finish)
        return chunks

    def _overdue(self) -> None:
        self._deadline = None
        if self._session.state is not LoginState.OPEN:
            _log.warning(
                "login_overdue",
                peer=self._connection.peer,
                reason=f"no login within {self._terms.login_s:g} s",
            )
            self._connection.abort()

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
