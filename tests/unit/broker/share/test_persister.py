"""Who keeps a share group's state: here or elsewhere, in which order, and who is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.coordinators.runtime import CoordinatorRuntime, InternalTopic
from odradek.broker.handlers import Handlers
from odradek.broker.share.persister import UNREAD, SharePersister
from odradek.cluster.image import NO_LEADER, SHARE_GROUP_STATE, ClusterImage, PartitionImage, TopicImage
from odradek.config.broker import BrokerConfig
from odradek.config.server import ServerConfig
from odradek.groups.share.partition import RecordState, StateBatch
from odradek.groups.share.state import ShareState, ShareStates, StateChange, StateSettings, Summary
from odradek.groups.share.state_formats import SharePlace
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import BrokerId, LeaderEpoch
from odradek.protocol import APIS, Message, decode, encode
from odradek.records import assign, read_header
from odradek.runtime.real_clock import SystemClock
from odradek.runtime.turns import Turns
from odradek.shards import ShardLog

HERE, OTHER = BrokerId(1), BrokerId(2)
PLACE = SharePlace("g", UUID(int=7), 3)
DONE, FREE = RecordState.ACKNOWLEDGED, RecordState.AVAILABLE


class Log:
    """A shard's log in memory, durable at once."""

    name, leader_epoch, start_offset, batch_bytes_max = "log-0", 0, 0, 1_000_000

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.refusal: KafkaError | None = None

    def check_writable(self) -> None: ...

    def append(self, batch: bytearray, *, now_ms: int) -> int:
        if self.refusal is not None:
            raise self.refusal
        assign(memoryview(batch), self.end_offset, 0)
        self.batches.append(bytes(batch))
        self.end_offset += read_header(batch).last_offset_delta + 1
        return self.end_offset - 1

    def append_marker(self, *_: Any, **__: Any) -> int:
        raise AssertionError

    def committed(self, last_offset: int) -> None:
        return None

    def read(self, offset: int, max_bytes: int) -> tuple[bytes, int]:
        return b"", self.end_offset


class Broker:
    """One of two brokers; `other` keeps what this one does not."""

    def __init__(self, broker_id: BrokerId, leader: BrokerId) -> None:
        self.config = BrokerConfig(server=ServerConfig(node_id=broker_id))
        self.turns = Turns(SystemClock().monotonic)
        self.image = image(leader)
        self.coordinators = CoordinatorRuntime()
        parts: Any = self
        self.coordinators.begin(parts)
        topic = InternalTopic(name=SHARE_GROUP_STATE, partition_count=lambda _: 1)
        shards = self.coordinators.add(topic, lambda _: ShareStates(StateSettings), SystemClock())
        self.coordinators.expect(SHARE_GROUP_STATE, lambda: shards)
        self.keeper = SharePersister(self.coordinators, shards, lambda: None)
        self.log = Log()
        if broker_id == leader:
            log: ShardLog = self.log
            shards.elected(0, log)


def image(leader: BrokerId) -> ClusterImage:
    partition = PartitionImage(leader=leader, leader_epoch=LeaderEpoch(0), replicas=(leader,), isr=(leader,))
    empty = ClusterImage(
        version=0, cluster_id="c", controller_id=HERE, brokers=(), topics={}, topics_by_id={}
    )
    return empty.with_topic(TopicImage(name=SHARE_GROUP_STATE, topic_id=UUID(int=1), partitions=(partition,)))


class Wire:
    """Requests of one broker to the handlers of the other, through their bytes."""

    def __init__(self, other: Broker) -> None:
        self._other: Any = other
        self._handlers = Handlers()
        self.requests: list[int] = []
        self.held: asyncio.Event | None = None
        self.broken = False

    async def ask(
        self,
        broker: BrokerId,
        api_key: int,
        request: Message,
        *,
        timeout_s: float | None = None,
        lane: str = "",
    ) -> Message:
        assert broker == OTHER
        if self.broken:
            raise OdradekError("unreachable")
        api = APIS[api_key]
        version = api.versions.max
        arrived = decode(api.request, version, encode(request, version))[0]
        self.requests.append(api_key)
        if self.held is not None:
            await self.held.wait()
        circumstances: Any = SimpleNamespace(api_version=version)
        response: Any = self._handlers[api_key].handle(self._other, circumstances, arrived)
        return decode(api.response, version, encode(await response, version))[0]


class World:
    def __init__(self, *, remote: bool) -> None:
        self.kept_by = Broker(OTHER if remote else HERE, OTHER if remote else HERE)
        self.asking = Broker(HERE, OTHER) if remote else self.kept_by
        self.wire = Wire(self.kept_by)
        self.asking.coordinators.ask_peer = self.wire.ask
        self.keeper = self.asking.keeper

    async def begin(self, offset: int, *, epoch: int = 0, leader_epoch: int = 4) -> ShareState:
        await self.keeper.initialize(PLACE, epoch, offset)
        state = await self.keeper.read(PLACE, leader_epoch)
        assert state is not None
        return state

    async def write(self, start: int, *batches: StateBatch, epoch: int = 0, leader_epoch: int = 4) -> None:
        await self.keeper.write(PLACE, StateChange(epoch, leader_epoch, start, batches))

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


