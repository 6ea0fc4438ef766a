"""What is compacted, when, and which log first: the decisions, without a disk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.config.topic import LogConfig
from odradek.records import BatchHeader, ControlKind
from odradek.storage.cleaning.choice import (
    CleaningRange,
    SegmentView,
    cleaning_range,
    group_count,
    roll_due,
)
from odradek.storage.cleaning.pieces import CleanerThrottle
from odradek.storage.cleaning.transactions import CleanedTransactions
from odradek.storage.segment.rolling import RollLimits

NOW_MS = 1_000_000
EAGER = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)


def segments(*sizes: int, first_ms: int = 0, last_ms: int = 0) -> list[SegmentView]:
    """One after another, ten offsets each."""
    return [
        SegmentView(
            base_offset=10 * number,
            end_offset=10 * number + 10,
            size_bytes=size,
            first_append_ms=lambda: first_ms,
            last_append_ms=lambda number=number: last_ms + number,  # type: ignore[misc]
        )
        for number, size in enumerate(sizes)
    ]


def found(sealed: list[SegmentView], config: LogConfig = EAGER, **terms: int | None) -> CleaningRange | None:
    said: dict[str, int | None] = {"cleaned_offset": None, "start_offset": 0, "limit_offset": 1 << 40}
    said |= {"now_ms": NOW_MS} | terms
    return cleaning_range(sealed, config=config, **said)  # type: ignore[arg-type]


def test_all_sealed_segments_are_dirty_at_first() -> None:
    choice = found(segments(100, 100))
    assert choice is not None
    assert (choice.first_dirty_offset, choice.end_offset, choice.dirty_ratio) == (0, 20, 1.0)


def test_a_log_with_too_little_that_is_dirty_rests() -> None:
    sealed = segments(100, 100, 50)
    assert found(sealed, LogConfig(), cleaned_offset=20) is None
    assert found(sealed, LogConfig(), cleaned_offset=10) is not None
    assert found(sealed, cleaned_offset=30) is None
    assert found([]) is None


def test_nothing_from_the_first_undecided_segment_on_is_touched() -> None:
    choice = found(segments(100, 100, 100), limit_offset=29)
    assert choice is not None
    assert choice.end_offset == 20
    assert found(segments(100), limit_offset=9) is None


@pytest.mark.parametrize("cleaned_offset", [-1, 4, 31, 1 << 50])
def test_a_checkpoint_that_is_not_of_this_log_is_not_believed(cleaned_offset: int) -> None:
    choice = found(segments(100, 100, 100), cleaned_offset=cleaned_offset, start_offset=5)
    assert choice is not None
    assert choice.first_dirty_offset == 5


def test_young_segments_wait() -> None:
    lag = replace(EAGER, min_compaction_lag_ms=100)
    old = NOW_MS - 100
    choice = found(segments(100, 100, last_ms=old), lag)
    assert choice is not None
    assert choice.end_offset == 10
    assert found(segments(100, last_ms=old + 1), lag) is None


def test_what_has_waited_too_long_comes_first_whatever_its_size() -> None:
    lag = LogConfig(max_compaction_lag_ms=1000)
    late = found(segments(10_000, 1, first_ms=NOW_MS - 1500), lag, cleaned_offset=10)
    dirty = found(segments(100, first_ms=NOW_MS - 900), lag)
    assert late is not None
    assert dirty is not None
    assert (late.overdue_ms, dirty.overdue_ms) == (500, 0)
    assert late.urgency > dirty.urgency
    assert roll_due(NOW_MS - 1000, lag, NOW_MS)
    assert not roll_due(NOW_MS - 999, lag, NOW_MS)
    assert not roll_due(-1, lag, NOW_MS)
    assert not roll_due(0, LogConfig(), NOW_MS)


def test_a_compacted_topics_segment_is_not_older_than_its_longest_wait() -> None:
    config = LogConfig(segment_ms=5000, max_compaction_lag_ms=1000)
    assert RollLimits.of(config, 0.0).segment_ms == 5000
    compacted = replace(config, cleanup_policy=frozenset({"compact"}))
    assert RollLimits.of(compacted, 0.0).segment_ms == 1000


def test_segments_are_merged_as_far_as_they_fit() -> None:
    assert group_count(segments(40, 30, 30, 1), 100) == 3
    assert group_count(segments(500, 1), 100) == 1
    far = segments(1, 1)
    far[1] = replace(far[1], end_offset=2**31)
    assert group_count(far, 100) == 2
    far[1] = replace(far[1], end_offset=2**31 + 1)
    assert group_count(far, 100) == 1


def test_the_throttle_spreads_bytes_over_time_and_saves_nothing_up() -> None:
    throttle = CleanerThrottle()
    assert throttle.delay(100, 50.0, 10.0) == 2.0
    assert throttle.delay(100, 50.0, 11.0) == 3.0
    assert throttle.delay(50, 50.0, 100.0) == 1.0


# ---- transactions --------------------------------------------------------------------------------------------------


def header(offset: int, producer_id: int = 7, *, transactional: bool = True) -> BatchHeader:
    attributes = 0x10 if transactional else 0
    return BatchHeader(offset, 0, 0, 2, 0, attributes, 0, 0, 0, producer_id, 0, 0, 1)


def test_a_marker_is_done_once_nothing_of_its_transaction_is_met() -> None:
    seen = CleanedTransactions([(7, 0), (7, 10)])
    assert seen.is_aborted(header(0))
    assert not seen.is_done(header(5), ControlKind.ABORT)
    assert not seen.is_aborted(header(6))
    assert not seen.is_done(header(7), ControlKind.COMMIT)
    assert seen.is_done(header(8), ControlKind.COMMIT)
    assert seen.is_done(header(12), ControlKind.ABORT)
    assert not seen.is_done(header(13), None)


def test_other_producers_and_plain_batches_are_not_aborted() -> None:
    seen = CleanedTransactions([(7, 0)])
    assert not seen.is_aborted(header(0, 8))
    assert not seen.is_aborted(header(1, 7, transactional=False))
    assert seen.is_aborted(header(2, 7))
    assert seen.is_done(header(3, 9), ControlKind.COMMIT)
    assert not seen.is_done(header(4, 8), ControlKind.COMMIT)
