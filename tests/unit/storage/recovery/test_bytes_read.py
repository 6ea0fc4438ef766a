"""How much of a log is read when it is opened after a crash: each byte that must be looked at, once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.testing.sim import disk as sim_disk

Lab = Any
ONE_SEGMENT = LogConfig(segment_bytes=64 << 20, max_message_bytes=2 << 20)
MANY_SEGMENTS = LogConfig(segment_bytes=2 << 20, max_message_bytes=2 << 20)
BESIDE_BYTES_MAX = 4096
"""Of headers, to see when the log was begun."""


class LogReads:
    """Bytes that were read of segments."""

    def __init__(self) -> None:
        self.count = 0


@pytest.fixture
def log_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[LogReads]:
    reads, real = LogReads(), sim_disk.SimFile.pread

    def pread(self: sim_disk.SimFile, length: int, position: int) -> bytes:
        data = real(self, length, position)
        if self._path.endswith(".log"):
            reads.count += len(data)
        return data

    monkeypatch.setattr(sim_disk.SimFile, "pread", pread)
    return reads


def write(lab: Lab, log: Any) -> None:
    """Small batches, some larger than a read, producers, and transactions of which one is aborted."""
    for number in range(3):
        lab.fill(log, 30)
        lab.fill(log, 4, value_bytes=700_000)
        lab.append(log, b"x" * 1_500_000)
        producer = (7, 0, number)
        lab.append(log, b"mine", producer=producer, transactional=True)
        lab.end(log, 7, commit=number != 1)


def reopened(lab: Lab, config: LogConfig, recovery_point: int = 0) -> Any:
    lab.kill()
    return lab.open(config, clean=False, recovery_point=recovery_point)


@pytest.mark.parametrize("config", [ONE_SEGMENT, MANY_SEGMENTS], ids=["one segment", "many"])
def test_all_that_is_in_doubt_is_read_once(lab: Lab, log_reads: LogReads, config: LogConfig) -> None:
    log = lab.open(config)
    write(lab, log)
    lab.flush(log)
    values, aborted = lab.values(log), log.aborted_transactions(0, log.end_offset)
    log_reads.count = 0
    again = reopened(lab, config)
    assert again.size_bytes <= log_reads.count <= again.size_bytes + BESIDE_BYTES_MAX
    assert lab.values(again) == values
    assert again.aborted_transactions(0, again.end_offset) == aborted
    assert len(aborted) == 1
    assert again.producers.get(7) == log.producers.get(7)


def test_it_is_read_once_too_where_a_clean_stop_left_a_snapshot_in_the_middle(
    lab: Lab, log_reads: LogReads
) -> None:
    log = lab.open(ONE_SEGMENT)
    write(lab, log)
    lab.flush(log)
    with_snapshot = log.end_offset
    log.close()
    log = lab.open(ONE_SEGMENT, recovery_point=with_snapshot)
    lab.append(log, b"after", producer=(9, 0, 0))
    lab.flush(log)
    assert any(name.endswith(".snapshot") for name in lab.names())
    log_reads.count = 0
    again = reopened(lab, ONE_SEGMENT, with_snapshot)
    assert log_reads.count <= again.size_bytes + BESIDE_BYTES_MAX
    assert again.producers.get(7) == log.producers.get(7)
    assert again.producers.get(9) == log.producers.get(9)


def test_what_lies_below_the_recovery_points_segment_is_not_read(lab: Lab, log_reads: LogReads) -> None:
    log = lab.open(MANY_SEGMENTS)
    write(lab, log)
    lab.flush(log)
    recovery_point = log.end_offset
    lab.append(log, b"last")
    lab.flush(log)
    log_reads.count = 0
    again = reopened(lab, MANY_SEGMENTS, recovery_point)
    assert log_reads.count < again.size_bytes / 2
    assert again.end_offset == recovery_point + 1
