"""Who may enter, how many at a time, and for whom they ask."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from odradek.config.files import secret_files
from odradek.model.errors import ConfigError
from odradek.sql.server.refusals import BAD_REQUEST, TOO_MANY_REQUESTS, UNAUTHORIZED, RestRefusal
from odradek.sql.server.row_formats import KSQL_V1, json_text

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]", ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """`requests_max`: at the same time, push queries among them. `hosts`: names that a request's Host may have; None: any. On
    loopback, others come from web pages of strangers.
    """

    requests_max: int = 256
    hosts: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class HttpUsers:
    """Passwords by name."""

    passwords: Mapping[str, str] = field(repr=False)

    @classmethod
    def from_file(cls, path: Path) -> HttpUsers:
        """A line for each user: `name:password`. Empty lines, and those that begin with #, are left out. ConfigError, also for
        a file that every user of the machine can read.
        """
        content = secret_files.read_secret_file("--users", str(path), others_may_read=False)
        passwords = {}
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, colon, password = line.partition(":")
            if not colon or not name.strip() or not password:
                raise ConfigError(f"{path}, line {number}: write name:password")
            passwords[name.strip()] = password.strip()
        if not passwords:
            raise ConfigError(f"{path} has no user: write a line name:password for each")
        return cls(passwords)

    def knows(self, authorization: str) -> bool:
        """Of a request's Authorization header."""
        kind, _, encoded = authorization.partition(" ")
        if kind.lower() != "basic":
            return False
        try:
            name, _, password = base64.b64decode(encoded.strip()).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        known = self.passwords.get(name)
        return hmac.compare_digest((known or "").encode(), password.encode()) and known is not None


class SqlGate:
    """An application before the application."""

    def __init__(self, app: ASGIApp, users: HttpUsers | None, limits: GateLimits) -> None:
        self._app = app
        self._users = users
        self._limits = limits
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": refusal.message})
                return
            response = Response(json_text(refusal.as_json()), refusal.status, media_type=KSQL_V1)
            if refusal.code == UNAUTHORIZED:
                response.headers["WWW-Authenticate"] = 'Basic realm="odradek"'
            await response(scope, receive, send)
            return
        self._inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= 1

    def _refusal(self, scope: Scope) -> RestRefusal | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if self._limits.hosts is not None and name.lower() not in self._limits.hosts:
            hosts = ", ".join(sorted(self._limits.hosts - {""}))
            return RestRefusal(BAD_REQUEST, f"this server answers only for {hosts}")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and urlsplit(origin).netloc.lower() != host.lower():
            # A browser sends statements of any page here, and lets any page open a WebSocket.
            return RestRefusal(
                BAD_REQUEST, f"this server does not answer web pages of another site ({origin})"
            )
        if self._users is not None and not self._users.knows(
            headers.get(b"authorization", b"").decode("latin-1")
        ):
            return RestRefusal(UNAUTHORIZED, "a user name and a password of this server are needed")
        if self._inside >= self._limits.requests_max:
            return RestRefusal(
                TOO_MANY_REQUESTS, f"{self._limits.requests_max} requests are being answered: try again soon"
            )
        return None
