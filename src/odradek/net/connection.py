"""One client connection: frames in, replies out, in the order of the requests.

How it works. Bytes are received straight into the frame reader's buffer. Complete frames are handed to the
request handler in order. A handler may answer later. Until then a client's next request waits, as in Kafka,
because it must see what the earlier one did; only requests of one pipeline (`protocol.api.pipeline_of`)
overlap, and requests of another broker. `replies.py` keeps the replies in request order (Kafka's contract:
responses on a connection never overtake).

A connection that sends many requests at once is served for a millisecond or so, then it queues with others that have much to do
(`runtime/turns.py`), so that it holds up no one else.

Limits keep memory bounded. A connection with `in_flight_max` unanswered requests, one whose peer does not read what was
written, or one that waits for a `HeldReply` reply (a long poll, whose answer may be large) is not served, nor read from, until
that is over (`serving_gate.py`). Frames already received wait in `_backlog`, at most one buffer's worth. (Who makes such a
reply may want to know that there are some, see `on_next`: then one buffer is read.) A frame larger than the receive buffer is
received as far as the server's budget for all connections allows (`frame_shares.py`), and counts there until its request is
answered.

Peers that leave are noticed even while nothing is read (`hangups.py`). A part of a frame counts as activity in steps of
`_ACTIVE_BYTES`: a peer that trickles is idle.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

from odradek.model.errors import KafkaError
from odradek.net.connection_owner import ConnectionFigures, ConnectionLoad
from odradek.net.frame_shares import FrameShares
from odradek.net.hangups import HangUp
from odradek.net.outgoing import Outgoing, break_own_cycle
from odradek.net.peer_admission import admit, identify, note_failed_handshake
from odradek.net.replies import NOT_SERVED, HeldReply, PeerError, Reply, ReplyQueue, ReplySlot
from odradek.net.serving_gate import ServingGate
from odradek.protocol.api import BROKER_SOFTWARE
from odradek.protocol.framing import RECEIVE_BYTES_MAX, FrameReader
from odradek.runtime.prompt import PromptFuture
from odradek.security.principals import UNKNOWN_REQUESTER, Requester
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.net.connection_owner import ConnectionOwner
    from odradek.net.listening import OpenListener
    from odradek.net.replies import PendingReply
    from odradek.net.request_budget import Share
    from odradek.net.tls import TlsFailure

_log = events.caused_by_peers("net")

_ENOUGH_BYTES: Final = 64 * 1024
"""The number of unsent bytes from which the next request waits until they are sent."""
LINGER_SECONDS: Final = 5.0
_ACTIVE_BYTES: Final = 64 * 1024


class RequestHandler(Protocol):
    """The broker's face to a connection."""

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        """Serves one request frame (without its size prefix). Raises `PeerError` or `KafkaError` to drop the peer."""


