"""A led partition on a real log: when acknowledgements come, what readers see, and who hears of it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.cluster.image import PartitionImage
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.records import BatchBuilder, BatchHeader, split_batches
from odradek.replication.flusher import Flusher
from odradek.replication.partition import Partition
from odradek.runtime.real import real_runtime
from odradek.storage.log.log import Log
from odradek.testing.guarded_disk import off_loop

NAME = TopicPartition("t", 0)


class HeldOffload:
    """Runs work when the test says so; so that a test decides what happens while a flush is under way."""

    def __init__(self) -> None:
        self.waiting: list[tuple[asyncio.Future[Any], Callable[..., Any], tuple[object, ...]]] = []
        self.runs = 0

    async def run(self, work: Callable[..., Any], *arguments: object) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append((future, work, arguments))
        return await future

    def submit(
        self, done: Callable[[Any, BaseException | None], None], work: Any, *arguments: object
    ) -> None:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append((future, work, arguments))

        def tell(ended: asyncio.Future[Any]) -> None:
            error = asyncio.CancelledError() if ended.cancelled() else ended.exception()
            done(None if error else ended.result(), error)

        future.add_done_callback(tell)

    async def release(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        for future, work, arguments in self.waiting:
            self.runs += 1
            with off_loop():
                future.set_result(work(*arguments))
        self.waiting.clear()
        for _ in range(5):
            await asyncio.sleep(0)


class RecordingWatcher:
    """A watcher that remembers the high watermarks that it heard."""

    def __init__(self) -> None:
        self.marks: list[int] = []
        self.added_bytes = 0
        self.ends = 0

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        self.marks.append(partition.high_watermark)
        self.added_bytes += added_bytes

    def ended(self, partition: Partition) -> None:
        self.ends += 1


def batches(count: int = 1, **producer: Any) -> list[tuple[BatchHeader, memoryview]]:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(1_700_000_000_000 + number, b"k", b"v")
    return split_batches(builder.build(**producer))


class World:
    def __init__(self, directory: Path, config: LogConfig) -> None:
        self.offload = HeldOffload()
        self.failures: list[tuple[Partition, OSError]] = []
        self.flusher = Flusher(
            self.offload, lambda partition, error: self.failures.append((partition, error))
        )
        self.log = Log.open(
            real_runtime(),
            str(directory / "t-0"),
            config,
            topic_partition=NAME,
            clean=True,
            recovery_point=0,
        )
        self.partition = Partition(NAME, UUID(int=1), self.log, LeaderEpoch(0), self.flusher)

    def append(self, count: int = 1, **producer: Any) -> int:
        return (
            self.partition.leader().append(batches(count, **producer), now_ms=1_700_000_000_000).last_offset
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, LogConfig())


async def test_an_acknowledgement_waits_for_the_flush_and_readers_wait_with_it(world: World) -> None:
    last = world.append(3)
    future = world.partition.leader().acknowledgement(last)
    assert future is not None
    assert not future.done()
    assert world.partition.high_watermark == 0
    await world.offload.release()
    assert future.done()
    assert world.partition.high_watermark == 3
    assert world.partition.leader().acknowledgement(last) is None


async def test_appends_made_while_a_flush_is_under_way_share_the_next_one(world: World) -> None:
    first = world.partition.leader().acknowledgement(world.append())
    assert first is not None
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(world.offload.waiting) == 1
    later = [world.partition.leader().acknowledgement(world.append()) for _ in range(10)]
    await world.offload.release()
    assert first.done()
    assert not any(future is None or future.done() for future in later)
    await world.offload.release()
    assert all(future is not None and future.done() for future in later)
    assert world.offload.runs == 2


async def test_a_duplicate_of_a_batch_that_is_not_durable_yet_waits_like_the_original(world: World) -> None:
    world.append(producer_id=7, producer_epoch=0, base_sequence=0)
    again = world.partition.leader().append(
        batches(producer_id=7, producer_epoch=0, base_sequence=0), now_ms=1_700_000_000_000
    )
    assert again.duplicate
    assert again.first_offset == 0
    future = world.partition.leader().acknowledgement(again.last_offset)
    assert future is not None
    await world.offload.release()
    assert future.done()


async def test_without_flush_before_ack_the_high_watermark_is_the_end_of_the_log(tmp_path: Path) -> None:
    world = World(tmp_path, replace(LogConfig(), flush_before_ack=False))
    last = world.append(2)
    assert world.partition.leader().acknowledgement(last) is None
    assert world.partition.high_watermark == 2


async def test_watchers_hear_of_every_move_and_of_the_end(world: World) -> None:
    seen = RecordingWatcher()
    world.partition.watch(seen)
    world.append(2)
    assert seen.marks == []
    await world.offload.release()
    assert seen.marks == [2]
    assert seen.added_bytes == world.log.size_bytes
    world.partition.retire(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert seen.ends == 1
    world.partition.unwatch(seen)


async def test_a_retired_partition_keeps_nothing_of_those_who_asked(world: World) -> None:
    world.partition.retire(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk broke"))
    for ask in (world.partition.check_leads, world.partition.when_durable, world.partition.follower):
        frames = set()
        for _ in range(3):
            with pytest.raises(KafkaError, match="the disk broke") as refused:
                ask()
            frames.add(len(refused.traceback))
        assert len(frames) == 1, "each error has the frames of its own call alone"


async def test_a_retired_partition_fails_those_who_wait_and_refuses_those_who_come(world: World) -> None:
    future = world.partition.leader().acknowledgement(world.append())
    assert future is not None
    world.partition.retire(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    with pytest.raises(KafkaError) as refused:
        await future
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):
        world.append()
    await world.offload.release()
    assert world.partition.high_watermark == 0


async def test_a_flush_that_fails_is_reported_and_acknowledges_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    future = world.partition.leader().acknowledgement(world.append())
    assert future is not None
    error = OSError(5, "Input/output error")

    def broken(_: object) -> None:
        raise error

    monkeypatch.setattr("odradek.storage.log.durability.FlushJob.run", broken)
    await world.offload.release()
    assert world.failures == [(world.partition, error)]
    assert not future.done()
    assert world.partition.high_watermark == 0


@pytest.mark.parametrize(
    ("epoch", "code"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
async def test_a_request_of_another_leader_epoch_is_fenced(world: World, epoch: int, code: ErrorCode) -> None:
    me = BrokerId(1)
    state = PartitionImage(
        leader=me, leader_epoch=LeaderEpoch(5), isr=(me,), partition_epoch=1, replicas=(me,)
    )
    world.partition.lead(state, {}, 0.0)
    world.partition.check_leader_epoch(5)
    world.partition.check_leader_epoch(-1)
    with pytest.raises(KafkaError) as refused:
        world.partition.check_leader_epoch(epoch)
    assert refused.value.code is code


async def test_watchers_hear_of_bytes_when_they_can_be_read_and_not_before(world: World) -> None:
    early = RecordingWatcher()
    world.partition.watch(early)
    world.append()
    for _ in range(3):
        await asyncio.sleep(0)
    first_bytes = world.log.size_bytes
    world.append()  # its flush is the next one
    await world.offload.release()
    assert (early.marks, early.added_bytes) == ([1], first_bytes)
    late = RecordingWatcher()
    world.partition.watch(late)
    await world.offload.release()
    assert (late.marks, late.added_bytes) == ([2], world.log.size_bytes - first_bytes)


class Failing:
    """A watcher with a bug."""

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        raise RuntimeError("a bug")

    def ended(self, partition: Partition) -> None:
        raise RuntimeError("another bug")


async def test_a_watcher_that_fails_harms_neither_the_flusher_nor_the_others(world: World) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    seen = RecordingWatcher()
    world.partition.watch(Failing())
    world.partition.watch(seen)
    world.append()
    await world.offload.release()
    assert seen.marks == [1]
    last = world.append()
    future = world.partition.leader().acknowledgement(last)
    assert future is not None
    await world.offload.release()
    assert future.done()
    assert [str(context["exception"]) for context in reported] == ["a bug", "a bug"]


async def test_partitions_of_one_share_are_flushed_again_whatever_became_of_the_others(
    world: World, tmp_path: Path
) -> None:
    other = World(tmp_path / "other", LogConfig())
    partition = Partition(NAME, UUID(int=2), other.log, LeaderEpoch(0), world.flusher)

    def fail(_: Partition, __: OSError) -> None:
        raise RuntimeError("a bug in what handles failures")

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    world.flusher.on_failure = fail
    world.append()
    partition.leader().append(batches(), now_ms=1_700_000_000_000)
    for _ in range(3):
        await asyncio.sleep(0)
    [(future, _, _)] = world.offload.waiting
    world.offload.waiting.clear()
    future.set_result([OSError("a disk error"), None])
    for _ in range(5):
        await asyncio.sleep(0)
    partition.leader().append(batches(), now_ms=1_700_000_000_000)
    await world.offload.release()
    assert partition.high_watermark == 2


# -- transactions


def mark(world: World, producer_id: int, *, commit: bool = True) -> int:
    return (
        world.partition.leader()
        .append_marker(
            producer_id,
            0,
            is_commit=commit,
            coordinator_epoch=0,
            transaction_version=1,
            now_ms=1_700_000_000_000,
        )
        .last_offset
    )


def transact(world: World, producer_id: int, sequence: int = 0) -> int:
    return world.append(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)


async def test_the_last_stable_offset_waits_for_the_marker_to_be_durable(world: World) -> None:
    partition = world.partition
    world.append()
    transact(world, 7)
    await world.offload.release()
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 1)
    assert partition.ongoing_transaction(7) == 1
    mark(world, 7)
    assert partition.ongoing_transaction(7) is None
    assert partition.last_stable_offset == 1, "the marker may still be lost"
    await world.offload.release()
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)


async def test_waiters_for_committed_records_hear_when_they_are_and_of_how_many_bytes(
    world: World,
) -> None:
    committed, everything = RecordingWatcher(), RecordingWatcher()
    transact(world, 7)
    first_bytes = world.log.size_bytes
    await world.offload.release()
    world.partition.watch(committed, committed_only=True)
    world.partition.watch(everything)
    transact(world, 8)
    world.append()
    await world.offload.release()
    transact(world, 7, 1)
    await world.offload.release()
    assert committed.marks == []
    assert everything.marks == [3, 4]
    mark(world, 7)
    await world.offload.release()
    assert committed.marks == [5]
    assert committed.added_bytes == first_bytes, "up to where the other transaction begins"
    mark(world, 8, commit=False)
    await world.offload.release()
    assert committed.marks == [5, 6]
    assert committed.added_bytes == world.log.size_bytes


async def test_who_waits_for_committed_records_hears_of_the_partitions_end(world: World) -> None:
    committed = RecordingWatcher()
    transact(world, 7)
    world.partition.watch(committed, committed_only=True)
    world.partition.retire(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone"))
    assert committed.ends == 1
    world.partition.unwatch(committed)


async def test_a_marker_wakes_who_waits_for_its_acknowledgement(world: World) -> None:
    transact(world, 7)
    future = world.partition.leader().acknowledgement(mark(world, 7))
    assert future is not None
    await world.offload.release()
    assert future.done()


async def test_a_refused_marker_leaves_no_trace(world: World) -> None:
    world.append(producer_id=7, producer_epoch=3, base_sequence=0, transactional=True)
    with pytest.raises(KafkaError) as refused:
        mark(world, 7)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.log.end_offset == 1
