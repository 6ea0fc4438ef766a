"""One end of a simulated connection: an asyncio transport over two wires.

It behaves as asyncio's own socket transport on top of a kernel with a bounded window. `write` hands what fits
to the kernel and keeps the rest (uncopied, as Python 3.12 and later do, so that a caller who changes a buffer
after writing it is found out). The kernel's part outlives the process, this part does not. A socket that is
closed with unread input answers with a reset, which destroys what the peer has not read yet: so does Linux.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Final, Protocol

from odradek.runtime.ports import Buffer
from odradek.testing.sim.failures import HostCrashed
from odradek.testing.sim.wire import Address, NetworkNode, Packet, PacketKind, Wire, WireNetwork

_DEFAULT_HIGH_BYTES: Final = 64 * 1024
_ACK: Final = PacketKind.ACK
_DATA: Final = PacketKind.DATA
_RST: Final = Packet(kind=PacketKind.RST)
_FIN: Final = Packet(kind=PacketKind.FIN)


class SimSocket:
    """The parts of a transport's or server's socket that code may use."""

    __slots__ = ("_local", "_peer")

    def __init__(self, local: Address, peer: Address | None = None) -> None:
        self._local = local
        self._peer = peer

    def getsockname(self) -> Address:
        return self._local

    def getpeername(self) -> Address:  # unused: part of a socket
        if self._peer is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self._peer

    def setsockopt(self, *_option: object) -> None:
        """Accepts and ignores the option."""


class TransportOwner(Protocol):
    """The process, in one life, that has a transport."""

    @property
    def is_alive(self) -> bool: ...

    @property
    def transports(self) -> dict[SimTransport, None]: ...


class TransportNetwork(WireNetwork, Protocol):
    """The parts of the network that an end of a connection needs, in addition to a wire's."""

    def window_bytes(self) -> int: ...

    def piece_bytes(self, available: int) -> int: ...

    def loses_connection(self) -> bool: ...

    def reset_connection(self, transport: SimTransport) -> None: ...


