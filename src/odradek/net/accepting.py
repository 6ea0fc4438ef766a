"""Listening sockets that accept connections, also when the process has no file descriptors left.

asyncio's own server answers EMFILE with a traceback for each connection that waits, and begins to listen again as often: a
minute of it is 50 MB of log. Here a spare descriptor is kept. When accepting fails for lack of descriptors, waiters stay
in the queue for a few turns of the loop: connections that have ended are noticed meanwhile, and make room. Then the spare one
is given up, so that the connection can be accepted, and closed at once: its peer learns it, and the queue does not make the
loop spin. Where even that fails, accepting pauses for a moment.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from odradek.telemetry import events

_log = events.caused_by_peers("net")
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""No descriptors, or no memory for one, in the process or in the system."""
_NO_FAMILY: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
"""Errors for an address whose family, usually IPv6, this machine does not support."""
_PAUSE_S: Final = 0.1
_NOTICE_S: Final = 0.01
"""How long to wait for the ends of other connections before a new one is refused."""
_ACCEPTED_AT_ONCE_MAX: Final = 64
"""How many connections are accepted before other tasks get the event loop."""

MakeProtocol = Callable[[], asyncio.BaseProtocol]


class ListeningSockets(Protocol):
    """One or more open listening sockets."""

    @property
    def port(self) -> int: ...

    @property
    def close(self) -> Callable[[], None]:
        """Accept nothing more. Connections that were made stay."""


async def listen(make: MakeProtocol, host: str | None, port: int, *, backlog: int) -> ListeningSockets:
    """Accepts connections at `host`, or on every interface, and gives each a protocol. Raises OSError when that is
    impossible."""
    loop = asyncio.get_running_loop()
    if type(loop).add_reader is asyncio.AbstractEventLoop.add_reader:
        # A loop that watches no sockets: the simulator's, or the one of Windows.
        return _OwnServer(
            await loop.create_server(make, host, port, backlog=backlog, reuse_address=True), port
        )
    results = await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE if host is None else 0
    )
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, _, _, _, address in dict.fromkeys(results):
            try:
                sockets.append(_bound(family, address, backlog))
            except OSError as error:
                if error.errno not in _NO_FAMILY:
                    raise
                missing = error
        if missing is not None and not sockets:
            raise missing
    except BaseException:
        for listener in sockets:
            listener.close()
        raise
    return _Acceptor(loop, make, sockets)


class _OwnServer:
    """The event loop's own server."""

    def __init__(self, server: asyncio.AbstractServer, port: int) -> None:
        self._server = server
        sockets = getattr(server, "sockets", ())
        self.port: Final = int(sockets[0].getsockname()[1]) if sockets else port
        self.close: Final = server.close


def _bound(family: int, address: tuple[object, ...], backlog: int) -> socket.socket:
    # asyncio sets TCP_NODELAY only where the protocol is named: without it small answers wait 40 ms for each other.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # or it would take the port of IPv4, too
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


class _Acceptor:
    """Accepts connections on listening sockets, and keeps a spare descriptor. Used on the event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, make: MakeProtocol, sockets: Sequence[socket.socket]
    ) -> None:
        self._loop = loop
        self._make = make
        self._sockets = list(sockets)
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        self._has_waited: dict[socket.socket, None] = {}
        """Sockets at which waiters are refused while there is no descriptor."""
        self._handing_over: dict[asyncio.Task[None], None] = {}
        self._spare = _spare_descriptor()
        self.port: Final = int(sockets[0].getsockname()[1])
        for listener in self._sockets:
            loop.add_reader(listener.fileno(), self._accept, listener)

    def close(self) -> None:
        for listener in self._sockets:
            self._loop.remove_reader(listener.fileno())
            listener.close()
        self._sockets.clear()
        for pause in self._pauses.values():
            pause.cancel()
        self._pauses.clear()
        self._give_up_spare()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE_MAX):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _SHORT:
                    raise
                if listening not in self._has_waited:
                    self._has_waited[listening] = None
                    self._pause(listening, _NOTICE_S)
                    return
                if not self._refuse_one(listening, error):
                    self._has_waited.pop(listening)
                    self._pause(listening, _PAUSE_S)
                    return
                continue
            self._has_waited.pop(listening, None)
            self._hand_over(accepted)

    def _hand_over(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        task = self._loop.create_task(self._connect(accepted))
        self._handing_over[task] = None
        task.add_done_callback(self._handed_over)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, accepted)
        except OSError as error:  # it was gone before it was served
            _log.info("connection_not_served", error=error)
            accepted.close()

    def _handed_over(self, task: asyncio.Task[None]) -> None:
        self._handing_over.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "a connection was not set up", "exception": error})

    # -- without descriptors

    def _refuse_one(self, listening: socket.socket, reason: OSError) -> bool:
        """Accepts with the spare descriptor, and closes at once. Returns False when there was no spare one, or it did not
        help."""
        if self._spare is None:
            self._spare = _spare_descriptor()
            return False
        self._give_up_spare()
        try:
            accepted, peer = listening.accept()
        except OSError:
            return False
        else:
            accepted.close()
            _log.warning("connection_refused", peer=f"{peer[0]}:{peer[1]}", reason=reason.strerror)
            return True
        finally:
            self._spare = _spare_descriptor()

    def _give_up_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _pause(self, listening: socket.socket, seconds: float) -> None:
        self._loop.remove_reader(listening.fileno())
        self._pauses[listening] = self._loop.call_later(seconds, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        self._pauses.pop(listening, None)
        if listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listening)


def _spare_descriptor() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
