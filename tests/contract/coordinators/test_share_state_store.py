"""What every `ShareStateStore` does: the one over this broker's shards, and the one that asks another broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.contract.coordinators.brokers import OTHER, TOPIC_ID, PeerRequests, ShareBroker, handlers_of

from odradek.broker.share.remote_state import RemoteShareState
from odradek.broker.share.state_store import UNREAD, LocalShareState, ShareStateStore
from odradek.groups.share.partition import RecordState, StateBatch
from odradek.groups.share.state import ShareState, StateChange, Summary
from odradek.groups.share.state_formats import SharePartitionKey
from odradek.model.errors import ErrorCode, KafkaError
from odradek.shards.shard import ShardState

PARTITION_KEY = SharePartitionKey("g", TOPIC_ID, 3)
DONE, FREE = RecordState.ACKNOWLEDGED, RecordState.AVAILABLE


class World:
    """A store, and the broker that does its work."""

    def __init__(self, broker: ShareBroker, store: ShareStateStore) -> None:
        self.broker = broker
        self.store = store

    async def begin(self, offset: int, *, epoch: int = 0, leader_epoch: int = 4) -> ShareState:
        await self.store.initialize(PARTITION_KEY, epoch, offset)
        state = await self.store.read(PARTITION_KEY, leader_epoch)
        assert state is not None
        return state

    async def write(self, start: int, *batches: StateBatch, epoch: int = 0, leader_epoch: int = 4) -> None:
        await self.store.write(PARTITION_KEY, StateChange(epoch, leader_epoch, start, batches))


@pytest.fixture(params=["local", "remote"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    broker = ShareBroker(OTHER, OTHER)
    remote = RemoteShareState(lambda: PeerRequests({OTHER: handlers_of(broker)}).ask)
    while broker.shards.shard(0).state is not ShardState.ACTIVE:
        await asyncio.sleep(0)
    yield World(broker, LocalShareState(broker.shards) if request.param == "local" else remote.at(OTHER))
    remote.close()
    broker.coordinators.close()


async def code_of(work: Callable[[], Awaitable[Any]]) -> ErrorCode:
    """Returns the code of the refusal, which comes at once or when the work is awaited."""
    with pytest.raises(KafkaError) as refused:
        await work()
    return refused.value.code


async def test_what_is_written_is_read_wherever_it_is_kept(world: World) -> None:
    assert await world.store.read(PARTITION_KEY, 4) is None
    assert await world.store.summary(PARTITION_KEY) == UNREAD
    state = await world.begin(10)
    assert (state.state_epoch, state.start_offset, state.batches) == (0, 10, ())
    await world.write(12, StateBatch(12, 14, DONE, 1), StateBatch(15, 15, FREE, 2))
    state = await world.store.read(PARTITION_KEY, 4) or state
    assert (state.start_offset, state.batches) == (
        12,
        (StateBatch(12, 14, DONE, 1), StateBatch(15, 15, FREE, 2)),
    )
    assert await world.store.summary(PARTITION_KEY) == Summary(0, 4, 12, 3)
    await world.store.delete(PARTITION_KEY)
    assert await world.store.summary(PARTITION_KEY) == UNREAD


async def test_a_leader_that_was_succeeded_neither_writes_nor_reads(world: World) -> None:
    await world.begin(0, leader_epoch=4)
    await world.store.read(PARTITION_KEY, 5)
    assert await code_of(lambda: world.write(1, leader_epoch=4)) is ErrorCode.FENCED_LEADER_EPOCH
    assert await code_of(lambda: world.store.read(PARTITION_KEY, 4)) is ErrorCode.FENCED_LEADER_EPOCH
    await world.write(1, leader_epoch=5)


async def test_a_look_at_the_state_fences_no_leader(world: World) -> None:
    await world.begin(0)
    assert await world.store.summary(PARTITION_KEY) == Summary(0, 4, 0, 0)
    await world.write(1)
    assert await world.store.summary(PARTITION_KEY) == Summary(0, 4, 1, 0)


async def test_a_new_beginning_fences_who_read_the_old_one(world: World) -> None:
    await world.begin(0)
    await world.store.initialize(PARTITION_KEY, 1, 40)
    assert await code_of(lambda: world.write(1)) is ErrorCode.FENCED_STATE_EPOCH
    assert await code_of(lambda: world.store.initialize(PARTITION_KEY, 1, 50)) is ErrorCode.FENCED_STATE_EPOCH
    await world.store.initialize(PARTITION_KEY, 1, 40)  # the same word, because its answer was lost
    assert await world.store.summary(PARTITION_KEY) == Summary(1, 4, 40, 0)


async def test_a_write_that_was_overtaken_does_not_move_the_window_back(world: World) -> None:
    await world.begin(0)
    await world.write(8)
    assert await code_of(lambda: world.write(5)) is ErrorCode.FENCED_STATE_EPOCH


async def test_what_was_forgotten_is_not_written(world: World) -> None:
    await world.begin(0)
    await world.store.delete(PARTITION_KEY)
    assert await code_of(lambda: world.write(1)) is ErrorCode.FENCED_STATE_EPOCH


async def test_the_writer_hears_that_the_log_refuses(world: World) -> None:
    await world.begin(0)
    world.broker.log.refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    assert await code_of(lambda: world.write(1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_broker_that_keeps_nothing_refuses(world: World) -> None:
    world.broker.shards.resigned(0)
    assert await code_of(lambda: world.write(1)) is ErrorCode.NOT_COORDINATOR
    assert await code_of(lambda: world.store.read(PARTITION_KEY, 4)) is ErrorCode.NOT_COORDINATOR


async def test_writes_are_begun_at_once_and_keep_their_order(world: World) -> None:
    await world.begin(0)
    writes = [world.store.write(PARTITION_KEY, StateChange(0, 4, offset, ())) for offset in range(1, 6)]
    await asyncio.gather(*writes)
    assert (await world.store.summary(PARTITION_KEY)).start_offset == 5


async def test_what_is_read_includes_what_was_written_before(world: World) -> None:
    await world.begin(0)
    write = world.store.write(PARTITION_KEY, StateChange(0, 4, 7, ()))
    state = await world.store.read(PARTITION_KEY, 4)
    assert state is not None
    assert state.start_offset == 7
    await write
