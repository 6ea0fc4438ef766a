"""A share group's partition in memory: kept behind, thrown away when that fails, and of one leadership."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.sessions.share_sessions import ShareSessionKey
from odradek.broker.share.partitions import LivePartition, SharePartitions
from odradek.broker.share.state_store import UNREAD
from odradek.cluster.image import PartitionImage
from odradek.config.topic import LogConfig
from odradek.groups.share.partition import AcknowledgedRange, RecordState, StateBatch
from odradek.groups.share.settings import ShareSettings
from odradek.groups.share.state import ShareState, StateChange
from odradek.groups.share.state_formats import SharePartitionKey
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.protocol.acknowledge_types import AcknowledgeType
from odradek.records import BatchBuilder, split_batches
from odradek.replication.in_sync import IsrProposal
from odradek.replication.partition import Partition, ReplicationContext
from odradek.runtime.real import real_runtime
from odradek.storage.log.log import Log

ONE = BrokerId(1)
TOPIC = UUID(int=7)
PARTITION_KEY = SharePartitionKey("g", TOPIC, 0)
LOCK_MS = 30_000


class RecordingPersister:
    """Keeps what it gets, unless it is to refuse."""

    def __init__(self) -> None:
        self.state: ShareState | None = None
        self.changes: list[StateChange] = []
        self.reads: list[int] = []
        self.refuses_at_once: ErrorCode | None = None
        self.refuses_later: ErrorCode | None = None

    def write(self, partition_key: SharePartitionKey, change: StateChange) -> asyncio.Future[None]:
        if self.refuses_at_once is not None:
            raise KafkaError(self.refuses_at_once)
        self.changes.append(change)
        return asyncio.ensure_future(self._written(self.refuses_later))

    async def _written(self, refusal: ErrorCode | None) -> None:
        await asyncio.sleep(0)
        if refusal is not None:
            raise KafkaError(refusal)

    async def read(self, partition_key: SharePartitionKey, leader_epoch: int) -> ShareState | None:
        self.reads.append(leader_epoch)
        return self.state

    async def initialize(self, partition_key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        self.state = ShareState(state_epoch=state_epoch, leader_epoch=0, start_offset=start_offset)

    async def summary(self, partition_key: SharePartitionKey) -> Any:
        return UNREAD


class Idle:
    def request(self, partition: Partition) -> None: ...

    def propose(self, partition: Partition, proposal: IsrProposal) -> None: ...

    def on_close(self, close: Any) -> None: ...


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def wall_ms(self) -> int:
        return 1_700_000_000_000


class World:
    def __init__(self, directory: Path) -> None:
        name = TopicPartition("t", 0)
        log = Log.open(
            real_runtime(),
            str(directory / "t-0"),
            LogConfig(flush_before_ack=False),
            topic_partition=name,
            clean=True,
            recovery_point=0,
        )
        member = ReplicationContext(broker_id=ONE, lag_s_max=30.0, proposals=Idle())
        self.partition = Partition(name, TOPIC, log, LeaderEpoch(0), Idle(), member=member)
        self.lead(3)
        for _ in range(10):
            builder = BatchBuilder()
            builder.append(1, b"k", b"v")
            self.partition.leader().append(split_batches(builder.build()), now_ms=1)
        self.keeper = RecordingPersister()
        self.clock = Clock()
        outside: Any = self
        idle: Any = Idle()
        settings = ShareSettings(offset_reset="earliest")
        self.shares = SharePartitions(idle, outside, idle, lambda _: settings, self.clock, idle, idle)
        self.shares.keeper = self.keeper  # type: ignore[assignment, misc]

    def leader_by_id(self, topic_id: UUID, index: int) -> Partition:
        self.partition.check_leads()
        return self.partition

    def lead(self, epoch: int) -> None:
        state = PartitionImage(leader=ONE, leader_epoch=LeaderEpoch(epoch), replicas=(ONE,), isr=(ONE,))
        self.partition.lead(state, {ONE: 1}, now=0.0)

    def follow(self, epoch: int) -> None:
        two = BrokerId(2)
        self.partition.follow(
            PartitionImage(leader=two, leader_epoch=LeaderEpoch(epoch), replicas=(ONE, two), isr=(two,))
        )

    async def given(self, last_offset: int = 4) -> LivePartition:
        """All up to there acquired by member a."""
        live = await self.shares.get(PARTITION_KEY)
        live.core.acquire("a", 0, last_offset, records_max=100, now_ms=self.shares.now_ms())
        live.locked()
        return live


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    world.shares.close()
    await asyncio.sleep(0)


def said(first: int, last: int, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> list[AcknowledgedRange]:
    return [AcknowledgedRange(first, last, [kind])]


async def refused(work: Awaitable[Any] | None) -> ErrorCode:
    assert work is not None
    with pytest.raises(KafkaError) as error:
        await work
    return error.value.code


async def test_what_is_acknowledged_is_kept_in_the_name_of_its_leadership(world: World) -> None:
    live = await world.given()
    await (live.acknowledge("a", said(1, 2)) or asyncio.sleep(0))
    assert world.keeper.changes == [StateChange(0, 3, 0, [StateBatch(1, 2, RecordState.ACKNOWLEDGED, 1)])]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("code", "error_code"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_STATE_EPOCH),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
async def test_a_write_that_is_refused_throws_away_what_is_ahead_of_it(
    world: World, at_once: bool, code: ErrorCode, error_code: ErrorCode
) -> None:
    live = await world.given()
    woken: list[bool] = []
    live.watch(lambda: woken.append(live.is_dropped))
    if at_once:
        world.keeper.refuses_at_once = code
    else:
        world.keeper.refuses_later = code
    assert await refused(live.acknowledge("a", said(0, 4))) is error_code
    assert woken[-1], "a waiter for records looks again, and finds the one that is loaded again"
    world.keeper.refuses_at_once = world.keeper.refuses_later = None
    again = await world.shares.get(PARTITION_KEY)
    assert again is not live
    assert (again.core.start_offset, again.core.next_fetch_offset) == (0, 0)


async def test_a_refusal_that_no_one_waits_for_is_noticed_all_the_same(world: World) -> None:
    live = await world.given()
    world.keeper.refuses_later = ErrorCode.COORDINATOR_NOT_AVAILABLE
    live.acknowledge("a", said(0, 4))  # whose sender's connection is lost now
    for _ in range(3):
        await asyncio.sleep(0)
    assert live.is_dropped


async def test_a_late_refusal_leaves_the_successor_alone(world: World) -> None:
    live = await world.given()
    world.keeper.refuses_later = ErrorCode.COORDINATOR_NOT_AVAILABLE
    live.acknowledge("a", said(0, 4))
    world.shares.drop(PARTITION_KEY)
    world.keeper.refuses_later = None
    again = await world.shares.get(PARTITION_KEY)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not again.is_dropped


async def test_a_new_leadership_loads_again_and_the_old_memory_keeps_nothing(world: World) -> None:
    live = await world.given()
    world.follow(4)
    world.lead(5)
    assert await refused(live.acknowledge("a", said(0, 4))) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not world.keeper.changes
    again = await world.shares.get(PARTITION_KEY)
    assert again is not live
    assert world.keeper.reads == [3, 3, 5]


async def test_who_does_not_lead_shares_nothing(world: World) -> None:
    live = await world.given()
    world.follow(4)
    assert live.is_over
    assert await refused(world.shares.get(PARTITION_KEY)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_leadership_that_ends_while_it_loads_shares_nothing(world: World) -> None:
    read = world.keeper.read

    async def read_slowly(partition_key: SharePartitionKey, leader_epoch: int) -> ShareState | None:
        share_state = await read(partition_key, leader_epoch)
        world.lead(4)
        return share_state

    world.keeper.read = read_slowly  # type: ignore[method-assign]
    assert await refused(world.shares.get(PARTITION_KEY)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_who_gives_up_waiting_for_a_load_leaves_it_to_the_others(world: World) -> None:
    loop = asyncio.get_running_loop()
    first, second = (
        loop.create_task(world.shares.get(PARTITION_KEY)),
        loop.create_task(world.shares.get(PARTITION_KEY)),
    )
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).core.start_offset == 0


async def test_waiters_for_a_load_hear_that_the_broker_stops(world: World) -> None:
    begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def read(partition_key: SharePartitionKey, leader_epoch: int) -> ShareState | None:
        begun.set_result(None)
        return await asyncio.get_running_loop().create_future()

    world.keeper.read = read  # type: ignore[method-assign]
    waiting = asyncio.ensure_future(world.shares.get(PARTITION_KEY))
    await begun
    world.shares.close()
    with pytest.raises(KafkaError) as refused:
        await waiting
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_what_no_one_reads_any_more_is_forgotten(world: World) -> None:
    live = await world.given()
    connection: Any = object()
    world.shares.sessions.open(ShareSessionKey("g", "b"), connection, 10)
    world.shares.drop_unread("g")
    assert not live.is_dropped
    world.shares.sessions.close(ShareSessionKey("g", "b"))
    world.shares.drop_unread("g")
    assert live.is_dropped


async def test_locks_end_by_time_and_what_they_held_comes_back(world: World) -> None:
    live = await world.given()
    world.clock.seconds += LOCK_MS / 1000 + 1
    live.expire()
    assert live.core.next_fetch_offset == 0
    assert world.keeper.changes[0].batches == [StateBatch(0, 4, RecordState.AVAILABLE, 1)]
