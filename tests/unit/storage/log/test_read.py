"""Reading whole batches by offset."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import read_header, split_batches
from odradek.storage.log.log import Log

Lab = Any


@pytest.fixture
def log(lab: Lab, small: LogConfig) -> Log:
    """60 batches of three records in several segments."""
    log = lab.open(small)
    for number in range(60):
        lab.append(log, *(b"%d:%d" % (number, which) + bytes(300) for which in range(3)))
    return log


def test_every_offset_is_found_in_the_batch_that_holds_it(log: Log) -> None:
    for offset in range(180):
        first = read_header(log.read(offset, 1, end_offset=180, at_least_one=True).records)
        assert first.base_offset <= offset <= first.last_offset


def test_a_reader_gets_everything_once_whatever_the_size_of_its_reads(lab: Lab, log: Log) -> None:
    expected = [b"%d:%d" % (number, which) + bytes(300) for number in range(60) for which in range(3)]
    for max_bytes in (1, 1000, 1500, 5000, 10**6):
        assert [record.value for record in lab.records(log, max_bytes=max_bytes)] == expected


def test_offsets_outside_the_log_are_out_of_range(log: Log) -> None:
    for offset in (-1, 181):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 1000, end_offset=180)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(180, 1000, end_offset=180) == (b"", 180)


def test_nothing_at_or_above_the_end_offset_is_read(log: Log) -> None:
    for end_offset in range(181):
        read = log.read(0, 10**6, end_offset=end_offset)
        headers = [header for header, _ in split_batches(read.records)]
        assert all(header.last_offset < end_offset for header in headers)
        segment_end = min(end_offset // 3 * 3, first_segment_end(log))
        assert (headers[-1].next_offset if headers else 0) == segment_end


def first_segment_end(log: Log) -> int:
    return log.read(0, 10**9, end_offset=180).next_offset


def test_reads_stop_at_the_end_of_whole_batches(log: Log) -> None:
    size = read_header(log.read(0, 1, end_offset=180, at_least_one=True).records).size_bytes
    for max_bytes in range(size - 1, 4 * size, size // 3):
        read = log.read(0, max_bytes, end_offset=180)
        split_batches(read.records)
        assert len(read.records) <= max_bytes
        assert len(read.records) > max_bytes - size - 10


def test_a_first_batch_above_the_limit_comes_only_when_one_is_needed(log: Log) -> None:
    assert len(log.read(0, 10, end_offset=180).records) == 0
    assert len(split_batches(log.read(0, 10, end_offset=180, at_least_one=True).records)) == 1
    assert len(log.read(0, 0, end_offset=180).records) == 0


def test_a_sequential_read_costs_one_read_of_the_disk(lab: Lab) -> None:
    log = lab.open(LogConfig())
    for _ in range(100):
        lab.append(log, bytes(16_000))
    offset = log.read(0, 200_000, end_offset=100).next_offset
    lab.disk.points = []
    rounds = 0
    while offset < 100:
        offset = log.read(offset, 200_000, end_offset=100).next_offset
        rounds += 1
    assert rounds > 5
    assert [point.operation for point in lab.disk.points] == ["pread"] * rounds


def test_a_reader_at_the_flushed_end_needs_no_search(lab: Lab) -> None:
    log = lab.open()
    offset = 0
    for _ in range(20):
        lab.append(log, bytes(5000))
        lab.flush(log)
        lab.append(log, bytes(5000))
        lab.disk.points = []
        read = log.read(offset, 10**6, end_offset=log.flushed_offset)
        assert read.next_offset == log.flushed_offset
        assert [point.operation for point in lab.disk.points] == ["pread"]
        offset = read.next_offset


def test_segments_that_are_not_written_are_searched_in_their_index_files(
    lab: Lab, small: LogConfig, log: Log
) -> None:
    log.close()
    reopened = lab.open(small)
    test_every_offset_is_found_in_the_batch_that_holds_it(reopened)


def test_a_read_error_takes_the_log_offline(lab: Lab, log: Log) -> None:
    from odradek.testing.sim import FailOperations

    lab.disk.faults.append(FailOperations(operations={"pread"}))
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            log.read(0, 1000, end_offset=180)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failed is not None
