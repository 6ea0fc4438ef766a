"""Listening sockets and the connections they accept, with Kafka's limits on both."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.model.errors import OdradekError
from odradek.model.lazy import lazy
from odradek.net.accepting import ListeningSockets, listen
from odradek.net.connection import Connection, RequestHandler
from odradek.net.hangups import Hangups
from odradek.net.listening import OpenListener, ServerLimits
from odradek.net.request_budget import RequestBudget
from odradek.net.unread_answers import UnreadAnswers
from odradek.protocol.api import pipeline_of
from odradek.runtime.turns import Turns
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.net import tls
else:
    tls = lazy("odradek.net.tls")

_log = events.caused_by_peers("net")
_IDLE_SWEEP_SECONDS_MIN: Final = 1.0
_IDLE_SWEEP_SECONDS_MAX: Final = 60.0
_WATCH_SECONDS: Final = 0.5
_MUCH_BYTES: Final = 32 * 1024 * 1024
_FRAME_SECONDS_MAX: Final = 600.0
"""The next bytes of a frame that has begun must arrive within this time, however long connections may be idle."""
_UNREAD_SECONDS_MAX: Final = 300.0
"""How long a peer may read nothing of what it was sent. A consumer may be silent for as long (`max.poll.interval.ms`)."""
_EVERY_IPV4: Final = "0.0.0.0"
_EVERY_IPV6: Final = "::"


class ListenError(OdradekError):
    """A listener could not be opened; the message names it, the reason, and a remedy."""


class Server:
    """Accepts connections on any number of addresses and hands their frames to one handler."""

    def __init__(
        self,
        handler: RequestHandler,
        limits: ServerLimits,
        *,
        now: Callable[[], float],
        turns: Turns | None = None,
    ) -> None:
        """`turns` are shared with the handler's own work: connections with many requests queue for them,
        too."""
        self._handler = handler
        self.limits = limits
        self.now = now
        self.turns = turns or Turns(now)
        self._listeners: list[ListeningSockets] = []
        self._connections: dict[Connection, None] = {}
        self._per_host: Counter[str] = Counter()
        self.opened: Final[Counter[str]] = Counter()
        """Connections that were ever counted in, by the name of their listener."""
        self.closed: Final[Counter[str]] = Counter()
        self.failed_handshakes: Counter[str] = Counter()
        """Connections whose TLS handshake failed, or whose certificate names no principal."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._stopping = False
        self._empty = asyncio.Event()
        self._empty.set()
        self.pace: Callable[[str], tuple[float, bool]] = lambda host: (0.0, False)
        """Called with each new connection's address: seconds for which it must wait, and whether it is closed after them."""
        self.pipeline_of: Callable[[memoryview], int | None] = pipeline_of
        """Called with a frame: requests of one connection overlap if it returns the same number for them."""
        self.requests = RequestBudget(
            limits.request_bytes_max, limits.frame_bytes_max, on_free=self._something_is_free
        )
        self.answers = UnreadAnswers(limits.response_bytes_max)
        self.hangups: Hangups[Connection] = Hangups()
        self.on_drained: Callable[[], None] = lambda: None
        """Called when connections that held much memory have given it back: the process may do the same."""
        self._drained_from_bytes = 0
        self._watching: asyncio.TimerHandle | None = None
        self.watch_due_s = 0.0
        """The time when the event loop should next check for peers without progress."""
        self._admitting: asyncio.Handle | None = None
        self._incoming: memoryview | None = None
        """A buffer that the TLS of all connections shares."""

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def connections(self) -> Collection[Connection]:
        """The counted connections, in the order in which they came."""
        return self._connections.keys()

    @property
    def ports(self) -> frozenset[int]:
        """The ports on which the server listens."""
        return frozenset(listener.port for listener in self._listeners)

    async def listen(self, listener: OpenListener, host: str, port: int) -> int:
        """Opens a listener and returns its port. An empty host is every interface."""
        try:
            if host or port:
                return await self._open(listener, host or None, port)
            # The system would give each family of addresses a port of its own, and clients get one.
            port = await self._open(listener, _EVERY_IPV4, 0)
        except OSError as error:
            raise ListenError(_explain(error, host, port)) from error
        try:
            await self._open(listener, _EVERY_IPV6, port)
        except OSError as error:
            _log.info("listener_without_ipv6", port=port, error=error)
        return port

    async def _open(self, listener: OpenListener, host: str | None, port: int) -> int:
        make = partial(self._make, listener)
        opened = await listen(make, host, port, backlog=self.limits.backlog)
        self._listeners.append(opened)
        return opened.port

    def _make(self, listener: OpenListener) -> asyncio.BaseProtocol:
        """Returns the protocol that serves a new connection."""
        connection = Connection(self, self._handler, listener)
        if listener.tls is None:
            return connection
        if self._incoming is None:
            self._incoming = memoryview(bytearray(tls.INCOMING_BYTES))
        return tls.TlsLayer(
            connection,
            listener.tls.context,
            is_server=True,
            handshake_s=listener.tls.handshake_s,
            on_end=connection.handshake_ended,
            accepted=connection.accepted,
            incoming=self._incoming,
        )

    async def stop(self, *, drain_seconds: float) -> None:
        """Accepts nothing more, lets requests under way be answered for a while, then closes every connection."""
        self._stopping = True
        for listener in self._listeners:
            listener.close()
        for timer in (self._sweeper, self._watching):
            if timer is not None:
                timer.cancel()
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
        """Counts a new connection; returns why it may not stay, or None."""
        if self._stopping:
            return "the broker is stopping"
        if len(self._connections) >= self.limits.connections_max:
            if not connection.listener.is_for_brokers:
                return f"max.connections={self.limits.connections_max} reached"
            self._close_longest_unused()
        if len(self._connections) >= self.limits.descriptors_max:
            return f"{self.limits.descriptors_max} connections are what the limit of open files has room for"
        host = connection.peer_host
        allowed = self.limits.connections_per_host_overrides.get(host, self.limits.connections_per_host_max)
        if self._per_host[host] >= allowed:
            return f"max.connections.per.ip={allowed} reached"
        connection.last_active = self.now()
        self._connections[connection] = None
        self.opened[connection.listener.name] += 1
        self._empty.clear()
        self._per_host[host] += 1
        if self._sweeper is None:
            self._schedule_sweep()
        return None

    def _close_longest_unused(self) -> None:
        """Closes the clients' connection that is unused longest, as Kafka does where a broker needs its place."""
        of_clients = [
            connection for connection in self._connections if not connection.listener.is_for_brokers
        ]
        if of_clients:
            unused = min(of_clients, key=lambda connection: connection.last_active)
            _log.warning("connection_gives_way", peer=unused.peer, reason="a broker needs its place")
            unused.abort()

    def forget(self, connection: Connection) -> None:
        self.hangups.resumed(connection)
        if self._connections.pop(connection, self) is None:
            self.closed[connection.listener.name] += 1
            self._per_host[connection.peer_host] -= 1
            if not self._per_host[connection.peer_host]:
                del self._per_host[connection.peer_host]
        if not self._connections:
            self._empty.set()

    def report(self, error: BaseException) -> None:
        """Passes an unexpected error from a request to the loop's exception handler, with its traceback."""
        asyncio.get_running_loop().call_exception_handler({"message": "a request failed", "exception": error})

    # -- memory that connections share

    def _something_is_free(self) -> None:
        if self._admitting is None:
            self._admitting = asyncio.get_running_loop().call_soon(self._admit)

    def _admit(self) -> None:
        self._admitting = None
        for share in self.requests.admit(self.now()):
            assert isinstance(share.owner, Connection)
            share.owner.room_granted()

    # -- peers without progress

    def watch(self) -> None:
        """Checks a connection from now on that is paused, waits for room, or holds bytes that its peer does not read."""
        if self._watching is None and not self._stopping:
            loop = asyncio.get_running_loop()
            self.watch_due_s = loop.time() + _WATCH_SECONDS
            self._watching = loop.call_at(self.watch_due_s, self.end_hangups)

    def end_hangups(self) -> None:
        """Closes connections of peers that made no progress for too long, unless the event loop itself was
        blocked."""
        self._watching = None
        now = self.now()
        for connection, how in self.hangups.check(now):
            connection.hung_up(how)
        if asyncio.get_running_loop().time() - self.watch_due_s > _WATCH_SECONDS:
            self.requests.excuse(now)  # the loop itself was blocked, and peers could not do anything
        else:
            self._end_overdue_requests(now)
            self._end_unread_answers(now)
        self._note_drained()
        is_needed = self.hangups.any_paused or self.requests.waiting_count or self.answers.count
        if is_needed or self._drained_from_bytes:
            self.watch()

    def _note_drained(self) -> None:
        held_bytes = self.requests.held_bytes + self.answers.held_bytes
        if held_bytes >= max(_MUCH_BYTES, self._drained_from_bytes):
            self._drained_from_bytes = held_bytes
        elif held_bytes < self._drained_from_bytes // 4:
            self._drained_from_bytes = 0
            self.on_drained()

    def _end_overdue_requests(self, now: float) -> None:
        while (share := self.requests.overdue(now)) is not None:
            assert isinstance(share.owner, Connection)
            _log.warning(
                "request_overdue",
                peer=share.owner.peer,
                frame_bytes=share.frame_bytes,
                received_bytes=share.received_bytes,
                reason="others wait for the memory that it holds",
            )
            share.owner.abort()
            share.release()
            self._admit()

    def _end_unread_answers(self, now: float) -> None:
        answers = self.answers
        for connection in answers.connections():
            assert isinstance(connection, Connection)
            answers.note_sent(connection, connection.sent_bytes, now)
        for connection in answers.stalled(now, min(self.limits.idle_seconds_max, _UNREAD_SECONDS_MAX)):
            self._end_unread(connection)
        while (connection := answers.stuck(now)) is not None:
            self._end_unread(connection)

    def _end_unread(self, connection: object) -> None:
        assert isinstance(connection, Connection)
        _log.warning("connection_unread_closed", peer=connection.peer)
        self.answers.forget(connection)
        connection.abort()  # a polite end would wait for a peer that takes nothing

    # -- idle connections

    def _schedule_sweep(self) -> None:
        interval = max(
            _IDLE_SWEEP_SECONDS_MIN, min(self.limits.idle_seconds_max / 4, _IDLE_SWEEP_SECONDS_MAX)
        )
        self._sweeper = asyncio.get_running_loop().call_later(interval, self.sweep)

    def sweep(self) -> None:
        """Closes connections that were idle for too long."""
        self._sweeper = None
        now, idle_seconds_max = self.now(), self.limits.idle_seconds_max
        oldest_allowed = now - idle_seconds_max
        oldest_in_frame = now - min(idle_seconds_max, _FRAME_SECONDS_MAX)
        for connection in list(self._connections):
            if connection.is_starved:
                continue  # it is we who keep it waiting
            if connection.is_in_frame and connection.last_active < oldest_in_frame:
                _log.warning("connection_slow_closed", peer=connection.peer)
                connection.abort()
            elif connection.drained and connection.last_active < oldest_allowed:
                _log.info("connection_idle_closed", peer=connection.peer)
                connection.close()
            elif connection.idle and connection.last_active < oldest_allowed:
                self._end_unread(connection)
            elif connection.last_active < oldest_allowed - idle_seconds_max:
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
