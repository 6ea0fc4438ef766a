"""The login of one connection, as a state machine: which request may come next, and what it leads to. Pure.

    CONNECTED --ApiVersions--> GREETED --SaslHandshake v1--> CHOSEN --SaslAuthenticate--> OPEN
                                       --SaslHandshake v0--> RAW    --bare tokens-------> OPEN
    OPEN --SaslHandshake--> RENEWING --SaslAuthenticate--> OPEN        (KIP-368)

Anything else ends the connection. A client logs in again as the same user and by the same mechanism, not more than once a
second; a session that has expired takes nothing but that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from odradek.model.errors import ErrorCode
from odradek.security.sasl.exchange import ExchangeStep, LoginRefused, LoginSuccess, ServerExchange

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
_RENEWAL_PAUSE_S: Final = 1.0


class LoginState(Enum):
    CONNECTED = "connected"
    GREETED = "greeted"
    CHOSEN = "chosen"
    RAW = "raw"
    OPEN = "open"
    RENEWING = "renewing"
    ENDED = "ended"


class IllegalSaslState(Exception):
    """The client asks what it may not ask now: the connection ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeOutcome:
    error: ErrorCode
    mechanisms: tuple[str, ...]

    @property
    def is_refused(self) -> bool:
        return self.error is not ErrorCode.NONE


class LoginSession:
    """The login of one connection, and its renewals. `exchanges` maps each enabled mechanism to the function that begins its
    exchange; `lifetimes_ms` holds `connections.max.reauth.ms` of each (0: none).

    Times are monotonic seconds; `wall_ms`, which the expiry of a token is compared with, is milliseconds since 1970."""

    def __init__(
        self, exchanges: Mapping[str, Callable[[], ServerExchange]], lifetimes_ms: Mapping[str, int]
    ) -> None:
        self._exchanges = exchanges
        self._lifetimes_ms = lifetimes_ms
        self.state = LoginState.CONNECTED
        self.mechanism = ""
        self.user: LoginSuccess | None = None
        self._exchange: ServerExchange | None = None
        self._expires_s: float | None = None
        self._renewed_s: float | None = None
        self._bad_mechanism = ""

    def is_expired(self, now_s: float) -> bool:
        return self._expires_s is not None and now_s >= self._expires_s

    def check(self, api_key: int, now_s: float) -> None:
        """Raises IllegalSaslState for a request that may not come now."""
        state = self.state
        if state is LoginState.OPEN:
            if self.is_expired(now_s) and api_key != SASL_HANDSHAKE:
                raise IllegalSaslState("the session has expired, and the client did not log in again")
            return
        allowed: tuple[int, ...] = {
            LoginState.CONNECTED: (API_VERSIONS, SASL_HANDSHAKE),
            LoginState.GREETED: (SASL_HANDSHAKE,),
            LoginState.CHOSEN: (SASL_AUTHENTICATE,),
            LoginState.RENEWING: (SASL_AUTHENTICATE,),
        }.get(state, ())
        if api_key not in allowed:
            raise IllegalSaslState(f"a request of API {api_key} came before the login was done")

    def greeted(self) -> None:
        """Notes that ApiVersions was answered without an error."""
        if self.state is LoginState.CONNECTED:
            self.state = LoginState.GREETED

    def may_renew(self, now_s: float) -> bool:
        return self._renewed_s is None or now_s - self._renewed_s >= _RENEWAL_PAUSE_S

    def choose(self, mechanism: str, version: int, now_s: float) -> HandshakeOutcome:
        """Answers SaslHandshake. After a refusal the connection ends."""
        known = tuple(self._exchanges)
        if self.state is LoginState.OPEN:
            return self._renew(mechanism, version, now_s, known)
        if mechanism not in self._exchanges:
            self.state = LoginState.ENDED
            return HandshakeOutcome(error=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=known)
        self.mechanism = mechanism
        self._exchange = self._exchanges[mechanism]()
        self.state = LoginState.CHOSEN if version > 0 else LoginState.RAW
        return HandshakeOutcome(error=ErrorCode.NONE, mechanisms=known)

    def _renew(self, mechanism: str, version: int, now_s: float, known: tuple[str, ...]) -> HandshakeOutcome:
        if version == 0:
            self.state = LoginState.ENDED
            return HandshakeOutcome(error=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=known)
        self._renewed_s = now_s
        self.state = LoginState.RENEWING
        self._bad_mechanism = "" if mechanism == self.mechanism else mechanism
        self._exchange = self._exchanges[self.mechanism]()
        return HandshakeOutcome(error=ErrorCode.NONE, mechanisms=known)

    def step(self, response: bytes, now_s: float, wall_ms: int) -> tuple[ExchangeStep, int]:
        """Handles a token of the exchange: the client's answer, and after the end the session's length in ms
        (0: no limit).

        LoginRefused ends the connection.
        """
        exchange = self._exchange
        assert exchange is not None, "`check` comes first"
        try:
            if self._bad_mechanism:
                raise LoginRefused(
                    f"the client logged in by {self.mechanism} and wants to do it again by {self._bad_mechanism!r}"
                )
            step = exchange.step(response)
            if step.end is None:
                return step, 0
            if self.user is not None and step.end.user != self.user.user:
                raise LoginRefused(
                    f"the client logged in as {self.user.user!r} and wants to do it again as {step.end.user!r}"
                )
            lifetime_ms = self._lifetime_ms(step.end, wall_ms)
        except LoginRefused:
            self.state = LoginState.ENDED
            raise
        self.user = step.end
        self._exchange = None
        self._expires_s = now_s + lifetime_ms / 1000 if lifetime_ms else None
        self.state = LoginState.OPEN
        return step, lifetime_ms

    def _lifetime_ms(self, user: LoginSuccess, wall_ms: int) -> int:
        limits = [limit for limit in (self._lifetimes_ms.get(self.mechanism, 0),) if limit > 0]
        if user.expires_ms is not None:
            left_ms = user.expires_ms - wall_ms
            if left_ms <= 0:
                raise LoginRefused("what the client showed has expired")
            limits.append(left_ms)
        return min(limits, default=0)
