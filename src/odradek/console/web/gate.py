"""What every request passes before a page sees it, and the headers that every response gets.

The order of the checks: how the length is written, the number of requests, the Host (a name of a stranger that resolves to
us), the method, and for a POST the Origin. The token of a form is checked by `Visit.read_form`, since it needs the form.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUESTS_MAX: Final = 128
RESPONSE_S: Final = 60.0
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
LIVE_PATH: Final = "/live"
TAIL_PATH: Final = "/live/tail"
SQL_LIVE_PATH: Final = "/live/sql"
_OPEN_PATHS: Final = frozenset({LIVE_PATH, TAIL_PATH, SQL_LIVE_PATH})
"""Responses here stay open; they have limits of their own."""
SECURITY_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class ConsoleGate:
    """An ASGI application around another. `hosts`: the names that a Host header may have; None: any."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None) -> None:
        self._app = app
        self._hosts = hosts
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *_headers_for(scope["path"])]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            status, line = refusal
            await PlainTextResponse(f"{line}\n", status, {"connection": "close"})(scope, receive, send_safely)
            return
        if scope["path"] in _OPEN_PATHS:
            await self._app(scope, receive, send_safely)
            return
        self._inside += 1
        try:
            async with asyncio.timeout(RESPONSE_S):
                await self._app(scope, receive, send_safely)
        finally:
            self._inside -= 1

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if b"transfer-encoding" in headers:  # a proxy may read another length out of such a request
            return 411, "a request has a Content-Length here, and no Transfer-Encoding"
        if self._inside >= REQUESTS_MAX:
            return 503, f"{REQUESTS_MAX} requests are being answered: try again soon"
        if self._hosts is not None and host_name(host) not in self._hosts:
            return (
                421,
                "this console does not go by that name: open it by the address that it printed, or see --host",
            )
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "the console answers GET and POST"
        if scope["method"] == "POST" and not _is_own_origin(headers, host):
            return 403, "the form came from another site: open the console itself"
        return None


def host_name(host: str) -> str:
    """Returns the name in a Host header, without the port."""
    return host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host


def _is_own_origin(headers: dict[bytes, bytes], host: str) -> bool:
    """Browsers send Origin or Sec-Fetch-Site with a POST. A request without either is no browser's, and needs the token."""
    site = headers.get(b"sec-fetch-site", b"same-origin").decode("latin-1")
    if site not in ("same-origin", "none"):
        return False
    origin = headers.get(b"origin")
    return origin is None or urlsplit(origin.decode("latin-1")).netloc.lower() == host


def _headers_for(path: str) -> tuple[tuple[bytes, bytes], ...]:
    if path.startswith("/static/"):
        return (*SECURITY_HEADERS, (b"cache-control", b"no-cache"))
    return (*SECURITY_HEADERS, (b"cache-control", b"no-store"))
