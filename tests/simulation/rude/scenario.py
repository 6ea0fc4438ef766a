"""A broker between rude clients and polite ones: frames that are never finished, trickle, or wait; answers that no one reads;
clients that leave while their connection is not read from.

What must hold: every request of a polite client is answered in bounded virtual time, and no polite client is disconnected.
Large requests never hold more than `queued.max.request.bytes`. In the end nothing is left: rude clients that stay are
disconnected, those that left are forgotten, and all memory is given back.
"""

from __future__ import annotations

import asyncio
import struct
from random import Random
from typing import Final

from tests.kit.requests import fetch_request, produce_request
from tests.simulation.fault_plan import FaultPlan

from odradek.broker.app import Broker
from odradek.config.loading import load_broker_config
from odradek.net.server import Server
from odradek.protocol import RequestHeader, encode_request
from odradek.protocol.messages.data.fetch import FetchRequest
from odradek.protocol.messages.data.produce import ProduceRequest, ProduceResponse
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.topics.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.wire_client import WireClient
from odradek.testing.sim.world import Host, World

PORT: Final = 9092
TOPIC: Final = "topic"
_MEBIBYTE: Final = 1 << 20
FRAME_BYTES_MAX: Final = 3 * _MEBIBYTE
REQUEST_BYTES_MAX: Final = 6 * _MEBIBYTE
_SETTINGS: Final = {
    "listeners": f"PLAINTEXT://0.0.0.0:{PORT}",
    "log.dirs": "/data",
    "auto.create.topics.enable": "false",
    "socket.request.max.bytes": str(FRAME_BYTES_MAX),
    "queued.max.request.bytes": str(REQUEST_BYTES_MAX),
    "queued.max.response.bytes": str(2 * _MEBIBYTE),
    "connections.max.idle.ms": "60000",
}
_ANSWER_S_MAX: Final = 120.0
_GONE_S_MAX: Final = 20.0
"""So soon a client that left is forgotten."""
_QUIET_S: Final = 240.0
"""So soon every rude client is disconnected that stays: the time for which connections may be idle, four times."""
_WAIT_MS: Final = 600_000
_LONG_NAME: Final = "x" * 30_000


class _Rude(asyncio.Protocol):
    """A connection that does one rude thing. It may never read."""

    def __init__(self, *, reads: bool) -> None:
        self._reads = reads
        self.transport: asyncio.Transport | None = None
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if not self._reads:
            transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


