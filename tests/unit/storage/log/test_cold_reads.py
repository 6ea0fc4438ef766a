"""What a read would wait for a disk for is known before it is read on the loop, and brought by another thread."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.model.ids import TopicPartition
from odradek.records import BatchBuilder, Codec, split_batches
from odradek.runtime import real_disk
from odradek.runtime.real import PosixDisk, real_runtime
from odradek.runtime.real_disk import PosixFile
from odradek.storage.files.at_hand import ReadProgress, read_off_loop
from odradek.storage.log import offset_by_time
from odradek.storage.log.log import Log
from odradek.storage.log.offset_by_time import TimestampedOffset

RUNTIME = real_runtime()
"""One for all tests: its threads stay until the process ends."""


def dropped_from_memory(path: Path) -> None:
    """The page cache drops the file. Pages that another core has just put there stay the first time: ask again."""
    number = os.open(path, os.O_RDONLY)
    try:
        for _ in range(100):
            os.fsync(number)
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
            if not _tells(path):
                break
            time.sleep(0.01)
    finally:
        os.close(number)


def test_what_was_brought_is_at_hand_and_what_the_system_cannot_tell_is_not(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(3 << 20))
    file = PosixDisk().open(str(path))
    dropped_from_memory(path)
    before = file.is_at_hand(3 << 20, 0)
    file.bring(3 << 20, 0)
    after = file.is_at_hand(3 << 20, 0)
    assert not before
    assert after == (hasattr(os, "RWF_NOWAIT") and _tells(path))


def test_a_probe_brings_no_more_than_the_page_that_it_asks_for(tmp_path: Path) -> None:
    """A probe runs on the event loop, and the kernel would read megabytes ahead of a sequential reader."""
    path = tmp_path / "data"
    path.write_bytes(os.urandom(3 << 20))
    if not _tells(path):
        pytest.skip("this file system does not tell what is in memory")
    dropped_from_memory(path)
    PosixDisk().open(str(path)).bring(1 << 20, 0)
    file = PosixDisk().open(str(path))
    first = (1 << 20) >> 12
    assert not file.is_at_hand(1 << 20, first << 12)
    assert len(file.pread(1, first << 12)) == 1, "what the probe began to read is there now"
    plain = os.open(path, os.O_RDONLY)
    os.posix_fadvise(plain, 0, 0, os.POSIX_FADV_RANDOM)
    try:
        for page in range(first + 1, first + 32):
            with pytest.raises(BlockingIOError):
                os.preadv(plain, [bytearray(1)], page << 12, os.RWF_NOWAIT)
    finally:
        os.close(plain)


def test_pages_that_only_probes_brought_do_not_make_a_range_at_hand(tmp_path: Path) -> None:
    """Many readers of one cold place ask before the first of them has it brought."""
    path = tmp_path / "data"
    path.write_bytes(os.urandom(1 << 20))
    if not _tells(path):
        pytest.skip("this file system does not tell what is in memory")
    dropped_from_memory(path)
    plain = os.open(path, os.O_RDONLY)
    os.posix_fadvise(plain, 0, 0, os.POSIX_FADV_RANDOM)
    for position in (*range(0, 1 << 20, real_disk.PROBE_BYTES), (1 << 20) - 1):
        assert len(os.pread(plain, 1, position)) == 1
    os.close(plain)
    file = PosixDisk().open(str(path))
    assert [file.is_at_hand(1 << 20, 0) for _ in range(8)] == [False] * 8
    file.bring(1 << 20, 0)
    assert file.is_at_hand(1 << 20, 0)


def _tells(path: Path) -> bool:
    """Whether this file system answers without waiting at all: some do not, and then a thread reads. Brings the first page."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_RANDOM)
        return os.preadv(number, [bytearray(1)], 0, os.RWF_NOWAIT) == 1
    except OSError:
        return False
    finally:
        os.close(number)


def filled(directory: Path, config: LogConfig, size_bytes: int) -> Log:
    log = Log.open(
        RUNTIME,
        str(directory / "t-0"),
        config,
        topic_partition=TopicPartition("t", 0),
        clean=True,
        recovery_point=0,
    )
    while log.size_bytes < size_bytes:
        append(log, 500_000)
    job = log.flush_job()
    assert job is not None
    job.run()
    log.flushed(job)
    return log


def append(log: Log, value_bytes: int) -> None:
    builder = BatchBuilder()
    builder.append(1, None, bytes(value_bytes))
    log.append(split_batches(builder.build()), leader_epoch=0, now_ms=1)


