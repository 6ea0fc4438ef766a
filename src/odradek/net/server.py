"""Listening sockets and the connections they accept, with Kafka's limits on both."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from odradek.model.errors import OdradekError
from odradek.net.connection import Connection, RequestHandler
from odradek.telemetry import events

_log = events.get("net")
_IDLE_SWEEP_SECONDS_MIN: Final = 1.0
_EVERY_IPV4: Final = "0.0.0.0"
_EVERY_IPV6: Final = "::"


class ListenError(OdradekError):
    """A listener could not be opened; the message says which, why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Kafka's socket settings, resolved."""

    frame_bytes_max: int = 104_857_600
    in_flight_max: int = 500
    connections_max: int = 2**31 - 1
    connections_per_host_max: int = 2**31 - 1
    idle_seconds_max: float = 600.0
    backlog: int = 50
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    connections_per_host_overrides: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenListener:
    """A listener as its connections see it: what clients that came through it are told to connect to, if anything."""

    name: str
    advertised: tuple[str, int] | None = None
    broker_id: int = -1
    """Of the broker that listens."""


class Server:
    """Accepts connections on any number of addresses and hands their frames to one handler."""

    def __init__(self, handler: RequestHandler, limits: ServerLimits, *, now: Callable[[], float]) -> None:
        self._handler = handler
        self.limits = limits
        self.now = now
        self._listeners: list[asyncio.AbstractServer] = []
        self._connections: dict[Connection, None] = {}
        self._per_host: Counter[str] = Counter()
        self._sweeper: asyncio.TimerHandle | None = None
        self._stopping = False
        self._empty = asyncio.Event()
        self._empty.set()
        self.pace: Callable[[str], tuple[float, bool]] = lambda host: (0.0, False)
        """Told of each new connection's address: seconds for which it must wait, and whether it is closed after them."""
        self.unread_bytes = 0
        """Bytes of answers held for peers that do not read them; connections keep it up to date."""

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def listen(self, listener: OpenListener, host: str, port: int) -> int:
        """Open a listener and return its port. An empty host is every interface."""
        try:
            if host or port:
                return await self._open(listener, host or None, port)
            # The system would give each family of addresses a port of its own, and clients are told one.
            port = await self._open(listener, _EVERY_IPV4, 0)
        except OSError as error:
            raise ListenError(_explain(error, host, port)) from error
        try:
            await self._open(listener, _EVERY_IPV6, port)
        except OSError as error:
            _log.info("listener_without_ipv6", port=port, error=error)
        return port

    async def _open(self, listener: OpenListener, host: str | None, port: int) -> int:
        opened = await asyncio.get_running_loop().create_server(
            partial(Connection, self, self._handler, listener),
            host,
            port,
            backlog=self.limits.backlog,
            reuse_address=True,
        )
        self._listeners.append(opened)
        return int(opened.sockets[0].getsockname()[1]) if opened.sockets else port

    async def stop(self, *, drain_seconds: float) -> None:
        """Accept nothing more, let requests under way be answered for a while, then close every connection."""
        self._stopping = True
        for listener in self._listeners:
            listener.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._connections):
            connection.finish()
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_seconds):
                await self._empty.wait()
        for connection in list(self._connections):
            connection.abort()
        for _ in range(3):  # let the transports call connection_lost
            await asyncio.sleep(0)

    # -- what connections ask of their server

    def admit(self, connection: Connection) -> str | None:
        """Count a new connection in, or say why it may not stay."""
        if self._stopping:
            return "the broker is stopping"
        if len(self._connections) >= self.limits.connections_max:
            return f"max.connections={self.limits.connections_max} reached"
        host = connection.peer_host
        allowed = self.limits.connections_per_host_overrides.get(host, self.limits.connections_per_host_max)
        if self._per_host[host] >= allowed:
            return f"max.connections.per.ip={allowed} reached"
        connection.last_active = self.now()
        self._connections[connection] = None
        self._empty.clear()
        self._per_host[host] += 1
        if self._sweeper is None:
            self._schedule_sweep()
        return None

    def forget(self, connection: Connection) -> None:
        if self._connections.pop(connection, self) is None:
            self._per_host[connection.peer_host] -= 1
            if not self._per_host[connection.peer_host]:
                del self._per_host[connection.peer_host]
        if not self._connections:
            self._empty.set()

    def report(self, error: BaseException) -> None:
        """An unexpected error from a request: hand it to the loop's exception handler, traceback and all."""
        asyncio.get_running_loop().call_exception_handler({"message": "a request failed", "exception": error})

    # -- idle connections

    def _schedule_sweep(self) -> None:
        interval = max(_IDLE_SWEEP_SECONDS_MIN, self.limits.idle_seconds_max / 4)
        self._sweeper = asyncio.get_running_loop().call_later(interval, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        oldest_allowed = self.now() - self.limits.idle_seconds_max
        for connection in list(self._connections):
            if connection.drained and connection.last_active < oldest_allowed:
                _log.info("connection_idle_closed", peer=connection.peer)
                connection.close()
            elif connection.idle and connection.last_active < oldest_allowed:
                _log.warning("connection_unread_closed", peer=connection.peer)
                connection.abort()  # a polite end would wait for a peer that takes nothing
            elif connection.last_active < oldest_allowed - self.limits.idle_seconds_max:
                # It has had answers waiting for twice the idle time and takes none of them.
                _log.warning("connection_stuck_closed", peer=connection.peer)
                connection.abort()
        if self._connections:
            self._schedule_sweep()


def _explain(error: OSError, host: str, port: int) -> str:
    where = f"{host or '*'}:{port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"cannot listen on {where}: another process uses this port. Stop it, or choose another with "
            f"--listen {host or '127.0.0.1'}:PORT (0 picks a free one); 'odradek doctor' names the process"
        )
    if error.errno == errno.EACCES:
        return f"cannot listen on {where}: ports below 1024 need rights that this user lacks. Choose a higher port"
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            f"cannot listen on {where}: this machine has no such address. Choose one of its own, or 127.0.0.1"
        )
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return f"cannot listen on {where}: {reason}"