class Connection(asyncio.BufferedProtocol):
    """One accepted connection; made by `Server`, used on the event loop only."""

    def __init__(
        self, server: ConnectionOwner[Connection], handler: RequestHandler, listener: OpenListener
    ) -> None:
        self._server = server
        frame_bytes_max = server.limits.frame_bytes_max
        if listener.first_frames_bytes_max is not None:
            frame_bytes_max = min(frame_bytes_max, listener.first_frames_bytes_max)
        self._reader = FrameReader(frame_bytes_max, gated=True)
        self._shares = FrameShares(server.requests)
        self._keeps_frame = True
        self._trickled_bytes = 0
        self._part_began = 0.0
        """The time when the first part of the frame came that is not complete; 0 without one."""
        self.listener = listener
        self._transport: asyncio.Transport | None = None
        self._sending: Outgoing | None = None
        self._backlog: deque[tuple[float, memoryview]] = deque()
        """Frames, with the times of their arrival."""
        self._replies = ReplyQueue(server.now)
        self._gate = ServingGate(server, self._replies)
        self.figures: Final = ConnectionFigures()
        self._serving = False
        self._lingering: asyncio.TimerHandle | None = None
        self._reading = True
        self._closing = self._peer_finished = self._finishing = False
        self.peer_host, self.peer_port = "", 0
        self.local_host, self.local_port = "", 0
        self.requester = UNKNOWN_REQUESTER
        self.last_active = 0.0
        self.client_software = ("", "")
        self.reported: dict[tuple[int, int], float] = {}
        """The time when the broker last logged each refusal of this client's requests."""
        self.on_lost: dict[object, Callable[[], None]] = {}
        """Callbacks for the end of the connection, by the object that wants the call."""
        self.on_finished: dict[object, Callable[[], None]] = {}
        """Callbacks for a peer that sends nothing more, though it may still read."""
        self.on_next: dict[object, Callable[[], None]] = {}
        """Callbacks for a peer that sends another request while it waits for a `HeldReply`, by the maker of that reply."""
        self.is_dropped = False
        """The peer sent a request that cannot be served: nothing more is read."""
        self._is_admitted = False
        self._handler: RequestHandler = handler if listener.login is None else listener.login(self)

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self._transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        if not self._is_admitted and not self.accepted(transport):
            return
        self._sending = Outgoing(transport, on_full=self.pause_writing, on_room=self._room)
        identify(self, self._server, transport)

    def accepted(self, transport: asyncio.Transport) -> bool:
        """Takes in the peer; its TLS handshake may not be finished. Returns False when it may not stay."""
        self._transport, self._is_admitted = transport, True
        return admit(self, self._server, transport)

    def handshake_ended(self, failure: TlsFailure | None) -> None:
        if failure is not None and not self._closing:
            note_failed_handshake(self, self._server, failure)

    def log_in(self, requester: Requester) -> None:
        """Sets the requester of a client that has logged in, and allows it frames of the usual size."""
        self.requester = requester
        self._reader.allow_frames(self._server.limits.frame_bytes_max)

    def connection_lost(self, error: Exception | None) -> None:
        if self._reader.pending_bytes and not self.is_dropped and not self._finishing:
            _log.warning("frame_cut_short", peer=self.peer, bytes=self._reader.pending_bytes)
        self._closing = True
        self._replies.cancel()
        self._gate.close()
        if self._lingering is not None:
            self._lingering.cancel()
        self._let_go_of_memory()
        self._server.forget(self)
        for tell in list(self.on_lost.values()):
            tell()
        # No cycle stays: reference counts free this object, without the collector.
        break_own_cycle(self._transport)
        self._transport = self._sending = None
        self._handler = NOT_SERVED
        self.on_lost, self.on_finished, self.on_next = {}, {}, {}

    def _let_go_of_memory(self) -> None:
        """Releases memory at once: this object is part of cycles, which the collector may find much later."""
        self._shares.release()
        self._replies.drop()
        self._backlog.clear()
        self._reader.drop()
        if self._sending is not None:
            self._sending.drop()
        self._server.answers.forget(self)
        self.figures.served = None

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._finishing:
            return memoryview(bytearray(RECEIVE_BYTES_MAX))  # what is in it afterwards is of no interest
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._finishing:
            return
        reader = self._reader
        try:
            frames = reader.received(nbytes)
        except KafkaError as error:
            self._drop(error.message)
            return
        if not frames:
            self._received_part(nbytes)
            return
        self.last_active = self._server.now()
        if self._part_began:
            self.figures.received_s = self.last_active - self._part_began
            self.figures.received_at = self.last_active
        self._part_began = self.last_active if reader.pending_bytes else 0.0
        if self._shares.receiving is not None:
            self._shares.complete(self.last_active)
        for frame in frames:
            self._backlog.append((self.last_active, frame))
        self._serve_backlog()
        if reader.large_frame_bytes:
            self._request_room()

    def _received_part(self, nbytes: int) -> None:
        if not self._part_began:
            self._part_began = self._server.now()
        self._trickled_bytes += nbytes
        if self._trickled_bytes >= _ACTIVE_BYTES:
            self._trickled_bytes = 0
            self.last_active = self._server.now()
        if self._reader.large_frame_bytes:
            self._request_room()

    def _request_room(self) -> None:
        """Requests room for a large frame that has begun, or continues."""
        shares = self._shares
        if shares.receiving is None and self._closing:
            return
        now = self._server.now()
        if not shares.request_room(self._reader, self, now, is_of_broker=self._is_of_broker):
            self._server.watch()
            self._update_reading()

    def room_granted(self) -> None:
        """Lets the large frame that waited receive more."""
        self._shares.grant_room(self._reader)
        self._update_reading()

    @property
    def _is_of_broker(self) -> bool:
        """True if the client claims to be a broker: brokers have some room of their own, and a false claim
        gains little."""
        return self.client_software[0] == BROKER_SOFTWARE

    def eof_received(self) -> bool:
        self._peer_left()
        if self.idle:
            return False
        self._linger()
        return True

    def _peer_left(self) -> None:
        self._peer_finished = True
        for tell in list(self.on_finished.values()):
            tell()

    def _linger(self) -> None:
        # A client that only shut down its writing side may read the answers it waits for; a client that
        # disconnected must not keep a long poll, and its memory, until the poll's end.
        self._lingering = asyncio.get_running_loop().call_later(LINGER_SECONDS, self.close)

    def hung_up(self, how: HangUp) -> None:
        """Handles a peer that left while nothing was read from it."""
        if how is HangUp.RESET:
            self.abort()
        elif not self._peer_finished:
            self._peer_left()
            self._linger()

    @property
    def load(self) -> ConnectionLoad:
        """What of this connection is in the broker now."""
        waiting = sum(len(frame) for _, frame in self._backlog)
        received = self._reader.pending_bytes + waiting + self._replies.request_bytes
        unsent = self._unsent_bytes + self._replies.unwritten_bytes
        return ConnectionLoad(len(self._backlog), received, unsent)

    @property
    def descriptor(self) -> int | None:
        """The descriptor of the plain socket; None without one."""
        return None if self._sending is None else self._sending.descriptor

    @property
    def simulated_hang_up(self) -> str | None:
        return None if self._transport is None else self._transport.get_extra_info("hung_up")

    def pause_writing(self) -> None:
        self._gate.peer_reads = False
        self._update_reading()

    def resume_writing(self) -> None:
        if self._sending is not None and not self._sending.waits:
            self._room()

    def _room(self) -> None:
        """Continues after the peer took everything that was written."""
        self._gate.peer_reads = True
        self._replies.sent()
        self.last_active = self._server.now()
        self._server.answers.forget(self)
        self._serve_backlog()

    # -- the broker's side

    @property
    def peer(self) -> str:
        return f"{self.peer_host}:{self.peer_port}"

    @property
    def peer_finished(self) -> bool:
        """The peer sends nothing more: it shut down its writing side, or disconnected."""
        return self._peer_finished

    @property
    def idle(self) -> bool:
        """Whether no request waits for its answer."""
        return not self._replies.slots and not self._backlog

    @property
    def drained(self) -> bool:
        """Everything answered and handed to the kernel."""
        return self.idle and self._unsent_bytes == 0

    @property
    def sends_uncopied(self) -> bool:
        """True if a reply may hold memory that only the kernel may read."""
        return self._sending is not None and self._sending.is_direct

    @property
    def is_in_frame(self) -> bool:
        """A frame has begun and is not complete."""
        return self._reader.pending_bytes > 0

    @property
    def is_starved(self) -> bool:
        """A large frame has begun and may not be received further for now."""
        return self._shares.is_starved

    @property
    def _unsent_bytes(self) -> int:
        return self._sending.size_bytes if self._sending is not None else 0

    def mute_for(self, seconds: float) -> None:
        """Serves and reads nothing more for a while; earlier requests are answered. The longest of several counts."""
        self._gate.mute_for(seconds, self._serve_backlog)
        self._update_reading()

    def finish(self) -> None:
        """Serves nothing more; closes once the requests under way are answered.

        What still comes in is read and dropped: to close over unread bytes would reset the connection, and a reset may
        reach the peer before the last answers do.
        """
        self._finishing = True
        self._backlog.clear()
        self._reader.drop()
        self._shares.release()
        self._update_reading()
        if self.idle:
            self.close()

    def close(self) -> None:
        """Closes once all written bytes are sent."""
        self._closing = True
        if self._sending is not None:
            self._sending.close()
        elif self._transport is not None:  # in its TLS handshake
            self._transport.abort()

    def abort(self) -> None:
        """Closes now; unsent bytes are dropped."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # -- requests in

    def _serve_backlog(self) -> None:
        if self._serving:  # resume_writing may come from inside a write
            return
        self._serving = True
        gate, turn = self._gate, None
        try:
            while (
                self._backlog
                and not self._closing
                and gate.may_serve()
                and gate.may_begin(self._backlog[0][1])
            ):
                self.figures.arrived_at, frame = self._backlog.popleft()
                self._serve(frame)
                if self._replies.ready_bytes > _ENOUGH_BYTES:
                    self._write_out()  # which may find that the peer does not read
                if turn is None:
                    if self._backlog:  # a lone request costs no look at the clock
                        turn = self._server.turns.begin()
                elif turn.is_over and self._backlog:
                    gate.queue(self._serve_backlog)
        finally:
            self._serving = False
        self._end_round()

    def _end_round(self) -> None:
        """Writes what is ready, and reads on as far as more may be served."""
        if self._replies.ready_bytes or self._peer_finished or self._finishing:
            self._write_out()
        if self._backlog and self._gate.held is not None:
            for tell in list(self.on_next.values()):
                tell()
        self._update_reading()

    def _serve(self, frame: memoryview) -> None:
        self._keeps_frame = True
        if len(frame) <= RECEIVE_BYTES_MAX:
            self._handle(frame, None)
            return
        share = self._shares.begin_serving(len(frame))
        is_parked = self._handle(frame, share)
        self._shares.end_serving(is_parked=is_parked)

    @property
    def share_being_served(self) -> Share | None:
        """The share of the request that is being handled, if it is large. Code that does not need the request releases it
        early."""
        return self._shares.being_served

    def forget_frame(self) -> None:
        """Notes that the request being handled does not need its frame while it waits for its answer."""
        self._keeps_frame = False
        self._shares.release_served()

    def _handle(self, frame: memoryview, share: Share | None) -> bool:
        """Returns whether the request now waits for its answer."""
        self.figures.served = None
        try:
            reply = self._handler.handle(self, frame)
        except PeerError as error:
            self._drop(str(error))
            return False
        except KafkaError as error:
            self._drop(error.message)
            return False
        except Exception:  # noqa: BLE001 - the root of the connection: one bad request must not end the broker
            _log.exception("request_failed", peer=self.peer)
            self._drop("the broker failed to serve a request (the log has the details)")
            return False
        if reply is None:
            return False
        if isinstance(reply, list):
            self._replies.answer(reply, share, self.figures.served)
            return False
        slot = self._replies.add(share, self.figures.served)
        if isinstance(reply, HeldReply):
            self._gate.held = slot
            reply = reply.chunks
        if share is None and self._keeps_frame:
            self._replies.park(slot, len(frame))
        self._gate.pipeline = self._server.pipeline_of(frame)
        self._gate.is_of_broker = self.client_software[0] == BROKER_SOFTWARE
        slot.pending = reply if isinstance(reply, PromptFuture) else asyncio.ensure_future(reply)
        slot.pending.add_done_callback(partial(self._later, slot))
        return not slot.done

    def _later(self, slot: ReplySlot, future: PendingReply) -> None:
        if self._gate.held is slot:
            self._gate.held = None
        if future.cancelled():
            # By us, when the connection is lost; else the work was given up: neither this request nor later
            # ones get a response.
            self._drop("the broker gave up a request", slot)
            return
        error = future.exception()
        if error is not None:
            self._failed(error, slot)
        elif not self._closing:
            self._replies.settle(slot, future.result())
            if self._backlog:
                self._serve_backlog()
            elif not self._serving:
                self._end_round()

    def _failed(self, error: BaseException, slot: ReplySlot) -> None:
        if isinstance(error, KafkaError | PeerError):
            self._drop(str(error), slot)
            return
        _log.error("request_failed", peer=self.peer, error=repr(error))
        self._drop("the broker failed to serve a request (the log has the details)", slot)
        self._server.report(error)

    # -- replies out

    def _write_out(self) -> None:
        if self._closing or self._sending is None:
            return
        total_bytes = self._replies.ready_bytes
        if total_bytes:
            self.last_active = self._server.now()
            chunks = self._replies.drain(self.last_active)
            self._sending.write(chunks, total_bytes)
            if self._gate.peer_reads:
                self._replies.sent()
            else:
                self._count_unread()
        if (self._peer_finished or self._finishing) and self.idle:
            self.close()

    def _count_unread(self) -> None:
        """Reports to the server the bytes that the peer does not take: the server adds up what such peers hold."""
        sending = self._sending
        if sending is not None and not self._closing:
            self._server.answers.hold(
                self, sending.memory_bytes, sent_bytes=sending.sent_bytes, now=self._server.now()
            )
            self._server.watch()

    @property
    def sent_bytes(self) -> int:
        """All that the peer's system ever took."""
        return 0 if self._sending is None else self._sending.sent_bytes

    def _update_reading(self) -> None:
        gate = self._gate
        is_of_use = (
            gate.may_serve()
            or (gate.may_wait and not self._reader.large_frame_bytes)
            or (gate.held is not None and bool(self.on_next))
        )
        wanted = self._finishing or (not self._backlog and is_of_use and not self._shares.is_starved)
        if wanted == self._reading or self._transport is None or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
            self._server.hangups.resumed(self)
        else:
            self._transport.pause_reading()
            self._server.hangups.paused(self, self._server.now())
            self._server.watch()

    def _drop(self, reason: str, failed: ReplySlot | None = None) -> None:
        """Ends the connection as soon as earlier requests are answered, or the peer could wait for that no longer.

        `failed`: the request that gets no response, and neither do later ones. None: the one that was read
        last, or a frame that cannot be read.
        """
        if self._closing:
            return
        if not self.is_dropped:
            self.is_dropped = True
            _log.warning("connection_dropped", peer=self.peer, reason=reason)
        if failed is not None:
            self._replies.give_up_from(failed)
        self._write_out()
        self.finish()
        if not self._closing and self._lingering is None:
            self._linger()