async def test_what_is_written_is_read_wherever_it_is_kept(world: World) -> None:
    assert await world.keeper.read(PLACE, 4) is None
    assert await world.keeper.summary(PLACE) == UNREAD
    state = await world.begin(10)
    assert (state.state_epoch, state.start_offset, state.batches) == (0, 10, ())
    await world.write(12, StateBatch(12, 14, DONE, 1), StateBatch(15, 15, FREE, 2))
    state = await world.keeper.read(PLACE, 4) or state
    assert (state.start_offset, state.batches) == (
        12,
        (StateBatch(12, 14, DONE, 1), StateBatch(15, 15, FREE, 2)),
    )
    assert await world.keeper.summary(PLACE) == Summary(0, 4, 12, 3)
    await world.keeper.delete(PLACE)
    assert await world.keeper.summary(PLACE) == UNREAD


async def test_a_leader_that_was_succeeded_neither_writes_nor_reads(world: World) -> None:
    await world.begin(0, leader_epoch=4)
    await world.keeper.read(PLACE, 5)
    assert await code_of(world.write(1, leader_epoch=4)) is ErrorCode.FENCED_LEADER_EPOCH
    assert await code_of(world.keeper.read(PLACE, 4)) is ErrorCode.FENCED_LEADER_EPOCH
    await world.write(1, leader_epoch=5)


async def test_who_only_looks_fences_nobody(world: World) -> None:
    await world.begin(0)
    await world.keeper.summary(PLACE)
    await world.write(1)


async def test_a_new_beginning_fences_who_read_the_old_one(world: World) -> None:
    await world.begin(0)
    await world.keeper.initialize(PLACE, 1, 40)
    assert await code_of(world.write(1)) is ErrorCode.FENCED_STATE_EPOCH
    assert await code_of(world.keeper.initialize(PLACE, 1, 50)) is ErrorCode.FENCED_STATE_EPOCH
    await world.keeper.initialize(PLACE, 1, 40)  # the same word, because its answer was lost
    assert await world.keeper.summary(PLACE) == Summary(1, 4, 40, 0)


async def test_a_write_that_was_overtaken_does_not_move_the_window_back(world: World) -> None:
    await world.begin(0)
    await world.write(8)
    assert await code_of(world.write(5)) is ErrorCode.FENCED_STATE_EPOCH


async def test_what_was_forgotten_is_not_written(world: World) -> None:
    await world.begin(0)
    await world.keeper.delete(PLACE)
    assert await code_of(world.write(1)) is ErrorCode.FENCED_STATE_EPOCH


async def test_a_log_that_refuses_is_told_to_the_writer(world: World) -> None:
    await world.begin(0)
    world.kept_by.log.refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    assert await code_of(world.write(1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_writes_are_kept_in_their_order_and_share_requests(apart: World) -> None:
    await apart.begin(0)
    other = PLACE._replace(partition=9)
    await apart.keeper.initialize(other, 0, 0)
    apart.wire.requests.clear()
    apart.wire.held = asyncio.Event()
    writes: list[Awaitable[None]] = []
    for offset in range(1, 6):
        writes.append(apart.keeper.write(PLACE, StateChange(0, 4, offset, ())))
        writes.append(apart.keeper.write(other, StateChange(0, 4, offset, ())))
        await asyncio.sleep(0)
    apart.wire.held.set()
    await asyncio.gather(*writes)
    assert len(apart.wire.requests) == 5, "one for both partitions, and the next when it is answered"
    assert (await apart.keeper.summary(PLACE)).start_offset == 5


async def test_what_is_read_includes_what_was_written_before(apart: World) -> None:
    await apart.begin(0)
    apart.wire.held = asyncio.Event()
    write = apart.keeper.write(PLACE, StateChange(0, 4, 7, ()))
    reading = asyncio.get_running_loop().create_task(apart.keeper.read(PLACE, 4))
    for _ in range(5):
        await asyncio.sleep(0)
    apart.wire.held.set()
    await write
    state = await reading
    assert state is not None
    assert state.start_offset == 7


async def test_a_keeper_out_of_reach_refuses_writes_and_is_waited_for_by_readers(apart: World) -> None:
    await apart.begin(0)
    apart.wire.broken = True
    assert await code_of(apart.write(1)) is ErrorCode.NETWORK_EXCEPTION
    reading = asyncio.get_running_loop().create_task(apart.keeper.read(PLACE, 4))
    await asyncio.sleep(0)
    apart.wire.broken = False
    assert await reading is not None


async def test_a_broker_that_keeps_nothing_says_so_when_it_is_asked(apart: World) -> None:
    apart.kept_by.coordinators.shards(SHARE_GROUP_STATE).resigned(0)
    assert await code_of(apart.write(1)) is ErrorCode.NOT_COORDINATOR


async def test_without_a_leader_a_write_is_refused_at_once(apart: World) -> None:
    apart.asking.image = image(NO_LEADER)
    with pytest.raises(KafkaError) as refused:
        apart.keeper.write(PLACE, StateChange(0, 4, 1, ()))
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