class SimTransport(asyncio.Transport):
    """An endpoint. The network makes both ends of a connection, then opens each when its handshake
    arrives.
    """

    def __init__(
        self, network: TransportNetwork, machine: NetworkNode, local: Address, remote: Address
    ) -> None:
        super().__init__()
        self._network = network
        self._loop = network.loop
        self.machine = machine
        self.local = local
        self.remote = remote
        self.wire: Wire  # to the peer; set when both ends exist
        self._interface: TransportOwner | None = None
        self._context: Context | None = None
        self._protocol: asyncio.BaseProtocol | None = None
        self._on_handshake: Callable[[Packet | None], None] | None = None
        self._on_closed: Callable[[], None] | None = None
        # the kernel's side
        self._socket_open = True
        self._unacknowledged_bytes = 0
        self._window_bytes = network.window_bytes()
        self._received = bytearray()
        self._fin_received = False
        self._fin_sent = False
        self._reset_unseen = False
        # the process's side
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._high_bytes = _DEFAULT_HIGH_BYTES
        self._low_bytes = _DEFAULT_HIGH_BYTES // 4
        self._protocol_paused = False
        self._eof_requested = False
        self._eof_delivered = False
        self._reading = True
        self._read_scheduled = False
        self._closing = False
        self._lost = False

    # -- life ------------------------------------------------------------------------------------------------

    def expect(self, on_handshake: Callable[[Packet | None], None]) -> None:
        """Give packets to `on_handshake` instead of a protocol until `open`; None when nothing comes."""
        self._on_handshake = on_handshake

    def open(
        self,
        interface: TransportOwner,
        protocol: asyncio.BaseProtocol,
        context: Context,
        on_closed: Callable[[], None] | None = None,
    ) -> None:
        """Attach the process that owns this end and tell its protocol, in the next turn of the loop."""
        self._on_handshake = None
        self._interface = interface
        self._protocol = protocol
        self._context = context
        self._on_closed = on_closed
        interface.transports[self] = None
        self._call(self._made)

    def _made(self) -> None:
        assert self._protocol is not None
        self._protocol.connection_made(self)
        self._schedule_read()

    def _call(self, callback: Callable[..., object], *arguments: object) -> None:
        """Run `callback` in the owner's context, unless the owner dies first."""
        self._loop.call_soon(self._if_alive, callback, arguments, context=self._context)

    def _if_alive(self, callback: Callable[..., object], arguments: tuple[object, ...]) -> None:
        if self._interface is None or self._interface.is_alive:
            callback(*arguments)

    def process_killed(self) -> None:
        """Closes the socket of a dead process as the kernel does, sending what it already holds."""
        self._owner_died()
        self._close_socket()

    def power_lost(self, packets_kept: int) -> None:
        """Drops the connection without a packet: the peer learns nothing."""
        self._owner_died()
        self._socket_open = False
        self.wire.cut(packets_kept)

    def timed_out(self) -> None:
        """Ends the connection to a peer that does not acknowledge, as the kernel does."""
        if self._on_handshake is not None:
            self._on_handshake(None)
        elif self._socket_open and (self._unacknowledged_bytes or self._fin_sent):
            self._socket_open = False
            self._fatal(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    # -- from the wire ---------------------------------------------------------------------------------------

    def arrived(self, packet: Packet) -> None:
        kind = packet.kind
        if self._on_handshake is not None:
            self._on_handshake(packet)
        elif kind is _ACK:
            self._acknowledged(packet.acknowledged)
        elif kind is PacketKind.RST:
            self._reset_arrived()
        elif not self._socket_open:
            self.wire.send(_RST)
        elif kind is PacketKind.FIN:
            self._fin_received = True
            self._schedule_read()
        else:
            self._received += packet.data
            self._schedule_read()

    def _reset_arrived(self) -> None:
        if not self._socket_open:
            return
        self._socket_open = False
        self._received.clear()
        self._unacknowledged_bytes = 0
        if self._reading or self._unsent:
            self._reset_seen()
        else:
            self._reset_unseen = True  # no one looks at the socket now

    def _reset_seen(self) -> None:
        self._reset_unseen = False
        self._fatal(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _acknowledged(self, count: int) -> None:
        self._unacknowledged_bytes = max(0, self._unacknowledged_bytes - count)
        if not self._socket_open or self._lost:
            return
        self._send_what_fits()
        if self._protocol_paused and self._unsent_bytes <= self._low_bytes:
            self._protocol_paused = False
            self._call(self._resume_protocol)

    def _resume_protocol(self) -> None:
        assert isinstance(self._protocol, asyncio.BaseProtocol)
        self._guard(self._protocol.resume_writing)

    # -- reading ---------------------------------------------------------------------------------------------

    def _schedule_read(self) -> None:
        if self._read_scheduled or not self._reading or self._closing or self._protocol is None:
            return
        if self._received or (self._fin_received and not self._eof_delivered):
            self._read_scheduled = True
            self._call(self._read_ready)

    def _read_ready(self) -> None:
        self._read_scheduled = False
        if not self._reading or self._closing or not self._socket_open:
            return
        if self._received:
            self._guard(self._deliver)
        elif self._fin_received and not self._eof_delivered:
            self._eof_delivered = True
            self._guard(self._deliver_eof)
        self._schedule_read()

    def _deliver(self) -> None:
        count = self._network.piece_bytes(len(self._received))
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            target = memoryview(protocol.get_buffer(-1)).cast("B")
            if not target:
                raise RuntimeError("get_buffer() returned an empty buffer")
            count = min(count, len(target))
            target[:count] = self._consume(count)
            protocol.buffer_updated(count)
        else:
            assert isinstance(protocol, asyncio.Protocol)
            protocol.data_received(self._consume(count))

    def _consume(self, count: int) -> bytes:
        received = self._received
        if count == len(received):
            taken = bytes(received)
            received.clear()
        else:
            taken = bytes(received[:count])
            del received[:count]
        self.wire.send(Packet(_ACK, b"", count))
        return taken

    def _deliver_eof(self) -> None:
        assert isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        if not self._protocol.eof_received():
            self.close()

    def _guard(self, callback: Callable[[], object]) -> None:
        """Call the protocol; an error that it lets out ends the connection."""
        try:
            callback()
        except (SystemExit, KeyboardInterrupt, HostCrashed):
            raise
        except BaseException as error:  # noqa: BLE001  the root of a connection, as in asyncio
            self._loop.call_exception_handler(
                {"message": "a protocol let out an error", "exception": error, "transport": self}
            )
            self._fatal(error)

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if self._closing or self._reading:
            return
        self._reading = True
        if self._reset_unseen:
            self._reset_seen()
        else:
            self._schedule_read()

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    # -- writing ---------------------------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        views = [view for data in list_of_data if (view := memoryview(data).cast("B"))]
        if self._eof_requested:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._lost:
            return
        if self._reset_unseen:
            self._reset_seen()
            return
        self._unsent.extend(views)
        self._unsent_bytes += sum(map(len, views))
        self._send_what_fits()
        if self._unsent_bytes > self._high_bytes and not self._protocol_paused:
            self._protocol_paused = True
            assert self._protocol is not None
            self._guard(self._protocol.pause_writing)

    def _send_what_fits(self) -> None:
        while self._unsent:
            head = self._unsent[0]
            room = self._window_bytes - self._unacknowledged_bytes
            if room < min(len(head), self._window_bytes // 4):  # a nearly full window would send crumbs
                break
            count = self._network.piece_bytes(min(len(head), room))
            if self._network.loses_connection():
                self._network.reset_connection(self)
                return
            self.wire.send(Packet(_DATA, bytes(head[:count])))
            self._unacknowledged_bytes += count
            self._unsent_bytes -= count
            if count == len(head):
                self._unsent.popleft()
            else:
                self._unsent[0] = head[count:]
        if not self._unsent:
            self._all_sent()

    def _all_sent(self) -> None:
        if self._eof_requested:
            self._send_fin()
        if self._closing and not self._lost:
            self._lose(None)

    def _forget_unsent(self) -> None:
        self._unsent.clear()
        self._unsent_bytes = 0

    def _owner_died(self) -> None:
        self._forget_unsent()
        self._closing = self._lost = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self._closing or self._eof_requested:
            return
        self._eof_requested = True
        if not self._unsent:
            self._send_fin()

    def _send_fin(self) -> None:
        if not self._fin_sent:
            self._fin_sent = True
            self.wire.send(_FIN)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _DEFAULT_HIGH_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_bytes, self._low_bytes = high, low

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    # -- ending ----------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._unsent:
            self._lose(None)

    def abort(self) -> None:
        self._fatal(None)

    def _fatal(self, error: BaseException | None) -> None:
        self._forget_unsent()
        self._closing = True
        if not self._lost:
            self._lose(error)

    def _lose(self, error: BaseException | None) -> None:
        self._lost = True
        self._call(self._connection_lost, error)

    def _connection_lost(self, error: Exception | None) -> None:
        try:
            if self._protocol is not None:
                self._protocol.connection_lost(error)
        finally:
            self._close_socket()
            if self._on_closed is not None:
                self._on_closed()

    def _close_socket(self) -> None:
        if self._interface is not None:
            self._interface.transports.pop(self, None)
        if not self._socket_open:
            return
        self._socket_open = False
        if self._received:
            self.wire.send(_RST)
        else:
            self._send_fin()

    # -- the rest of asyncio's interface ---------------------------------------------------------------------

    def _hung_up(self) -> str | None:
        """Returns how the peer hung up, which the kernel knows even if the process does not read; None if it has not (see
        `net/hangups.py`)."""
        if self._reset_unseen:
            return "reset"
        return "finished" if self._fin_received else None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def get_extra_info(self, name: str, default: object = None) -> object:
        known = {
            "sockname": self.local,
            "peername": self.remote,
            "socket": SimSocket(self.local, self.remote),
            "hung_up": self._hung_up(),
        }
        return known.get(name, default)
