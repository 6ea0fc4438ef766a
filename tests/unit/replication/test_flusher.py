"""The flusher with `FileSyncs`: acknowledgements, several partitions in one group, and what still needs a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from odradek.config.topic import LogConfig
from odradek.model.ids import LeaderEpoch, TopicPartition
from odradek.records import BatchBuilder, split_batches
from odradek.replication.flusher import Flusher
from odradek.replication.partition import Partition
from odradek.runtime.ports import DiskFile, Runtime, SyncGroup
from odradek.runtime.real import ThreadOffload, real_runtime
from odradek.runtime.real_syncs import thread_syncs
from odradek.storage.log.log import FlushJob, Log
from odradek.storage.log.results import AppendResult

pytestmark = pytest.mark.skipif(
    thread_syncs(1) is None, reason="absent: the threads that sync files are built on Linux with a C compiler"
)

_ROUNDS_UNTIL_A_SYNC: Final = 12
"""Rounds of the loop after which an append's sync has begun; the flusher waits at most eight for company."""


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    runtime = real_runtime(threads=2)
    yield runtime
    assert isinstance(runtime.offload, ThreadOffload)
    assert runtime.file_syncs is not None
    runtime.offload.close()
    runtime.file_syncs.close()


class HeldSync:
    """A sync that is over when the test says so."""

    def __init__(self, done: Callable[[SyncGroup], None]) -> None:
        self._done = done
        self.is_over = False

    def wait(self) -> None:
        assert self.is_over

    def error(self, index: int) -> OSError | None:
        return None

    def seconds(self, index: int) -> float:
        return 0.0

    def end(self) -> None:
        self.is_over = True
        self._done(self)


class HeldSyncs:
    """Syncs whose end the test decides: implements `FileSyncs`."""

    def __init__(self) -> None:
        self.begun: list[HeldSync] = []

    def begin(self, files: Sequence[DiskFile], done: Callable[[SyncGroup], None]) -> HeldSync:
        self.begun.append(HeldSync(done))
        return self.begun[-1]

    def close(self) -> None:
        assert all(sync.is_over for sync in self.begun)


class Bench:
    """Partitions on a real disk and their flusher."""

    def __init__(self, runtime: Runtime, directory: Path, count: int) -> None:
        self.failures: list[OSError] = []
        self.synced: list[Partition] = []
        self.flusher = Flusher(
            runtime.offload,
            lambda _, error: self.failures.append(error),
            syncs=runtime.file_syncs,
            now=runtime.clock.monotonic,
            on_synced=lambda partition, seconds: self.synced.append(partition),
        )
        self.partitions = [self._partition(runtime, directory, number) for number in range(count)]

    def _partition(self, runtime: Runtime, directory: Path, number: int) -> Partition:
        name = TopicPartition("t", number)
        log = Log.open(
            runtime,
            str(directory / f"t-{number}"),
            LogConfig(),
            topic_partition=name,
            clean=True,
            recovery_point=0,
        )
        return Partition(name, UUID(int=1), log, LeaderEpoch(0), self.flusher)

    async def acknowledged(self, partition: Partition) -> None:
        appended = _append(partition)
        future = partition.leader().acknowledgement(appended.last_offset)
        assert future is not None
        await asyncio.wait_for(future, 30)
        assert partition.high_watermark > appended.last_offset


def _append(partition: Partition) -> AppendResult:
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, b"k", b"v")
    return partition.leader().append(split_batches(builder.build()), now_ms=1_700_000_000_000)


async def test_records_of_many_partitions_are_acknowledged_each_when_it_is_durable(
    runtime: Runtime, tmp_path: Path
) -> None:
    bench = Bench(runtime, tmp_path, 40)
    for _ in range(5):
        await asyncio.gather(*(bench.acknowledged(partition) for partition in bench.partitions))
    await bench.flusher.drain()
    assert bench.failures == []
    assert {partition.log.flushed_offset for partition in bench.partitions} == {5}
    assert len(bench.synced) == 200
    assert not bench.flusher.under_way


async def test_appends_that_never_stop_do_not_put_a_flush_off_for_ever(
    runtime: Runtime, tmp_path: Path
) -> None:
    bench = Bench(runtime, tmp_path, 2)
    busy, other = bench.partitions
    await bench.acknowledged(other)
    loop, rounds = asyncio.get_running_loop(), 0

    def request() -> None:  # as an append does in each round of the loop
        nonlocal rounds
        rounds += 1
        bench.flusher.request(busy)
        if not waiting.done():
            loop.call_soon(request)

    waiting = loop.create_task(bench.acknowledged(other))
    request()
    await waiting
    assert rounds > 1