def test_the_end_that_was_just_written_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path, LogConfig(), 2 << 20)
    end_offset = log.end_offset
    append(log, 1_000)
    monkeypatch.setattr("odradek.testing.guarded_disk.GuardedFile.is_at_hand", _never)
    assert log.not_at_hand(end_offset, 1 << 20, ReadProgress()) is None
    log.close()


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENOSYS])
def test_more_of_the_end_is_not_looked_at_where_the_system_cannot_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    log = filled(tmp_path, LogConfig(), 10 << 20)
    reached = log.read(log.end_offset - 3, 1, end_offset=log.end_offset, at_least_one=True).next_offset

    def preadv(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "preadv", preadv)
    asked = [log.not_at_hand(reached, 1 << 20, ReadProgress()) for _ in range(2)]
    assert [missing is None for missing in asked] == [not hasattr(os, "RWF_NOWAIT"), True]
    assert log.not_at_hand(0, 1 << 20, ReadProgress()) is not None, "too far from the end"
    log.close()


def test_the_end_of_a_log_that_no_one_writes_any_more_is_cold_when_it_left_memory(tmp_path: Path) -> None:
    log = filled(tmp_path, LogConfig(), 2 << 20)
    dropped_from_memory(tmp_path / "t-0" / "00000000000000000000.log")
    cold = log.not_at_hand(log.end_offset - 1, 1 << 20, ReadProgress())
    assert cold is not None
    assert cold.size_bytes > 500_000
    log.close()


def _never(self: Any, length: int, position: int) -> bool:
    raise AssertionError("no one should ask")


def test_an_old_segment_that_left_memory_is_cold_until_it_is_brought(tmp_path: Path) -> None:
    log = filled(tmp_path, LogConfig(segment_bytes=4 << 20), 12 << 20)
    first = tmp_path / "t-0" / "00000000000000000000.log"
    dropped_from_memory(first)
    beside = ReadProgress()
    cold = log.not_at_hand(0, 2 << 20, beside)
    assert cold is not None
    assert cold.size_bytes == 2 << 20
    beside.do(cold)
    assert log.not_at_hand(0, 2 << 20, beside) is None, "it was brought, whatever the system can tell"
    assert (log.not_at_hand(0, 2 << 20, ReadProgress()) is None) == _tells(first)
    assert len(log.read(0, 2 << 20, end_offset=log.end_offset).records) > 1 << 20
    log.close()


def test_a_first_batch_beyond_the_limit_is_brought_whole(tmp_path: Path) -> None:
    """It is the answer all the same, so that a reader gets past it."""
    log = filled(tmp_path, LogConfig(segment_bytes=4 << 20), 12 << 20)
    dropped_from_memory(tmp_path / "t-0" / "00000000000000000000.log")
    beside = ReadProgress()
    brought: list[int] = []
    while (cold := log.not_at_hand(0, 10_000, beside)) is not None:
        brought.append(cold.size_bytes)
        beside.do(cold)
    first = log.read(0, 10_000, end_offset=log.end_offset, at_least_one=True)
    assert brought == [10_000, len(first.records)]
    log.close()


def test_a_log_that_is_closed_before_another_thread_reads_is_the_readers_to_notice(tmp_path: Path) -> None:
    log = filled(tmp_path, LogConfig(segment_bytes=4 << 20), 12 << 20)
    dropped_from_memory(tmp_path / "t-0" / "00000000000000000000.log")
    beside = ReadProgress()
    cold = log.not_at_hand(0, 2 << 20, beside)
    assert cold is not None
    log.close()
    beside.do(cold)


def test_outside_of_the_log_nothing_is_cold(tmp_path: Path) -> None:
    log = filled(tmp_path, LogConfig(), 1 << 20)
    assert log.not_at_hand(log.end_offset, 100, ReadProgress()) is None
    assert log.not_at_hand(-1, 100, ReadProgress()) is None
    log.close()


