"""What a read would wait for a disk for is known before it is read on the loop, and brought by another thread."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.model.ids import TopicPartition
from odradek.records import BatchBuilder, split_batches
from odradek.runtime.real import PosixDisk, real_runtime
from odradek.storage.log import Log
from odradek.storage.readable_segment import _RECENT_BYTES


def dropped_from_memory(path: Path) -> None:
    """The page cache lets the file go, as far as the system does what it is asked."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
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


def _tells(path: Path) -> bool:
    """Whether this file system answers without waiting at all: some do not, and then a thread reads."""
    number = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(number, [bytearray(1)], 0, os.RWF_NOWAIT) == 1
    except OSError:
        return False
    finally:
        os.close(number)


def filled(directory: Path, config: LogConfig, size_bytes: int) -> Log:
    log = Log.open(
        real_runtime(),
        str(directory / "t-0"),
        config,
        topic_partition=TopicPartition("t", 0),
        clean=True,
        recovery_point=0,
    )
    while log.size_bytes < size_bytes:
        builder = BatchBuilder()
        builder.append(1, None, bytes(500_000))
        log.append(split_batches(builder.build()), leader_epoch=0, now_ms=1)
    job = log.flush_job()
    assert job is not None
    job.run()
    log.flushed(job)
    return log


def test_the_end_that_was_just_written_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path, LogConfig(), 2 << 20)
    monkeypatch.setattr("odradek.testing.guarded_disk.GuardedFile.is_at_hand", _never)
    assert log.cold_range(0, 1 << 20) is None
    log.close()


def _never(self: Any, length: int, position: int) -> bool:
    raise AssertionError("nobody should ask")


def test_an_old_segment_that_left_memory_is_cold_until_it_is_brought(tmp_path: Path) -> None:
    log = filled(tmp_path, LogConfig(segment_bytes=4 << 20), 4 * _RECENT_BYTES)
    first = tmp_path / "t-0" / "00000000000000000000.log"
    dropped_from_memory(first)
    cold = log.cold_range(0, 2 << 20)
    assert cold is not None
    assert (cold.position, cold.length) == (0, 2 << 20)
    cold.bring()
    assert (log.cold_range(0, 2 << 20) is None) == _tells(first)
    assert len(log.read(0, 2 << 20, end_offset=log.end_offset).records) > 1 << 20
    log.close()


def test_a_log_that_is_closed_before_another_thread_reads_is_the_readers_to_notice(tmp_path: Path) -> None:
    log = filled(tmp_path, LogConfig(segment_bytes=4 << 20), 4 * _RECENT_BYTES)
    dropped_from_memory(tmp_path / "t-0" / "00000000000000000000.log")
    cold = log.cold_range(0, 2 << 20)
    assert cold is not None
    log.close()
    cold.bring()


def test_outside_of_the_log_nothing_is_cold(tmp_path: Path) -> None:
    log = filled(tmp_path, LogConfig(), 1 << 20)
    assert log.cold_range(log.end_offset, 100) is None
    assert log.cold_range(-1, 100) is None
    log.close()
