"""Appending as the leader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import TimestampType, check_crc, split_batches

Lab = Any


def test_batches_get_consecutive_offsets_and_the_leaders_epoch(lab: Lab) -> None:
    log = lab.open()
    assert lab.append(log, b"a", b"b", epoch=3) == (0, 1, -1, False)
    assert lab.append(log, b"c", epoch=3) == (2, 2, -1, False)
    headers = [header for header, _ in split_batches(log.read(0, 9999, end_offset=3).records)]
    assert [(header.base_offset, header.partition_leader_epoch) for header in headers] == [(0, 3), (2, 3)]
    assert lab.values(log) == [b"a", b"b", b"c"]


def test_several_batches_are_written_with_one_call(lab: Lab) -> None:
    log = lab.open()
    lab.disk.points = []
    both = lab.batch(b"a", b"b") + lab.batch(b"c")
    assert log.append(both, leader_epoch=0, now_ms=lab.now_ms) == (0, 2, -1, False)
    assert [point.operation for point in lab.disk.points] == ["pwritev"]
    assert lab.values(log) == [b"a", b"b", b"c"]


def test_one_batch_costs_one_write_and_nothing_else(lab: Lab) -> None:
    log = lab.open()
    lab.append(log)
    lab.disk.points = []
    lab.append(log, bytes(16_000))
    assert [point.operation for point in lab.disk.points] == ["pwrite"]


def test_log_append_time_replaces_the_producers_timestamps(lab: Lab) -> None:
    log = lab.open(LogConfig(message_timestamp_type="LogAppendTime"))
    lab.now_ms += 5
    assert lab.append(log, b"a", timestamps=(1,)).log_append_time_ms == lab.now_ms
    read = log.read(0, 9999, end_offset=1)
    check_crc(read.records)
    (record,) = lab.records(log)
    assert (record.timestamp, record.timestamp_type) == (lab.now_ms, TimestampType.LOG_APPEND_TIME)
    assert log.max_timestamp_offset() == (lab.now_ms, 0, 0)


def test_a_batch_above_max_message_bytes_is_refused(lab: Lab) -> None:
    log = lab.open(LogConfig(max_message_bytes=500))
    assert_refused(lab, log, ErrorCode.MESSAGE_TOO_LARGE, bytes(500))
    lab.append(log, bytes(300))


def test_batches_above_the_segment_size_are_refused(lab: Lab) -> None:
    log = lab.open(LogConfig(segment_bytes=1000))
    assert_refused(lab, log, ErrorCode.RECORD_LIST_TOO_LARGE, bytes(2000))


def test_timestamps_beyond_the_bounds_are_refused(lab: Lab) -> None:
    log = lab.open(LogConfig(message_timestamp_after_max_ms=1000, message_timestamp_before_max_ms=2000))
    assert_refused(lab, log, ErrorCode.INVALID_TIMESTAMP, timestamps=(lab.now_ms + 1001,))
    assert_refused(lab, log, ErrorCode.INVALID_TIMESTAMP, timestamps=(lab.now_ms - 2001,))
    lab.append(log, timestamps=(lab.now_ms + 1000,))
    lab.append(log, timestamps=(lab.now_ms - 2000,))
    lab.append(log, timestamps=(-1,))


def test_timestamp_bounds_do_not_matter_for_log_append_time(lab: Lab) -> None:
    log = lab.open(LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=0))
    assert lab.append(log, timestamps=(lab.now_ms + 10**9,)).log_append_time_ms == lab.now_ms


def test_changed_settings_hold_from_the_next_append_on(lab: Lab) -> None:
    config = LogConfig()
    log = lab.open(config)
    lab.append(log, bytes(500))
    log.reconfigure(replace(config, max_message_bytes=400, segment_bytes=600))
    assert_refused(lab, log, ErrorCode.MESSAGE_TOO_LARGE, bytes(500))
    lab.append(log, bytes(100))
    assert log.segment_count == 2


def test_size_is_that_of_the_log_files(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.fill(log, 50)
    assert log.size_bytes == sum(len(lab.read(name)) for name in lab.segment_names())
    assert log.segment_count == len(lab.segment_names()) > 2


def test_segments_roll_by_size_and_are_named_by_their_first_offset(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.fill(log, 40)
    assert all(len(lab.read(name)) <= small.segment_bytes for name in lab.segment_names())
    bases = [int(name[:20]) for name in lab.segment_names()]
    starts = [split_batches(lab.read(name))[0][0].base_offset for name in lab.segment_names()]
    assert bases == starts


def test_segments_roll_by_age(lab: Lab) -> None:
    log = lab.open(LogConfig(segment_ms=1000))
    lab.append(log)
    lab.now_ms += 999
    lab.append(log)
    assert log.segment_count == 1
    lab.now_ms += 1
    lab.append(log)
    assert log.segment_count == 2
    assert len(lab.values(log)) == 3


def test_records_that_jump_in_time_do_not_roll_segments(lab: Lab) -> None:
    log = lab.open(LogConfig(segment_ms=1000))
    for timestamp in (0, lab.now_ms, 1, lab.now_ms - 5000):
        lab.append(log, timestamps=(timestamp,))
    assert log.segment_count == 1


def test_a_full_index_rolls_the_segment(lab: Lab) -> None:
    log = lab.open(LogConfig(segment_index_bytes=5 * 12, index_interval_bytes=0))
    lab.fill(log, 30, value_bytes=10)
    assert log.segment_count > 3
    assert len(lab.values(log)) == 30


def assert_refused(lab: Lab, log: Any, code: ErrorCode, *values: bytes, **more: Any) -> None:
    before = (log.end_offset, log.size_bytes)
    with pytest.raises(KafkaError) as caught:
        lab.append(log, *values, **more)
    assert caught.value.code is code
    assert (log.end_offset, log.size_bytes) == before