class ColdDisk:
    """Nothing is in memory until it is brought, and nothing that is not may be read on the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.brought: set[tuple[str, int]] = set()
        self.read_bytes_max = 0
        real = PosixFile.pread

        def pread(file: PosixFile, length: int, position: int) -> bytes:
            if asyncio._get_running_loop() is not None:
                assert self.is_at_hand(file, length, position), f"{file.path} at {position} is cold"
                self.read_bytes_max = max(self.read_bytes_max, length)
            return real(file, length, position)

        monkeypatch.setattr(PosixFile, "pread", pread)
        monkeypatch.setattr(PosixFile, "is_at_hand", lambda *arguments: self.is_at_hand(*arguments))
        monkeypatch.setattr(PosixFile, "bring", lambda *arguments: self.bring(*arguments))

    def is_at_hand(self, file: PosixFile, length: int, position: int) -> bool:
        end = min(position + length, file.length())
        return all((file.path, number >> 12) in self.brought for number in range(position, end, 1 << 12))

    def bring(self, file: PosixFile, length: int, position: int) -> None:
        assert asyncio._get_running_loop() is None, "the loop does not wait"
        end = position + length + (1 << 12)
        self.brought.update((file.path, number >> 12) for number in range(position, end, 1 << 12))


COLD = LogConfig(segment_bytes=1 << 20, index_interval_bytes=1000)


def timed(directory: Path, codec: Codec = Codec.NONE) -> None:
    """A log of a few segments, closed: its times go up by ten, and now and then down."""
    log = opened(directory)
    for number in range(300):
        builder = BatchBuilder(codec)
        for index in range(3):
            builder.append(number * 10 + index - 35 * (number % 7 == 0), None, os.urandom(3_000))
        log.append(split_batches(builder.build()), leader_epoch=0, now_ms=1)
    log.close()


def opened(directory: Path) -> Log:
    return Log.open(
        RUNTIME,
        str(directory / "t-0"),
        COLD,
        topic_partition=TopicPartition("t", 0),
        clean=True,
        recovery_point=0,
    )


async def searched(log: Log, look: Callable[[Log, ReadProgress], TimestampedOffset | None]) -> Any:
    return await read_off_loop(RUNTIME.offload, lambda beside: look(log, beside))


def first_from(
    timestamp: int, end_offset: int | None
) -> Callable[[Log, ReadProgress], TimestampedOffset | None]:
    return lambda log, beside: log.offset_for_timestamp(timestamp, end_offset=end_offset, beside=beside)


def test_a_search_by_time_reads_what_is_cold_on_threads_and_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed(tmp_path)
    questions = [(timestamp, end) for timestamp in range(-40, 3_100, 170) for end in (None, 500)]
    log = opened(tmp_path)
    assert log.segment_count > 2
    plain = [log.offset_for_timestamp(timestamp, end_offset=end) for timestamp, end in questions]
    latest = log.max_timestamp_offset(), log.max_timestamp_offset(end_offset=500)
    log.close()
    for timestamp, end in questions:
        log = opened(tmp_path)
        disk = ColdDisk(monkeypatch)
        run_result = asyncio.run(searched(log, first_from(timestamp, end)))
        assert run_result == plain[questions.index((timestamp, end))]
        assert disk.brought
        monkeypatch.undo()
        log.close()
    log = opened(tmp_path)
    ColdDisk(monkeypatch)
    look = [
        lambda log, beside, end=end: log.max_timestamp_offset(end_offset=end, beside=beside)
        for end in (None, 500)
    ]
    assert tuple(asyncio.run(searched(log, read)) for read in look) == latest
    log.close()


def test_a_search_goes_on_where_the_system_cannot_tell_what_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed(tmp_path)
    log = opened(tmp_path)
    plain = log.offset_for_timestamp(1_500)
    log.close()
    log = opened(tmp_path)
    monkeypatch.setattr(PosixFile, "is_at_hand", lambda self, length, position: False)
    assert asyncio.run(searched(log, first_from(1_500, None))) == plain
    log.close()


def test_a_missing_index_is_made_again_from_what_a_thread_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed(tmp_path)
    log = opened(tmp_path)
    plain = log.offset_for_timestamp(200)
    log.close()
    for path in (tmp_path / "t-0").glob("00000000000000000000.*index"):
        path.unlink()
    log = opened(tmp_path)
    ColdDisk(monkeypatch)
    assert asyncio.run(searched(log, first_from(200, None))) == plain
    log.close()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_large_batches_are_read_and_decoded_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    timed(tmp_path, codec)
    log = opened(tmp_path)
    plain = log.offset_for_timestamp(1_500), log.max_timestamp_offset()
    decoded_on_loop: list[bool] = []
    real = offset_by_time.decode_batch

    def decode_batch(batch: bytes) -> Any:
        decoded_on_loop.append(asyncio._get_running_loop() is not None)
        return real(batch)

    monkeypatch.setattr(offset_by_time, "decode_batch", decode_batch)
    monkeypatch.setattr(offset_by_time, "SMALL_BYTES", 100)
    first = asyncio.run(searched(log, first_from(1_500, None)))
    latest = asyncio.run(searched(log, lambda log, beside: log.max_timestamp_offset(beside=beside)))
    assert (first, latest) == plain
    assert decoded_on_loop
    assert not any(decoded_on_loop)
    log.close()
