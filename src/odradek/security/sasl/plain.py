"""PLAIN (RFC 4616): the user and the password as they are. For listeners with TLS."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from odradek.security.sasl.exchange import ExchangeStep, LoginRefused, LoginSuccess

_NO_ONE: Final = "no one has this password"


class PlainServer:
    """The broker's side of a PLAIN login. `users` maps names to passwords."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def step(self, response: bytes) -> ExchangeStep:
        try:
            parts = response.decode().split("\0")
        except UnicodeDecodeError:
            raise LoginRefused("the response is not UTF-8") from None
        if len(parts) != 3:
            raise LoginRefused(f"the response has {len(parts)} parts, not 3")
        authorization_id, user, password = parts
        if not user or not password:
            raise LoginRefused("the user or the password is empty")
        known = self._users.get(user)
        # The same work for a user that does not exist, and for every wrong password.
        expected = hashlib.sha256((_NO_ONE if known is None else known).encode()).digest()
        is_right = hmac.compare_digest(expected, hashlib.sha256(password.encode()).digest())
        if known is None or not is_right:
            raise LoginRefused(f"user {user!r}: no such user, or a wrong password")
        if authorization_id not in ("", user):
            raise LoginRefused(f"user {user!r} wants to act as {authorization_id!r}")
        return ExchangeStep(end=LoginSuccess(user=user))


class PlainClient:
    def __init__(self, user: str, password: str) -> None:
        self._message = f"\0{user}\0{password}".encode()
        self.is_done = False

    def step(self, challenge: bytes) -> bytes | None:
        if self.is_done:
            return None
        self.is_done = True
        return self._message
