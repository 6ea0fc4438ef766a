"""One direction of a simulated connection, as the network sees it: packets that arrive late, in order, or not
yet.

TCP hides loss: what is lost is sent again. So a partition never removes a packet from the middle; it holds
the wire's head until it heals, or until the sender gives up and both ends find out on their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context
from enum import Enum
from typing import NamedTuple, Protocol
from zlib import crc32

from odradek.testing.sim.trace import Trace

Address = tuple[str, int]


class PacketKind(Enum):
    SYN = "syn"
    SYN_ACK = "syn-ack"
    DATA = "data"
    ACK = "ack"
    """The reader took `acknowledged` bytes out of its socket: this much may be sent again."""
    FIN = "fin"
    RST = "rst"


class Packet(NamedTuple):
    kind: PacketKind
    data: bytes = b""
    acknowledged: int = 0


class NetworkNode(Protocol):
    """A machine, as far as a wire knows it."""

    @property
    def name(self) -> str: ...

    @property
    def is_powered(self) -> bool: ...


class WireEnd(Protocol):
    """One end of a connection. `wire` leads away from it."""

    wire: Wire

    @property
    def machine(self) -> NetworkNode: ...

    @property
    def local(self) -> Address: ...

    def arrived(self, packet: Packet) -> None: ...

    def timed_out(self) -> None: ...


class WireConditions(Protocol):
    @property
    def give_up_s(self) -> float: ...


class WireNetwork(Protocol):
    """The network between the two ends."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def trace(self) -> Trace: ...

    @property
    def kernel(self) -> Context: ...

    @property
    def conditions(self) -> WireConditions: ...

    def delay_s(self, source: NetworkNode, target: NetworkNode) -> float: ...

    def can_pass(self, source: NetworkNode, target: NetworkNode) -> bool: ...

    def hold(self, wire: Wire) -> None:
        """Call `resume` of the wire when something may pass again."""


class Wire:
    """Carries packets from `source` to `target`, keeping their order."""

    __slots__ = (
        "_arrivals",
        "_last_arrival_s",
        "_name",
        "_network",
        "_patience",
        "_stalled",
        "_timer",
        "source",
        "target",
    )

    def __init__(self, network: WireNetwork, source: WireEnd, target: WireEnd) -> None:
        self._network = network
        self.source = source
        self.target = target
        self._name = f"{source.local[0]}:{source.local[1]} to {target.local[0]}:{target.local[1]}"
        self._arrivals: deque[tuple[float, Packet]] = deque()
        self._last_arrival_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._stalled = False

    def send(self, packet: Packet) -> None:
        network = self._network
        arrival_s = network.loop.time() + network.delay_s(self.source.machine, self.target.machine)
        if arrival_s < self._last_arrival_s:
            arrival_s = self._last_arrival_s
        self._last_arrival_s = arrival_s
        self._arrivals.append((arrival_s, packet))
        if self._stalled:
            self._lose_patience()
        elif self._timer is None:
            self._expect_next()

    def cut(self, kept: int) -> None:
        """Drops all but the first `kept` packets: the sender lost power before it could send the others."""
        while len(self._arrivals) > kept:
            self._arrivals.pop()
        self._expect_next()

    def _expect_next(self) -> None:
        if self._arrivals and self._timer is None and not self._stalled:
            self._timer = self._network.loop.call_at(
                self._arrivals[0][0], self._arrive, context=self._network.kernel
            )

    def _arrive(self) -> None:
        self._timer = None
        network = self._network
        if not self._arrivals:
            return
        if not network.can_pass(self.source.machine, self.target.machine):
            self._stall()
            return
        _, packet = self._arrivals.popleft()
        data = packet.data
        network.trace.note("packet", self._name, packet.kind._value_, len(data), crc32(data))
        self.target.arrived(packet)
        self._expect_next()

    def _stall(self) -> None:
        self._stalled = True
        self._network.hold(self)
        self._lose_patience()

    def _lose_patience(self) -> None:
        if self._patience is None:
            self._patience = self._network.loop.call_later(
                self._network.conditions.give_up_s, self._give_up, context=self._network.kernel
            )

    def resume(self) -> None:
        """Sends the held packets again: the way is free."""
        if not self._stalled:
            return
        self._stalled = False
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        start_s = self._network.loop.time() + self._network.delay_s(self.source.machine, self.target.machine)
        self._arrivals = deque((max(arrival_s, start_s), packet) for arrival_s, packet in self._arrivals)
        self._last_arrival_s = max(self._last_arrival_s, start_s)
        self._expect_next()

    def _give_up(self) -> None:
        """Ends a connection whose sender waits for an acknowledgement that cannot come."""
        self._patience = None
        self.source.timed_out()
        self.target.timed_out()
