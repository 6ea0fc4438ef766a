"""A broker whose connection broke: it is dead if nothing listens at its address, for a while, and in that life only."""

import asyncio
import selectors
import socket
from collections.abc import AsyncIterator

import pytest
from tests.kit.waiting import PATIENCE_S

from odradek.broker.cluster import failure_detector
from odradek.broker.cluster.failure_detector import FailureDetector
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId

OTHER = BrokerId(2)


class World:
    def __init__(self) -> None:
        self.time = 100.0
        self.epoch: int | None = 7
        self.address: tuple[str, int] | None = None
        self.fenced: list[tuple[BrokerId, int]] = []
        self.looked = asyncio.Event()
        self.refusal: KafkaError | None = None
        self.suspicion = FailureDetector(
            lambda _: self.address, lambda _: self.epoch, self._fence, self.looked.set, lambda: self.time
        )

    async def _fence(self, broker: BrokerId, epoch: int) -> None:
        self.fenced.append((broker, epoch))
        if self.refusal is not None:
            raise self.refusal

    async def look(self) -> None:
        self.looked.clear()
        self.suspicion.connection_lost(OTHER, 7)
        async with asyncio.timeout(PATIENCE_S):
            await self.looked.wait()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.suspicion.close()


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_who_refuses_connections_is_dead_and_fenced(world: World, closed_port: int) -> None:
    world.address = "127.0.0.1", closed_port
    await world.look()
    assert world.suspicion.dead() == {OTHER}
    assert world.fenced == [(OTHER, 7)]


async def test_who_listens_is_not(world: World) -> None:
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0) as server:
        world.address = server.sockets[0].getsockname()
        await world.look()
        assert world.suspicion.dead() == frozenset()
        assert world.fenced == []
        assert world.suspicion.undecided_for() == 0


async def test_who_listens_and_takes_the_connection_is_not_either(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        world.address = listener.getsockname()
        await world.look()
    assert world.suspicion.dead() == frozenset()


async def test_who_still_listens_while_it_is_being_killed_is_dead(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_detector, "STAYS_SECONDS", 60.0)
    listener = socket.create_server(("127.0.0.1", 0))
    world.address = listener.getsockname()
    looking = asyncio.create_task(world.look())
    with selectors.DefaultSelector() as waiting:
        waiting.register(listener, selectors.EVENT_READ)
        assert await asyncio.to_thread(waiting.select, 60)  # someone knocks
    listener.close()
    await looking
    assert world.suspicion.dead() == {OTHER}


async def test_a_firewall_that_only_brokers_see_hides_a_leader_for_a_while_only(
    world: World, closed_port: int
) -> None:
    world.address = "127.0.0.1", closed_port
    world.refusal = KafkaError(ErrorCode.STALE_BROKER_EPOCH, "not fenced")
    await world.look()
    world.time += 60
    assert world.suspicion.dead() == frozenset()


async def test_its_next_life_is_not_dead(world: World, closed_port: int) -> None:
    world.address = "127.0.0.1", closed_port
    await world.look()
    world.epoch = 8
    assert world.suspicion.dead() == frozenset()
    world.epoch = None
    assert world.suspicion.dead() == frozenset()


async def test_answers_wait_for_the_look_and_then_for_the_election_but_not_long(
    world: World, closed_port: int
) -> None:
    world.address = "127.0.0.1", closed_port
    world.suspicion.connection_lost(OTHER, 7)
    assert 0 < world.suspicion.undecided_for() <= 1
    async with asyncio.timeout(PATIENCE_S):
        await world.looked.wait()
    assert world.suspicion.undecided_for() > 0
    world.time += 1
    assert world.suspicion.dead() == {OTHER}
    assert world.suspicion.undecided_for() == 0


async def test_answers_do_not_wait_once_the_image_knows_it(world: World, closed_port: int) -> None:
    world.address = "127.0.0.1", closed_port
    await world.look()
    world.epoch = None
    assert world.suspicion.undecided_for() == 0