async def test_a_waiter_that_raises_keeps_no_other_partition_of_its_group_waiting(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(runtime, tmp_path, 3)
    await asyncio.gather(*(bench.acknowledged(partition) for partition in bench.partitions))
    reported: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    real = Partition.flushed

    def flushed(partition: Partition) -> None:
        if partition is bench.partitions[0]:
            raise ZeroDivisionError
        real(partition)

    monkeypatch.setattr(Partition, "flushed", flushed)
    waiting = [asyncio.ensure_future(bench.acknowledged(partition)) for partition in bench.partitions]
    await asyncio.gather(*waiting[1:])
    assert [type(error) for error in reported] == [ZeroDivisionError]
    assert not waiting[0].done()
    waiting[0].cancel()
    await bench.flusher.drain()


async def test_a_partition_that_cannot_say_what_to_flush_keeps_no_other_waiting(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(runtime, tmp_path, 3)
    first, broken, last = bench.partitions
    reported: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    real = Log.flush_job

    def flush_job(log: Log) -> FlushJob | None:
        if log is broken.log:
            raise ZeroDivisionError
        return real(log)

    monkeypatch.setattr(Log, "flush_job", flush_job)
    waiting = [asyncio.ensure_future(bench.acknowledged(partition)) for partition in bench.partitions]
    await asyncio.gather(waiting[0], waiting[2])
    assert {first.log.flushed_offset, last.log.flushed_offset} == {1}
    assert [type(error) for error in reported] == [ZeroDivisionError]
    (failure,) = bench.failures  # takes its directory offline: no one can say when it is durable
    assert "ZeroDivisionError" in str(failure)
    assert not waiting[1].done()
    waiting[1].cancel()
    await bench.flusher.drain()
    assert not bench.flusher.under_way


async def test_what_waits_for_the_end_of_a_flush_shares_the_next_one(
    runtime: Runtime, tmp_path: Path
) -> None:
    bench = Bench(runtime, tmp_path, 1)
    (partition,) = bench.partitions
    assert not partition.flush_end.try_wait(pytest.fail)  # nothing is being flushed
    await bench.acknowledged(partition)  # a new file takes a thread
    await bench.flusher.drain()
    bench.synced.clear()
    first = asyncio.ensure_future(bench.acknowledged(partition))
    later: list[asyncio.Future[None]] = []

    def append() -> None:
        later.append(asyncio.ensure_future(bench.acknowledged(partition)))
        _append(partition)

    async with asyncio.timeout(30):
        while not partition.flush_end.try_wait(append):
            await asyncio.sleep(0)
        assert partition.flush_end.try_wait(append)
        assert partition.log.end_offset == 2
        await first
    assert len(later) == 2
    await asyncio.gather(*later)
    await bench.flusher.drain()
    assert partition.log.flushed_offset == partition.log.end_offset == 6
    assert not partition.flush_end.try_wait(pytest.fail)


async def test_who_waits_for_a_flush_and_raises_keeps_no_other_waiting(
    runtime: Runtime, tmp_path: Path
) -> None:
    bench = Bench(runtime, tmp_path, 2)
    await asyncio.gather(*(bench.acknowledged(partition) for partition in bench.partitions))
    reported: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    waiting = [asyncio.ensure_future(bench.acknowledged(partition)) for partition in bench.partitions]
    called: list[int] = []
    broken, other = bench.partitions
    async with asyncio.timeout(30):
        while not broken.flush_end.try_wait(lambda: called.append(1 // 0)):
            await asyncio.sleep(0)
        assert other.flush_end.try_wait(lambda: called.append(1))
        await asyncio.gather(*waiting)
    assert called == [1]
    assert [type(error) for error in reported] == [ZeroDivisionError]
    await asyncio.gather(*(bench.acknowledged(partition) for partition in bench.partitions))
    await bench.flusher.drain()


async def test_a_burst_that_no_request_waits_for_is_synced_by_as_many_syncs_as_the_disk_has_time_for(
    runtime: Runtime, tmp_path: Path
) -> None:
    """With acks=1 a log has one sync under way, whatever is appended meanwhile: all of that shares the next one."""
    held = HeldSyncs()
    bench = Bench(replace(runtime, file_syncs=held), tmp_path, 1)
    (partition,) = bench.partitions
    await bench.acknowledged(partition)  # a new file takes a thread
    _append(partition)
    for _ in range(_ROUNDS_UNTIL_A_SYNC):  # nothing else comes that could lead to it
        await asyncio.sleep(0)
    assert len(held.begun) == 1
    for _ in range(100):
        _append(partition)
        await asyncio.sleep(0)
    assert len(held.begun) == 1
    assert partition.high_watermark == partition.log.flushed_offset == 1
    held.begun[0].end()
    assert partition.high_watermark == partition.log.flushed_offset == 2
    for _ in range(_ROUNDS_UNTIL_A_SYNC):
        await asyncio.sleep(0)
    assert len(held.begun) == 2
    held.begun[1].end()
    await asyncio.wait_for(bench.flusher.drain(), 30)
    assert partition.high_watermark == partition.log.flushed_offset == partition.log.end_offset == 102
    assert len(held.begun) == 2
    assert len(bench.synced) == 3  # none was begun on a thread, beside the held ones
    assert bench.failures == []
