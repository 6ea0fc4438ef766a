"""Who keeps a share group's state: here or elsewhere, in which order, and whom its leader waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
from tests.contract.coordinators.brokers import (
    HERE,
    OTHER,
    TOPIC_ID,
    PeerRequests,
    ShareBroker,
    handlers_of,
    image,
)

from odradek.broker.share.state_store import UNREAD
from odradek.cluster.image import NO_LEADER
from odradek.groups.share.state import ShareState, StateChange
from odradek.groups.share.state_formats import SharePartitionKey
from odradek.model.errors import ErrorCode, KafkaError

PARTITION_KEY = SharePartitionKey("g", TOPIC_ID, 3)


class World:
    def __init__(self, *, remote: bool) -> None:
        self.kept_by = ShareBroker(OTHER if remote else HERE, OTHER if remote else HERE)
        self.asking = ShareBroker(HERE, OTHER) if remote else self.kept_by
        self.peers = PeerRequests({OTHER: handlers_of(self.kept_by)})
        self.asking.coordinators.send_to_peer = self.peers.ask
        self.keeper = self.asking.keeper

    async def begin(self, offset: int, *, epoch: int = 0, leader_epoch: int = 4) -> ShareState:
        await self.keeper.initialize(PARTITION_KEY, epoch, offset)
        state = await self.keeper.read(PARTITION_KEY, leader_epoch)
        assert state is not None
        return state

    async def write(self, start: int) -> None:
        await self.keeper.write(PARTITION_KEY, StateChange(0, 4, start, ()))

    def close(self) -> None:
        self.asking.coordinators.close()
        self.kept_by.coordinators.close()


@pytest.fixture(params=["here", "elsewhere"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    world = World(remote=request.param == "elsewhere")
    yield world
    world.close()


@pytest.fixture
async def apart() -> AsyncIterator[World]:
    world = World(remote=True)
    yield world
    world.close()


async def code_of(work: Awaitable[Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await work
    return refused.value.code


async def test_the_leader_of_the_shard_keeps_the_state(world: World) -> None:
    state = await world.begin(10)
    await world.write(12)
    assert (state.start_offset, (await world.keeper.summary(PARTITION_KEY)).start_offset) == (10, 12)
    assert world.kept_by.log.batches
    assert bool(world.peers.requests) == (world.asking is not world.kept_by)
    await world.keeper.delete(PARTITION_KEY)
    assert await world.keeper.summary(PARTITION_KEY) == UNREAD


async def test_writes_are_kept_in_their_order_and_share_requests(apart: World) -> None:
    await apart.begin(0)
    other = PARTITION_KEY._replace(partition=9)
    await apart.keeper.initialize(other, 0, 0)
    apart.peers.requests.clear()
    apart.peers.held = asyncio.Event()
    writes: list[Awaitable[None]] = []
    for offset in range(1, 6):
        writes.append(apart.keeper.write(PARTITION_KEY, StateChange(0, 4, offset, ())))
        writes.append(apart.keeper.write(other, StateChange(0, 4, offset, ())))
        await asyncio.sleep(0)
    apart.peers.held.set()
    await asyncio.gather(*writes)
    assert len(apart.peers.requests) == 5, "one for both partitions, and the next when it is answered"
    assert (await apart.keeper.summary(PARTITION_KEY)).start_offset == 5


async def test_what_is_read_includes_what_was_written_before(apart: World) -> None:
    await apart.begin(0)
    apart.peers.held = asyncio.Event()
    write = apart.keeper.write(PARTITION_KEY, StateChange(0, 4, 7, ()))
    reading = asyncio.get_running_loop().create_task(apart.keeper.read(PARTITION_KEY, 4))
    for _ in range(5):
        await asyncio.sleep(0)
    apart.peers.held.set()
    await write
    state = await reading
    assert state is not None
    assert state.start_offset == 7


async def test_a_keeper_out_of_reach_refuses_writes_and_is_waited_for_by_readers(apart: World) -> None:
    await apart.begin(0)
    serve = apart.peers.handlers.pop(OTHER)
    assert await code_of(apart.write(1)) is ErrorCode.NETWORK_EXCEPTION
    reading = asyncio.get_running_loop().create_task(apart.keeper.read(PARTITION_KEY, 4))
    await asyncio.sleep(0)
    apart.peers.handlers[OTHER] = serve
    assert await reading is not None


async def test_a_broker_that_keeps_nothing_says_so_when_it_is_asked(apart: World) -> None:
    apart.kept_by.shards.resigned(0)
    assert await code_of(apart.write(1)) is ErrorCode.NOT_COORDINATOR


async def test_without_a_leader_a_write_is_refused_at_once(apart: World) -> None:
    apart.asking.image = image(NO_LEADER)
    with pytest.raises(KafkaError) as refused:
        apart.keeper.write(PARTITION_KEY, StateChange(0, 4, 1, ()))
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
