"""The simulated network: machines with addresses, listeners, and the conditions between them.

A `NetworkHost` is a box with a kernel and a cable; an `Interface` is one life of one process on it. When the
process is killed the kernel stays and tells its peers; when the power fails the peers hear nothing, and hold
half-open connections until they send something. Partitions are one-way, so that acknowledgements can be lost
while data passes.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Iterable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from random import Random

from odradek.testing.sim.failures import HostCrashed
from odradek.testing.sim.loop import AddressInfo, SimLoop
from odradek.testing.sim.trace import Trace
from odradek.testing.sim.transport import SimSocket, SimTransport
from odradek.testing.sim.wire import Address, NetworkNode, Packet, PacketKind, Wire

CURRENT: ContextVar[Interface | None] = ContextVar("simulated interface", default=None)
"""The host whose code is running: tasks and callbacks inherit it from the host that started them."""


_ANY_ADDRESS = "0.0.0.0"
_LOOPBACK = "127.0.0.1"


@dataclass(slots=True, kw_only=True)
class Conditions:
    """The conditions of the network: delays, losses and sizes."""

    delay_s: tuple[float, float] = (0.000_05, 0.002)
    spike_rate: float = 0.01
    spike_s: float = 0.2
    """A delay now and then far beyond the usual ones."""
    reset_rate: float = 0.0
    """Share of data segments in whose place the connection dies."""
    small_piece_rate: float = 0.2
    """Share of segments and reads that are cut to a few bytes."""
    window_bytes: tuple[int, int] = (4 * 1024, 256 * 1024)
    give_up_s: float = 60.0
    """The time without acknowledgement after which a sender takes its peer for dead."""


@dataclass(slots=True, kw_only=True)
class SimulatedListener:
    factory: Callable[[], asyncio.BaseProtocol]
    interface: Interface
    server: SimServer


@dataclass(slots=True, eq=False)
class NetworkHost:
    """A box on the network."""

    name: str
    address: str
    interface: Interface | None = None
    """The process that runs on it now."""
    is_powered: bool = True
    next_port: int = 32_768

    def allocate_port(self) -> int:
        self.next_port += 1
        return self.next_port


@dataclass(slots=True, eq=False)
class Interface:
    """The network interface of one life of a process."""

    machine: NetworkHost
    is_alive: bool = True
    listeners: dict[Address, SimulatedListener] = field(default_factory=dict)
    transports: dict[SimTransport, None] = field(default_factory=dict)


class SimServer(asyncio.AbstractServer):
    """The result of `loop.create_server`."""

    def __init__(self, loop: SimLoop, interface: Interface, addresses: list[Address]) -> None:
        self._loop = loop
        self._interface = interface
        self._addresses = addresses
        self._serving = True
        self._stopped: asyncio.Future[None] = loop.create_future()
        self._idle = asyncio.Event()
        self._connection_count = 0
        self._idle.set()

    @property
    def sockets(self) -> tuple[SimSocket, ...]:
        return tuple(SimSocket(address) for address in self._addresses) if self._serving else ()

    def close(self) -> None:
        for address in self._addresses if self._serving else ():
            self._interface.listeners.pop(address, None)
        self._serving = False
        if not self._stopped.done():
            self._stopped.set_result(None)

    def connection_opened(self) -> None:
        self._connection_count += 1
        self._idle.clear()

    def connection_closed(self) -> None:
        self._connection_count -= 1
        if self._connection_count == 0:
            self._idle.set()

    def is_serving(self) -> bool:
        return self._serving

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    async def start_serving(self) -> None:
        """Does nothing: the server serves from the start."""

    async def serve_forever(self) -> None:
        try:
            await self._stopped
        finally:
            self.close()

    async def wait_closed(self) -> None:
        """Waits for the connections too, as Python 3.12 and later do: 3.11 returns at once."""
        await self._stopped
        await self._idle.wait()


class Network:
    """The network between all machines of a world."""

    def __init__(
        self, loop: SimLoop, rng: Random, *, trace: Trace, conditions: Conditions | None = None
    ) -> None:
        self.loop = loop
        self.trace = trace
        self.conditions = conditions or Conditions()
        self.kernel = Context()
        """The context of the network's own callbacks, which continue when a process is stopped."""
        self._rng = rng
        self._machines: dict[str, NetworkHost] = {}
        self._blocked: dict[tuple[str, str], None] = {}
        self._held: list[Wire] = []
        self._outside = self.attach(self.add_machine("outside"))
        loop.network = self
        loop.kernel = self.kernel
        loop.owner_of = lambda context: context.get(CURRENT)

    # -- machines --------------------------------------------------------------------------------------------

    def add_machine(self, name: str) -> NetworkHost:
        machine = NetworkHost(name, f"10.0.0.{len(self._machines) + 1}")
        self._machines[name] = machine
        return machine

    def attach(self, machine: NetworkHost) -> Interface:
        """Start a process's life on the machine, powering it up if need be."""
        machine.is_powered = True
        machine.interface = Interface(machine)
        self._retry_held()
        return machine.interface

    def detach(self, interface: Interface, *, power_lost: bool) -> None:
        """End a process's life, from one instant to the next."""
        if not interface.is_alive:
            return
        interface.is_alive = False
        interface.listeners.clear()
        interface.machine.is_powered = not power_lost
        for transport in list(interface.transports):
            if power_lost:
                transport.power_lost(self._rng.randrange(4))
            else:
                transport.process_killed()
        interface.transports.clear()

    def current(self) -> Interface:
        return CURRENT.get() or self._outside

    def _living(self) -> Interface:
        interface = self.current()
        if not interface.is_alive:
            raise HostCrashed
        return interface

    # -- conditions ------------------------------------------------------------------------------------------

    def block(self, source: str, target: str) -> None:
        """Blocks everything from one machine to the other; the other direction stays open."""
        self._blocked[source, target] = None
        self.trace.note("block", source, target)

    def unblock(self, source: str, target: str) -> None:
        self._blocked.pop((source, target), None)
        self.trace.note("unblock", source, target)
        self._retry_held()

    def heal(self) -> None:
        """Unblock everything."""
        self._blocked.clear()
        self.trace.note("heal")
        self._retry_held()

    def reset_connections(self, interface: Interface) -> None:
        """Kill every connection of a process, as a firewall that forgot its table would."""
        for transport in list(interface.transports):
            self.reset_connection(transport)

    def reset_connection(self, transport: SimTransport) -> None:
        """Resets the connection: both ends see it, each in its time; what was on the way may be lost."""
        for wire in (transport.wire, transport.wire.target.wire):
            wire.cut(self._rng.randrange(3))
            wire.send(Packet(kind=PacketKind.RST))

    def can_pass(self, source: NetworkNode, target: NetworkNode) -> bool:
        return target.is_powered and (source.name, target.name) not in self._blocked

    def hold(self, wire: Wire) -> None:
        self._held.append(wire)

    def _retry_held(self) -> None:
        free = [wire for wire in self._held if self.can_pass(wire.source.machine, wire.target.machine)]
        self._held = [wire for wire in self._held if wire not in free]
        for wire in free:
            wire.resume()

    def delay_s(self, source: NetworkNode, target: NetworkNode) -> float:
        conditions, random = self.conditions, self._rng.random
        low, high = conditions.delay_s
        if source is target:
            return low * random()
        delay = low + (high - low) * random()
        if random() < conditions.spike_rate:
            delay += conditions.spike_s * random()
        return delay

    def window_bytes(self) -> int:
        return self._rng.randint(*self.conditions.window_bytes)

    def piece_bytes(self, available: int) -> int:
        """Returns how much of the bytes to send goes into the next segment, or of the arrived bytes
        into the next read.
        """
        draw, rate = self._rng.random(), self.conditions.small_piece_rate
        if draw >= 2 * rate:
            return available
        return self._rng.randint(1, min(available, 8) if draw < rate else available)

    def loses_connection(self) -> bool:
        return self._rng.random() < self.conditions.reset_rate

    # -- what the loop asks ----------------------------------------------------------------------------------

    def resolve(self, host: str | None, port: int) -> list[AddressInfo]:
        """Returns addresses in the form of `getaddrinfo`."""
        address = self._find(host)[1] if host else _ANY_ADDRESS
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))]

    def _find(self, host: str) -> tuple[NetworkHost, str]:
        """Returns the machine and the address that a host name or address means to the current process."""
        if host == "localhost" or host.startswith("127."):
            return self.current().machine, _LOOPBACK
        for machine in self._machines.values():
            if host in (machine.name, machine.address):
                return machine, machine.address
        raise socket.gaierror(socket.EAI_NONAME, f"no machine {host!r} on the simulated network")

    async def create_server(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str | Iterable[str] | None, port: int
    ) -> SimServer:
        interface = self._living()
        hosts = [host] if host is None or isinstance(host, str) else list(host)
        addresses = [self._bind(interface, address, port) for address in hosts]
        server = SimServer(self.loop, interface, addresses)
        for address in addresses:
            interface.listeners[address] = SimulatedListener(
                factory=factory, interface=interface, server=server
            )
        return server

    def _bind(self, interface: Interface, host: str | None, port: int) -> Address:
        address = _ANY_ADDRESS
        if host and host not in (_ANY_ADDRESS, "::"):
            machine, address = self._find(host)
            if machine is not interface.machine:
                raise OSError(errno.EADDRNOTAVAIL, f"{host} is not an address of {interface.machine.name}")
        for taken, taken_port in interface.listeners:
            if port == taken_port and (address == taken or _ANY_ADDRESS in (address, taken)):
                raise OSError(errno.EADDRINUSE, f"address already in use: {address}:{port}")
        return address, port or interface.machine.allocate_port()

    async def create_connection(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        interface = self._living()
        own = interface.machine
        target, address = self._find(host)
        local, remote = (
            (_LOOPBACK if address == _LOOPBACK else own.address, own.allocate_port()),
            (address, port),
        )
        client = SimTransport(self, own, local, remote)
        server = SimTransport(self, target, remote, local)
        client.wire = Wire(self, client, server)
        server.wire = Wire(self, server, client)
        attempt = _Attempt(client, interface, factory, self.loop.create_future())
        client.expect(attempt.answered)
        server.expect(lambda packet: self._accept(server, packet))
        client.wire.send(Packet(kind=PacketKind.SYN))
        try:
            protocol = await attempt.outcome
        except asyncio.CancelledError:
            client.abort()
            raise
        await asyncio.sleep(0)  # as in asyncio, `connection_made` was called when this returns
        return client, protocol

    def _accept(self, server: SimTransport, packet: Packet | None) -> None:
        if packet is None or packet.kind is not PacketKind.SYN:
            return
        listener = self._listener(self._machines[server.machine.name], server.local)
        if listener is None:
            server.wire.send(Packet(kind=PacketKind.RST))
            return
        context = copy_context()
        context.run(CURRENT.set, listener.interface)
        server.wire.send(Packet(kind=PacketKind.SYN_ACK))
        listener.server.connection_opened()
        server.open(
            listener.interface,
            context.run(listener.factory),
            context,
            on_closed=listener.server.connection_closed,
        )

    @staticmethod
    def _listener(machine: NetworkHost, address: Address) -> SimulatedListener | None:
        interface = machine.interface
        if interface is None or not interface.is_alive:
            return None
        simulated_listener = interface.listeners.get(address)
        return simulated_listener or interface.listeners.get((_ANY_ADDRESS, address[1]))


class _Attempt:
    """A connection that waits for the other side's answer."""

    __slots__ = ("_client", "_context", "_factory", "_interface", "outcome")

    def __init__(
        self,
        client: SimTransport,
        interface: Interface,
        factory: Callable[[], asyncio.BaseProtocol],
        outcome: asyncio.Future[asyncio.BaseProtocol],
    ) -> None:
        self._client = client
        self._interface = interface
        self._factory = factory
        self._context = copy_context()
        self.outcome = outcome

    def answered(self, packet: Packet | None) -> None:
        """Handles the answer to a connection attempt; None because nothing will come."""
        if packet is not None and packet.kind is PacketKind.SYN_ACK:
            self._established()
        elif self.outcome.done():
            return
        elif packet is None:
            self.outcome.set_exception(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
        else:
            self.outcome.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, "connection refused"))

    def _established(self) -> None:
        if self.outcome.done() or not self._interface.is_alive:  # nothing waits for it any more
            self._client.wire.send(Packet(kind=PacketKind.RST))
            return
        try:
            protocol = self._context.run(self._factory)
        except Exception as error:  # noqa: BLE001  the caller's factory, so the caller's error
            self._client.wire.send(Packet(kind=PacketKind.RST))
            self.outcome.set_exception(error)
            return
        self._client.open(self._interface, protocol, self._context)
        self.outcome.set_result(protocol)
