"""Admits requests: by user, by number at a time, and by the host that they name."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from odradek.config.files import secret_files
from odradek.model.errors import ConfigError
from odradek.sql.server.connections import SqlConnections
from odradek.sql.server.refusals import (
    BAD_REQUEST,
    REQUEST_TIMEOUT,
    TOO_MANY_REQUESTS,
    UNAUTHORIZED,
    RestRefusal,
)
from odradek.sql.server.row_formats import KSQL_V1, json_text

_STREAMED: Final = "/inserts-stream"
_QUESTION: Final = "GET"
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]", ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """The limits of requests.

    `requests_max`: at the same time, push queries among them. `hosts`: names that a request's Host may have; None: any. On
    loopback, others come from web pages of strangers. Clients share places and bytes as `Shares` does.
    """

    requests_max: int = 256
    hosts: frozenset[str] | None = None
    body_s: float = 10.0
    """The longest time for the body of a request, and for the first line of /inserts-stream."""
    body_bytes_max: int = 1 << 20
    bodies_bytes_max: int = 64 << 20
    """The limit for the bodies of all requests together."""


@dataclass(frozen=True, slots=True)
class HttpUsers:
    """The users of the HTTP server, with their passwords by name."""

    passwords: Mapping[str, str] = field(repr=False)

    @classmethod
    def from_file(cls, path: Path) -> HttpUsers:
        """Reads the users of a file: a line `name:password` for each. Empty lines, and those that begin with #, are left
        out. Raises ConfigError, also for a file that every user of the machine can read."""
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

    def user_of(self, authorization: str) -> str | None:
        """Returns the user of a request's Authorization header; None: there is none with this password."""
        kind, _, encoded = authorization.partition(" ")
        if kind.lower() != "basic":
            return None
        try:
            name, _, password = base64.b64decode(encoded.strip()).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        known = self.passwords.get(name)
        is_right = hmac.compare_digest((known or "").encode(), password.encode()) and known is not None
        return name if is_right else None


class Shares:
    """A limited number of places that clients share. A client may take another place while it holds fewer than are left.

    So one client alone gets half of them, and with n clients one part of n + 1 stays free for the next."""

    def __init__(self, count_max: int) -> None:
        self._max = count_max
        self._held: Counter[str] = Counter()
        self._total = 0

    def acquire(self, client: str, count: int = 1) -> bool:
        """Takes places for a client. Returns False when there is no room for it."""
        if count and self._held.get(client, 0) + count > self._max - self._total:
            return False
        self._change(client, count)
        return True

    def release(self, client: str, count: int = 1) -> None:
        self._change(client, -count)

    def _change(self, client: str, count: int) -> None:
        self._total += count
        self._held[client] += count
        if not self._held[client]:
            del self._held[client]


