"""Offsets by timestamp."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.storage.log.log import Log

Lab = Any


@pytest.fixture
def times(lab: Lab) -> list[int]:
    """Timestamps that wander up and down."""
    return [lab.now_ms + (number * 7919) % 1000 + number for number in range(120)]


@pytest.fixture
def log(lab: Lab, small: LogConfig, times: list[int]) -> Log:
    log = lab.open(small)
    for start in range(0, 120, 2):
        lab.append(log, bytes(500), bytes(500), timestamps=tuple(times[start : start + 2]), epoch=start // 50)
    return log


def first_from(
    times: list[int], timestamp: int, start: int = 0, end: int = 120
) -> tuple[int, int, int] | None:
    for offset in range(start, end):
        if times[offset] >= timestamp:
            return times[offset], offset, offset // 2 * 2 // 50
    return None


@pytest.mark.parametrize("reopen", ["clean", "crashed", "no"])
def test_the_first_record_not_before_a_time_is_found(
    lab: Lab, small: LogConfig, log: Log, times: list[int], reopen: str
) -> None:
    if reopen != "no":
        log.close()
        log = lab.open(small, clean=reopen == "clean")
    assert log.segment_count > 3
    for timestamp in range(lab.now_ms - 5, lab.now_ms + 1130, 7):
        assert log.offset_for_timestamp(timestamp) == first_from(times, timestamp)
        assert log.offset_for_timestamp(timestamp, end_offset=77) == first_from(times, timestamp, end=77)


def test_deleted_records_are_not_found(lab: Lab, log: Log, times: list[int]) -> None:
    log.delete_records(33)
    for timestamp in range(lab.now_ms - 5, lab.now_ms + 1130, 13):
        assert log.offset_for_timestamp(timestamp) == first_from(times, timestamp, start=33)


def test_the_largest_timestamp_is_found_within_what_may_be_read(log: Log, times: list[int]) -> None:
    for start, end in ((0, 120), (0, 50), (31, 77), (100, 119), (119, 120)):
        log.delete_records(start)
        best = max(range(start, end), key=lambda offset: (times[offset], -offset))
        assert log.max_timestamp_offset(end_offset=end) == (times[best], best, best // 2 * 2 // 50)


def test_an_empty_log_has_no_times(lab: Lab) -> None:
    log = lab.open()
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_offset() is None


def test_records_without_a_timestamp_are_no_trouble(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    for _ in range(30):
        lab.append(log, bytes(1000), timestamps=(-1,))
    assert log.offset_for_timestamp(0) is None
    log.close()
    assert lab.open(small).offset_for_timestamp(0) is None
