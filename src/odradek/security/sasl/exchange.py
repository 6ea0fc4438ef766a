"""One login, on the server's side: bytes from the client in, a challenge or an end out. Pure: no I/O, no clock.

A mechanism refuses with `LoginRefused`. Its reason is for the broker's log; the client gets one text for all of them, so that
it does not learn which users there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class LoginRefused(Exception):
    """The login failed; the message has the reason, for the broker's log only. It has no password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSuccess:
    """The end of a successful login."""

    user: str
    expires_ms: int | None = None
    """The time when the client's token expires, in milliseconds since 1970; None without one."""
    is_by_token: bool = False
    """A delegation token (KIP-48)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeStep:
    """The bytes for the client, and the end of the login, if it ended."""

    challenge: bytes = b""
    end: LoginSuccess | None = None


class ServerExchange(Protocol):
    """One login by one mechanism. No step follows an end or a LoginRefused."""

    def step(self, response: bytes) -> ExchangeStep: ...


class ClientExchange(Protocol):
    """The client's side. The first challenge is empty. `is_done`: the server proved that it knows us, or need not."""

    @property
    def is_done(self) -> bool: ...

    def step(self, challenge: bytes) -> bytes | None:
        """Returns the next response; None when there is none to send. LoginRefused when the server is not who it should be."""
