"""One client connection: frames in, replies out, in the order of the requests.

How it works. Bytes are received straight into the frame reader's buffer. Each complete frame is handed to the request
handler at once, in order, so that the effects of pipelined requests happen in order; a handler may answer later, and a
queue of slots keeps the replies in request order (Kafka's contract: responses on a connection never overtake).

Three limits keep memory bounded. A connection with `in_flight_max` unanswered requests, one whose peer does not read what was
written, or one that waits for a `Held` reply (a long poll, whose answer may be large) is not served, nor read from, until
that is over. Frames already received wait in `_backlog`, at most one buffer's worth. (Who makes such a reply may want to know
that there are some, see `on_next`: then one buffer is read.)
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from odradek.model.errors import KafkaError
from odradek.net.outgoing import Outgoing
from odradek.protocol.framing import FrameReader
from odradek.runtime.ports import Buffer
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.net.server import OpenListener, Server

_log = events.get("net")

_ENOUGH_BYTES: Final = 64 * 1024
"""With so much to write, the next request waits until it is written."""
_LINGER_SECONDS: Final = 5.0

Chunks = list[Buffer]


class Held:
    """A reply that comes later, before which no other request of the connection is served."""

    __slots__ = ("chunks",)

    def __init__(self, chunks: Awaitable[Chunks | None]) -> None:
        self.chunks = chunks


Reply = Chunks | None | Awaitable[Chunks | None] | Held
"""Ready bytes, nothing at all (acks=0), or either of them later."""


class PeerError(Exception):
    """The peer broke the protocol: the connection is closed, with one event that says why."""


class RequestHandler(Protocol):
    """What a connection needs from the broker."""

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        """Serve one request frame (without its size prefix). Raise `PeerError` or `KafkaError` to drop the peer."""


class _Slot:
    """The place of one reply in the queue."""

    __slots__ = ("chunks", "done", "pending")

    def __init__(self) -> None:
        self.done = False
        self.chunks: Chunks | None = None
        self.pending: asyncio.Future[Chunks | None] | None = None


class Connection(asyncio.BufferedProtocol):
    """One accepted connection; made by `Server`, used on the event loop only."""

    def __init__(self, server: Server, handler: RequestHandler, listener: OpenListener) -> None:
        self._server = server
        self._handler = handler
        self._reader = FrameReader(server.limits.frame_bytes_max)
        self._in_flight_max = server.limits.in_flight_max
        self.listener = listener
        self._transport: asyncio.Transport | None = None
        self._sending: Outgoing | None = None
        self._backlog: deque[memoryview] = deque()
        self._slots: deque[_Slot] = deque()
        self._outgoing: Chunks = []
        self._serving = False
        self._held: _Slot | None = None
        self._mute: asyncio.TimerHandle | None = None
        self._outgoing_bytes = 0
        self._unread_bytes = 0
        self._peer_reads = True
        self._reading = True
        self._closing = False
        self._peer_finished = False
        self._finishing = False
        self.peer_host = ""
        self.peer_port = 0
        self.local_host = ""
        self.local_port = 0
        self.last_active = 0.0
        self.client_software: tuple[str, str] = ("", "")
        self.reported: dict[tuple[int, int], float] = {}
        """When the broker last logged which refusal of this client's requests."""
        self.on_lost: dict[object, Callable[[], None]] = {}
        """What to do when the connection is gone, by who wants it done."""
        self.on_finished: dict[object, Callable[[], None]] = {}
        """What to do when the peer sends nothing more, though it may still read."""
        self.on_next: dict[object, Callable[[], None]] = {}
        """What to do when the peer asks for something else, while it waits for a `Held` reply: by who makes that reply."""
        self._dropped = False

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._sending = Outgoing(transport, on_full=self.pause_writing, on_room=self._room)
        self.peer_host, self.peer_port = _endpoint(transport.get_extra_info("peername"))
        self.local_host, self.local_port = _endpoint(transport.get_extra_info("sockname"))
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self._set_options(sock)
        refusal = self._server.admit(self)
        if refusal is not None:
            _log.warning("connection_refused", peer=self.peer, reason=refusal)
            self._closing = True
            transport.abort()
            return
        delay_seconds, over_limit = self._server.pace(self.peer_host)
        if delay_seconds > 0:
            self._delay(delay_seconds, over_limit=over_limit)

    def _set_options(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        limits = self._server.limits
        if limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        if limits.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)

    def connection_lost(self, error: Exception | None) -> None:
        if self._reader.pending_bytes and not self._dropped and not self._finishing:
            _log.warning("frame_cut_short", peer=self.peer, bytes=self._reader.pending_bytes)
        self._closing = True
        for slot in self._slots:
            if slot.pending is not None:
                slot.pending.cancel()
        self._slots.clear()
        self._backlog.clear()
        if self._mute is not None:
            self._mute.cancel()
        self._outgoing.clear()
        if self._sending is not None:
            self._sending.drop()
        self._count_unread(0)
        self._server.forget(self)
        for tell in list(self.on_lost.values()):
            tell()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._server.now()
        try:
            frames = self._reader.received(nbytes)
        except KafkaError as error:
            self._drop(error.message)
            return
        if frames and not self._finishing:
            self._backlog.extend(frames)
            self._serve_backlog()

    def eof_received(self) -> bool:
        # A client that only shut down its writing side may read the answers it waits for; one that is gone must not
        # keep a long poll, and its memory, alive for as long as it asked.
        self._peer_finished = True
        for tell in list(self.on_finished.values()):
            tell()
        if self.idle:
            return False
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, self.close)
        return True

    def pause_writing(self) -> None:
        self._peer_reads = False
        self._update_reading()

    def resume_writing(self) -> None:
        if self._sending is not None and not self._sending.waits:
            self._room()

    def _room(self) -> None:
        """The peer took everything that was written."""
        self._peer_reads = True
        self.last_active = self._server.now()
        self._count_unread(0)
        self._serve_backlog()

    # -- the broker's side

    @property
    def peer(self) -> str:
        return f"{self.peer_host}:{self.peer_port}"

    @property
    def peer_finished(self) -> bool:
        """The peer sends nothing more: it shut down its writing side, or is gone."""
        return self._peer_finished

    @property
    def idle(self) -> bool:
        """No request waits for its answer."""
        return not self._slots and not self._backlog

    @property
    def drained(self) -> bool:
        """Everything answered and handed to the kernel."""
        return self.idle and self._unsent_bytes == 0

    @property
    def sends_uncopied(self) -> bool:
        """Whether a reply may hold memory that only the kernel may read."""
        return self._sending is not None and self._sending.is_direct

    @property
    def _unsent_bytes(self) -> int:
        return self._sending.size_bytes if self._sending is not None else 0

    def mute_for(self, seconds: float) -> None:
        """Serve and read nothing more for a while; what was asked before is answered. The longest of several counts."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        if self._mute is not None:
            if self._mute.when() >= end:
                return
            self._mute.cancel()
        self._mute = loop.call_at(end, self._unmute)
        self._update_reading()

    def _unmute(self) -> None:
        self._mute = None
        self._serve_backlog()

    def _delay(self, seconds: float, *, over_limit: bool) -> None:
        """Too many connections were made lately: this one waits, or (of an address over its own limit) is closed then."""
        self.mute_for(seconds)
        if over_limit:
            _log.warning("connection_refused", peer=self.peer, reason="connection_creation_rate reached")
            self._dropped = True
            asyncio.get_running_loop().call_later(min(seconds, _LINGER_SECONDS), self.abort)

    def finish(self) -> None:
        """Serve nothing more; close once what is under way is answered.

        What still comes in is read and dropped: to close over unread bytes would reset the connection, and a reset may
        reach the peer before the last answers do.
        """
        self._finishing = True
        self._backlog.clear()
        self._update_reading()
        if self.idle:
            self.close()

    def close(self) -> None:
        """Close after what was written has been sent."""
        self._closing = True
        if self._sending is not None:
            self._sending.close()

    def abort(self) -> None:
        """Close now; unsent bytes are dropped."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # -- requests in

    def _serve_backlog(self) -> None:
        if self._serving:  # resume_writing may come from inside a write
            return
        self._serving = True
        try:
            while self._backlog and not self._closing and self._may_serve():
                self._serve(self._backlog.popleft())
                if self._outgoing_bytes > _ENOUGH_BYTES:
                    self._write_out()  # which may find that the peer does not read
        finally:
            self._serving = False
        self._write_out()
        if self._backlog and self._held is not None:
            for tell in list(self.on_next.values()):
                tell()
        self._update_reading()

    def _may_serve(self) -> bool:
        if self._finishing:
            return False
        if self._held is not None or self._mute is not None:
            return False
        return self._peer_reads and len(self._slots) < self._in_flight_max

    def _serve(self, frame: memoryview) -> None:
        try:
            reply = self._handler.handle(self, frame)
        except PeerError as error:
            self._drop(str(error))
            return
        except KafkaError as error:
            self._drop(error.message)
            return
        except Exception:  # noqa: BLE001 - the root of the connection: one bad request must not end the broker
            _log.exception("request_failed", peer=self.peer)
            self._drop("the broker failed to serve a request (the log has the details)")
            return
        if reply is None:
            return
        slot = _Slot()
        self._slots.append(slot)
        if isinstance(reply, list):
            self._settle(slot, reply)
        else:
            if isinstance(reply, Held):
                self._held = slot
                reply = reply.chunks
            slot.pending = asyncio.ensure_future(reply)
            slot.pending.add_done_callback(partial(self._later, slot))

    def _later(self, slot: _Slot, future: asyncio.Future[Chunks | None]) -> None:
        if self._held is slot:
            self._held = None
        if future.cancelled():
            # By us, when the connection is lost; else the work was given up: no answer will ever come, nor one behind it.
            self._drop("the broker gave up a request")
            return
        error = future.exception()
        if error is not None:
            self._failed(error)
        elif not self._closing:
            self._settle(slot, future.result())
            self._serve_backlog()

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, KafkaError | PeerError):
            self._drop(str(error))
            return
        _log.error("request_failed", peer=self.peer, error=repr(error))
        self._drop("the broker failed to serve a request (the log has the details)")
        self._server.report(error)

    def _settle(self, slot: _Slot, chunks: Chunks | None) -> None:
        slot.done, slot.chunks, slot.pending = True, chunks, None
        slots = self._slots
        while slots and slots[0].done:
            ready = slots.popleft().chunks
            if ready is not None:
                self._outgoing.extend(ready)
                self._outgoing_bytes += sum(map(len, ready))

    # -- replies out

    def _write_out(self) -> None:
        chunks = self._outgoing
        if self._closing or self._sending is None:
            return
        if chunks:
            total_bytes = self._outgoing_bytes
            self._outgoing = []
            self._outgoing_bytes = 0
            self.last_active = self._server.now()
            self._sending.write(chunks, total_bytes)
            if not self._peer_reads:
                self._count_unread(self._unsent_bytes)
        if (self._peer_finished or self._finishing) and self.idle:
            self.close()

    def _count_unread(self, count: int) -> None:
        """What the broker holds for a peer that does not read; the server adds it up."""
        self._server.unread_bytes += count - self._unread_bytes
        self._unread_bytes = count

    def _update_reading(self) -> None:
        is_of_use = self._may_serve() or (self._held is not None and bool(self.on_next))
        wanted = self._finishing or (not self._backlog and is_of_use)
        if wanted == self._reading or self._transport is None or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _drop(self, reason: str) -> None:
        if self._closing:
            return
        self._dropped = True
        _log.warning("connection_dropped", peer=self.peer, reason=reason)
        self._write_out()
        self.close()


def _endpoint(address: object) -> tuple[str, int]:
    """(host, port) of a socket address; IPv4-mapped IPv6 addresses in their IPv4 form."""
    if isinstance(address, tuple) and len(address) >= 2:
        return str(address[0]).removeprefix("::ffff:"), int(address[1])
    return "local", 0
