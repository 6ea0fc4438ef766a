"""Brokers that ask each other over a bad network: dead peers, half-open connections, and the way back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator

import pytest

from odradek.model.ids import BrokerId
from odradek.net.connection import Connection
from odradek.net.listening import OpenListener, ServerLimits
from odradek.net.peers import Peers, PeerUnreachable
from odradek.net.replies import Reply
from odradek.net.server import Server
from odradek.protocol import APIS, api_by_name, decode_request_header, encode_response
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.metadata.api_versions import ApiVersion, ApiVersionsResponse
from odradek.testing.sim import Conditions, CrashKind, World

pytestmark = pytest.mark.sim
QUICK = Conditions(spike_rate=0.0, delay_s=(0.001, 0.01), give_up_s=600.0)
HEARTBEAT = api_by_name("Heartbeat").key
OTHER = BrokerId(2)
PORT = 9092


class Answering:
    """Answers ApiVersions and Heartbeat, unless it is `deaf`."""

    deaf = False

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        header, _ = decode_request_header(frame)
        if self.deaf:
            return None
        if header.api_key != 18:
            return encode_response(HEARTBEAT, header.api_version, header.correlation_id, HeartbeatResponse())
        listed = [
            ApiVersion(api_key=api.key, min_version=api.versions.min, max_version=api.versions.max)
            for api in APIS.values()
        ]
        return encode_response(
            18, header.api_version, header.correlation_id, ApiVersionsResponse(api_keys=listed)
        )


class Pair:
    """A broker that asks, and one that answers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.near, self.far = world.host("near"), world.host("far")
        self.near.boot()
        self.looked_up: list[float] = []
        chances = world_chances(world)
        self.peers = Peers(
            self._address,
            client_id="broker-1",
            now=world.loop.time,
            request_timeout_s=5.0,
            chance=lambda: next(chances),
        )
        self.answering = Answering()

    def _address(self, _: BrokerId) -> tuple[str, int]:
        self.looked_up.append(self.world.loop.time())
        return self.far.address, PORT

    async def serve(self) -> None:
        self.far.boot()
        server = Server(self.answering, ServerLimits(), now=self.world.loop.time)
        server.pipeline_of = lambda _: 0  # requests overlap
        await self.far.spawn(server.listen(OpenListener(name="PLAINTEXT"), "0.0.0.0", PORT))

    async def ask(self) -> PeerUnreachable | None:
        """The error of a heartbeat; None when it was answered."""

        async def asked() -> None:
            await self.peers.send(OTHER, HEARTBEAT, HeartbeatRequest(group_id="g"))

        try:
            await self.near.spawn(asked())
        except PeerUnreachable as error:
            return error
        return None


def world_chances(world: World) -> Iterator[float]:
    number = 0
    while True:
        number += 1
        yield (number * 0.618) % 1.0


def run(story: Callable[[Pair], Awaitable[None]], seed: int = 1) -> None:
    with World(seed, conditions=QUICK) as world:
        pair = Pair(world)

        async def body() -> None:
            await story(pair)
            await pair.near.spawn(pair.peers.close())

        world.run(body)


def test_attempts_at_a_dead_broker_come_at_growing_and_differing_intervals() -> None:
    async def story(pair: Pair) -> None:
        pair.far.boot()
        while len(pair.looked_up) < 10:
            error = await pair.ask()
            assert error is not None
            assert error.refused
        times = pair.looked_up
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert gaps[0] < 0.1
        assert 0.5 < max(gaps) < 1.6
        assert len({round(gap, 2) for gap in gaps[-4:]}) > 1

    run(story)


def test_who_asks_while_another_connects_shares_the_failure() -> None:
    async def story(pair: Pair) -> None:
        pair.far.boot()
        outcomes = await asyncio.gather(*(pair.ask() for _ in range(5)))
        assert all(error is not None and error.refused for error in outcomes)
        assert len(pair.looked_up) == 1

    run(story)


def test_a_peer_that_lost_its_power_is_given_up_at_the_deadline_and_found_again() -> None:
    """The connection stays half open: no one says that the other end is gone."""

    async def story(pair: Pair) -> None:
        await pair.serve()
        assert await pair.ask() is None
        pair.far.crash(CrashKind.POWER_LOSS)
        before = pair.world.loop.time()
        error = await pair.ask()
        assert error is not None
        assert not error.refused
        assert pair.world.loop.time() - before < 5.5
        await pair.serve()
        while await pair.ask() is not None:
            assert pair.world.loop.time() - before < 30.0

    run(story)


def test_a_peer_that_accepts_and_never_answers_is_paused_for_and_given_up() -> None:
    async def story(pair: Pair) -> None:
        pair.answering.deaf = True
        await pair.serve()
        before = pair.world.loop.time()
        error = await pair.ask()
        assert error is not None
        assert "could not be reached within 5 s" in str(error)
        assert pair.world.loop.time() - before < 5.5

    run(story)


@pytest.mark.parametrize("seed", range(10))
def test_whatever_the_network_does_each_question_ends(seed: int) -> None:
    async def story(pair: Pair) -> None:
        pair.world.network.conditions.reset_rate = 0.05
        await pair.serve()
        outcomes = [
            error for _ in range(10) for error in await asyncio.gather(*(pair.ask() for _ in range(5)))
        ]
        assert len(outcomes) == 50
        assert None in outcomes

    run(story, seed)