class RudeScenario:
    """One run in a world."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._rng = stream(seed, "rude scenario")
        self._host: Host = world.host("broker")
        self._clients = [world.host(f"client-{number}") for number in range(2)]
        self._server: Server | None = None

    async def run(self) -> None:
        """Raises `ViolationError` when a promise was broken."""
        self._host.boot()
        for client in self._clients:
            client.boot()
        broker = await self._host.spawn(self._start())
        server = self._server = broker.server
        await self._anyone().spawn(_create_topic())
        watching = asyncio.create_task(self._watch(server), name="watch")
        rude = [
            self._anyone().spawn(self._be_rude(stream(number, f"rude {self._rng.random()}")))
            for number in range(self._rng.randint(4, 12))
        ]
        await asyncio.sleep(self._rng.uniform(0.0, 3.0))
        await asyncio.gather(
            *(
                self._anyone().spawn(self._be_polite(stream(number, f"polite {self._rng.random()}")))
                for number in range(3)
            )
        )
        await asyncio.sleep(_QUIET_S)
        watching.cancel()
        self._check_nothing_is_left(server)
        await asyncio.gather(*rude)
        await self._host.spawn(broker.stop())

    async def _start(self) -> Broker:
        config, _ = load_broker_config(_SETTINGS)
        broker = Broker(config, self._host.life.runtime)
        await broker.start()
        return broker

    def _anyone(self) -> Host:
        return self._rng.choice(self._clients)

    async def _watch(self, server: Server) -> None:
        while True:
            held_bytes = server.requests.counters.peak_bytes
            if held_bytes > REQUEST_BYTES_MAX:
                raise ViolationError(f"large requests held {held_bytes} bytes")
            await asyncio.sleep(0.5)

    def _check_nothing_is_left(self, server: Server) -> None:
        left = {
            "connections": server.connection_count,
            "bytes of requests": server.requests.held_bytes,
            "frames that wait": server.requests.waiting_count,
            "bytes of answers": server.answers.held_bytes,
        }
        if any(left.values()):
            raise ViolationError(f"the rude clients left something behind: {left}")
        if server.requests.counters.peak_bytes > REQUEST_BYTES_MAX:
            raise ViolationError(f"large requests held {server.requests.counters.peak_bytes} bytes")

    # -- polite

    async def _be_polite(self, rng: Random) -> None:
        try:
            client = await WireClient.connect("broker", PORT, api_timeout_s=_ANSWER_S_MAX)
            for _ in range(rng.randint(2, 6)):
                await client.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
                size = rng.choice((100, 100_000, _MEBIBYTE, FRAME_BYTES_MAX - 1000))
                await client.call(_large_request(size), 7, ProduceResponse)
                await asyncio.sleep(rng.uniform(0.0, 2.0))
            client.close()
        except TimeoutError:
            raise ViolationError(f"a polite client waited {_ANSWER_S_MAX:.0f} s for an answer") from None
        except ConnectionError as error:
            raise ViolationError(f"a polite client was disconnected: {error}") from error

    # -- rude

    async def _be_rude(self, rng: Random) -> None:
        await asyncio.sleep(rng.uniform(0.0, 2.0))
        kind = rng.choice(
            (self._stand_still, self._stand_still, self._trickle, self._leave, self._never_read)
        )
        _, rude = await asyncio.get_running_loop().create_connection(
            lambda: _Rude(reads=kind != self._never_read), "broker", PORT
        )
        assert rude.transport is not None
        await kind(rude, rude.transport, rng)

    async def _stand_still(self, rude: _Rude, transport: asyncio.Transport, rng: Random) -> None:
        """Stops in the middle of a large frame."""
        size = rng.randint(70_000, FRAME_BYTES_MAX)
        transport.write(struct.pack(">i", size) + bytes(rng.randint(0, size - 1)))

    async def _trickle(self, rude: _Rude, transport: asyncio.Transport, rng: Random) -> None:
        transport.write(struct.pack(">i", rng.choice((1000, FRAME_BYTES_MAX))))
        while not rude.is_lost:
            transport.write(b"\0")
            await asyncio.sleep(1.0)

    async def _leave(self, rude: _Rude, transport: asyncio.Transport, rng: Random) -> None:
        """While the broker holds a long poll, and does not read."""
        transport.write(encode_request(RequestHeader(1, 4, 1, "rude"), _long_poll()))
        await asyncio.sleep(rng.uniform(0.0, 3.0))
        address = transport.get_extra_info("sockname")
        transport.close()
        await asyncio.sleep(_GONE_S_MAX)
        assert self._server is not None
        if any(
            (connection.peer_host, connection.peer_port) == address for connection in self._server.connections
        ):
            raise ViolationError(
                f"{_GONE_S_MAX:.0f} s after a client left, the broker still holds its connection"
            )

    async def _never_read(self, rude: _Rude, transport: asyncio.Transport, rng: Random) -> None:
        names = [MetadataRequestTopic(name=_LONG_NAME)] * 2
        ask = encode_request(RequestHeader(3, 4, 1, "rude"), MetadataRequest(topics=names))
        for _ in range(40):
            if not rude.is_lost:
                transport.write(ask)
            await asyncio.sleep(rng.uniform(0.0, 0.2))


def _large_request(size_bytes: int) -> ProduceRequest:
    """Returns a large request to a topic that does not exist: it is refused in few words."""
    return produce_request("nowhere", bytes(size_bytes), acks=1, timeout_ms=10_000)


def _long_poll() -> FetchRequest:
    return fetch_request(TOPIC, 0, max_wait_ms=_WAIT_MS)


async def _create_topic() -> None:
    client = await WireClient.connect("broker", PORT)
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    await client.call(CreateTopicsRequest(topics=[topic]), 5, CreateTopicsResponse)
    client.close()


def run_rude(world: World, seed: int, plan: FaultPlan) -> None:
    """Run the scenario in a world of its own. The disk has no faults here."""
    world.run(RudeScenario(world, seed).run)
