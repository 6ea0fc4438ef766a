"""OAUTHBEARER (RFC 7628, KIP-255): a token in place of a password, both sides."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from odradek.security.sasl.exchange import ExchangeStep, LoginRefused, LoginSuccess

_SEPARATOR: Final = "\x01"
_FIRST: Final = re.compile(r"n,(?:a=(?P<authzid>(?:[^,=]|=2C|=3D)*))?,\x01(?P<pairs>.*)\x01\Z", re.DOTALL)
_TOKEN: Final = re.compile(r"bearer +(?P<token>[-_~+/.A-Za-z0-9]+=*)\Z", re.IGNORECASE)
_KICK: Final = b"\x01"

Validate = Callable[[str], LoginSuccess]
"""A token to whom it is for; LoginRefused for one that is not valid."""


class BearerServer:
    """A refusal takes two steps: the client gets an error as JSON, says one byte, and then the login has failed."""

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._refusal: str | None = None

    def step(self, response: bytes) -> ExchangeStep:
        if self._refusal is not None:
            raise LoginRefused(self._refusal)
        authorization_id, token = _parsed(response)
        try:
            user = self._validate(token)
            if authorization_id not in ("", user.user):
                raise LoginRefused(
                    f"the token is for {user.user!r}, who wants to act as {authorization_id!r}"
                )
        except LoginRefused as error:
            self._refusal = str(error)
            return ExchangeStep(challenge=json.dumps({"status": "invalid_token"}).encode())
        return ExchangeStep(end=user)


def _parsed(response: bytes) -> tuple[str, str]:
    match = _FIRST.match(response.decode("utf-8", "replace"))
    if match is None:
        raise LoginRefused("the message has not OAUTHBEARER's form")
    pairs = dict(pair.partition("=")[::2] for pair in match["pairs"].split(_SEPARATOR) if pair)
    token = _TOKEN.match(pairs.get("auth", ""))
    if token is None:
        raise LoginRefused("the message holds no bearer token")
    return match["authzid"] or "", token["token"]


class BearerClient:
    def __init__(self, token: Callable[[], str]) -> None:
        """`token()` is called in the first step."""
        self._token = token
        self._sent = 0
        self.is_done = False

    def step(self, challenge: bytes) -> bytes | None:
        self._sent += 1
        if self._sent == 1:
            self.is_done = True
            return f"n,,{_SEPARATOR}auth=Bearer {self._token()}{_SEPARATOR}{_SEPARATOR}".encode()
        if challenge:
            self.is_done = False
            return _KICK
        return None
