"""A small HTTP/1.1 server for GET and HEAD, on a thread and an event loop of its own. No peer of it can harm the process.

Theory. It serves scrapers, probes and browsers of operators, so it can be strict: one request for each connection, no body,
no keep-alive. Then a request cannot hide in another one, and every connection ends within a bound: of bytes for the head, of
seconds for the head and for the answer. Answers leave in pieces, and the bytes of all answers that leave are bounded: a peer
that does not read costs little. Connections beyond the bound are closed at once.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from odradek.net.server import ListenError
from odradek.telemetry import events

_log = events.caused_by_peers("net")
_HEAD_BYTES_MAX: Final = 16 * 1024
_PIECE_BYTES: Final = 64 * 1024
_SOCKET_BYTES: Final = 256 * 1024
"""The kernel's memory for an answer that is not read; it would grow to megabytes."""
_METHODS: Final = frozenset({"GET", "HEAD"})
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpPage:
    """An answer. `content_type` is a header's value that the program wrote, never a peer."""

    body: bytes
    status: int = 200
    content_type: str = _TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """Holds what a peer asks for: the path without its query, and the headers by lower-case name."""

    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    peer: str = ""
    """The address of the peer, without its port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeLimits:
    """Limits on the resources that peers may use."""

    connections_max: int = 64
    head_s: float = 5.0
    """The time limit for a whole request."""
    answer_s: float = 30.0
    """The time limit for sending a whole answer."""
    unread_bytes_max: int = 64 * 1024 * 1024
    """The most bytes of all answers that are being sent; a single one may be longer."""


class _BadRequestError(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status: Final = status


class ScrapeServer:
    """An HTTP server for scrapers and probes, with its own thread and event loop. `page_for` runs on that thread. `open`,
    then `start`; `close` ends all of it and can be called twice."""

    def __init__(
        self,
        page_for: Callable[[PageRequest], Awaitable[HttpPage]],
        limits: ScrapeLimits = ScrapeLimits(),
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """`tls` returns the context for the next connection; None: plain HTTP."""
        self._answer = page_for
        self._limits = limits
        self._tls = tls
        self._sockets: list[socket.socket] = []
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._unread_bytes = 0
        self.refused_count = 0
        """Connections that were closed because there were too many."""

    def open(self, host: str, port: int) -> int:
        """Listens, and returns the port. Raises ListenError with the reason. An empty host is the loopback interface."""
        host = host or "127.0.0.1"
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listening = socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise ListenError(
                f"metrics.listeners: cannot listen on {host}:{port}: {reason}. Choose another address or port, or port 0 for a "
                "free one"
            ) from error
        listening.setblocking(False)
        self._sockets.append(listening)
        bound_port: int = listening.getsockname()[1]
        return bound_port

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        return [opened.getsockname()[:2] for opened in self._sockets if opened.fileno() >= 0]

    def start(self) -> None:
        """Accepts from now on."""
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)), name="odradek-metrics", daemon=True
        )
        self._thread.start()
        ready.wait()

    def close(self) -> None:
        """Closes every connection, and waits for the thread."""
        thread, self._thread = self._thread, None
        if thread is not None and self._loop is not None and self._ended is not None:
            with suppress(RuntimeError):  # the loop is closed already
                self._loop.call_soon_threadsafe(self._ended.set)
            thread.join()
        for opened in self._sockets:
            opened.close()

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(_loop_error)
        servers = [
            await asyncio.start_server(self._connected, sock=opened, limit=_HEAD_BYTES_MAX)
            for opened in self._sockets
        ]
        ready.set()
        await self._ended.wait()
        for server in servers:
            server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._limits.connections_max:
            self.refused_count += 1
            writer.transport.abort()
            return
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._tls is not None:
                async with asyncio.timeout(self._limits.head_s):
                    await writer.start_tls(self._tls())
            method, page = await self._page_for(reader, str(writer.get_extra_info("peername", ("",))[0]))
            if self._unread_bytes and self._unread_bytes + len(page.body) > self._limits.unread_bytes_max:
                page = _refusal(503, "too many answers are not read yet")
            self._unread_bytes += len(page.body)
            try:
                async with asyncio.timeout(self._limits.answer_s):
                    await _send(writer, page, has_body=method != "HEAD")
                    writer.close()
                    await writer.wait_closed()
            finally:
                self._unread_bytes -= len(page.body)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the peer disconnected, or takes too long: its connection ends below
        finally:
            writer.transport.abort()

    async def _page_for(self, reader: asyncio.StreamReader, peer: str) -> tuple[str, HttpPage]:
        method = ""
        try:
            async with asyncio.timeout(self._limits.head_s):
                head = await reader.readuntil(b"\r\n\r\n")
            method, request = _parsed(head)
            request = replace(request, peer=peer)
        except asyncio.LimitOverrunError:
            return method, _refusal(431, f"the request's head is longer than {_HEAD_BYTES_MAX} bytes")
        except TimeoutError:
            return method, _refusal(408, f"no whole request came within {self._limits.head_s:g} s")
        except _BadRequestError as error:
            return method, _refusal(error.status, str(error))
        try:
            return method, await self._answer(request)
        except Exception:  # noqa: BLE001 - the root of a connection
            _log.exception("metrics_page_failed", path=request.path)
            return method, _refusal(500, "the page could not be made; the broker's log has the reason")


async def _send(writer: asyncio.StreamWriter, page: HttpPage, *, has_body: bool) -> None:
    writer.transport.set_write_buffer_limits(high=_PIECE_BYTES)
    allow = {405: "Allow: GET, HEAD\r\n", 401: "WWW-Authenticate: Bearer\r\n"}.get(page.status, "")
    head = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\nContent-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
        f"{allow}Connection: close\r\n\r\n"
    )
    writer.write(head.encode("ascii"))
    body = memoryview(page.body) if has_body else memoryview(b"")
    for start in range(0, max(len(body), 1), _PIECE_BYTES):
        writer.write(body[start : start + _PIECE_BYTES])
        await writer.drain()


def _loop_error(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    _log.warning("metrics_listener_trouble", reason=context.get("message", ""))


def _refusal(status: int, reason: str) -> HttpPage:
    return HttpPage(status=status, body=f"{reason}\n".encode())


def _parsed(head: bytes) -> tuple[str, PageRequest]:
    """Returns the method and the request. RFC 9112, strictly: whatever can be read in two ways is refused."""
    request_line, *lines = head[:-4].decode("latin-1").split("\r\n")
    words = request_line.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0") or not words[1].startswith("/"):
        raise _BadRequestError(400, "expected a request such as: GET /metrics HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or any(sign in line for sign in "\r\n\0"):
            raise _BadRequestError(400, "a header is not of the form NAME: VALUE")
        headers[name.lower()] = value.strip()
    if words[0] not in _METHODS:
        raise _BadRequestError(405, "only GET and HEAD are served")
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise _BadRequestError(413, "a request has no body here")
    return words[0], PageRequest(path=words[1].partition("?")[0], headers=headers)