class SqlGate:
    """An application before the application. It reads the body of a request before the request counts."""

    def __init__(
        self,
        app: ASGIApp,
        users: HttpUsers | None,
        limits: GateLimits,
        connections: SqlConnections | None = None,
    ) -> None:
        self._app = app
        self._users = users
        self._limits = limits
        self._connections = connections or SqlConnections()
        self._inside = {kind: Shares(limits.requests_max) for kind in ("", _STREAMED)}
        """Requests that are answered, by kind."""
        self._bodies_bytes = Shares(limits.bodies_bytes_max)
        """Bodies of requests that are read now, or answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(refusal, scope, receive, send)
            return
        client = self._client(scope)
        body = _Body(self._limits, lambda count: self._bodies_bytes.acquire(client, count))
        try:
            try:
                if scope["type"] == "http":
                    await body.read(receive, to_line=scope["path"] == _STREAMED)
            except RestRefusal as late:
                await _refuse(late, scope, receive, send)
                return
            await self._answer(scope, body.receiving(receive), send, client)
        finally:
            self._bodies_bytes.release(client, body.bytes_count)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, client: str) -> None:
        """Questions about the server itself are always answered."""
        shares = self._inside.get(_kind(scope))
        if shares is not None and not shares.acquire(client):
            text = f"{self._limits.requests_max} requests are answered at the same time, and {client} has its share of them"
            await _refuse(RestRefusal(TOO_MANY_REQUESTS, f"{text}: try again soon"), scope, receive, send)
            return
        peer = tuple(scope.get("client") or ())
        if peer:
            self._connections.begin(peer)
        try:
            await self._app(scope, receive, send)
        finally:
            if shares is not None:
                shares.release(client)
            if peer:
                self._connections.end(peer)

    def _client(self, scope: Scope) -> str:
        """Returns whose places a request takes: its user's, or its address' where no one logs in."""
        if self._users is not None:
            return f"user {self._users.user_of(_header(scope, b'authorization'))}"
        return str((scope.get("client") or ("an unknown address",))[0])

    def _refusal(self, scope: Scope) -> RestRefusal | None:
        host = _header(scope, b"host")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if self._limits.hosts is not None and name.lower() not in self._limits.hosts:
            hosts = ", ".join(sorted(self._limits.hosts - {""}))
            return RestRefusal(BAD_REQUEST, f"this server answers only for {hosts}")
        origin = _header(scope, b"origin")
        if origin and urlsplit(origin).netloc.lower() != host.lower():
            # A browser sends statements of any page here, and lets any page open a WebSocket.
            return RestRefusal(
                BAD_REQUEST, f"this server does not answer web pages of another site ({origin})"
            )
        if self._users is not None and self._users.user_of(_header(scope, b"authorization")) is None:
            return RestRefusal(UNAUTHORIZED, "a user name and a password of this server are needed")
        return None


def _header(scope: Scope, name: bytes) -> str:
    return str(dict(scope["headers"]).get(name, b"").decode("latin-1"))


def _kind(scope: Scope) -> str:
    """Returns the kind of a request. Requests of one kind do not hold up requests of another."""
    if scope["type"] == "http" and scope["method"] == "GET":
        return _QUESTION
    return _STREAMED if scope["path"] == _STREAMED else ""


async def _refuse(refusal: RestRefusal, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": refusal.message})
        return
    response = Response(json_text(refusal.as_json()), refusal.status, media_type=KSQL_V1)
    if refusal.code == UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Basic realm="odradek"'
    await response(scope, receive, send)


class _Body:
    """The body of a request: all of it, or its first line. `acquire(bytes)` returns False when there is no room."""

    def __init__(self, limits: GateLimits, acquire: Callable[[int], bool]) -> None:
        self._limits = limits
        self._acquire = acquire
        self._content = bytearray()
        self._is_whole = False

    async def read(self, receive: Receive, *, to_line: bool) -> None:
        """Reads a body. RestRefusal for one that is too long, or does not come in time."""
        try:
            async with asyncio.timeout(self._limits.body_s):
                while not self._is_whole and not (to_line and b"\n" in self._content):
                    await self._read_part(receive)
        except TimeoutError:
            raise RestRefusal(
                REQUEST_TIMEOUT, f"the request did not come within {self._limits.body_s:g} seconds"
            ) from None

    async def _read_part(self, receive: Receive) -> None:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RestRefusal(BAD_REQUEST, "the client went away")
        part = message.get("body", b"")
        if len(self._content) + len(part) > self._limits.body_bytes_max:
            raise RestRefusal(BAD_REQUEST, f"the request is longer than {self._limits.body_bytes_max} bytes")
        if not self._acquire(len(part)):
            raise RestRefusal(TOO_MANY_REQUESTS, "too many large requests are being answered: try again soon")
        self._content += part
        self._is_whole = not message.get("more_body", False)

    def receiving(self, receive: Receive) -> Receive:
        """Returns the messages as the application gets them."""
        is_first = True

        async def received() -> Message:
            nonlocal is_first
            if is_first and (self._content or self._is_whole):
                is_first = False
                return {"type": "http.request", "body": bytes(self._content), "more_body": not self._is_whole}
            return await receive()

        return received

    @property
    def bytes_count(self) -> int:
        """The bytes that were taken."""
        return len(self._content)
