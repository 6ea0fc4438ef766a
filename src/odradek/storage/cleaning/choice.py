"""Chooses the part of a log to compact, and the log to compact first. Pure.

A log is its sealed segments: clean ones, that a compaction has processed, followed by dirty ones. Compaction
reads the dirty ones for their keys and writes all of them again. Age counts from the append (decision 0006).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from odradek.config.definition import LONG_MAX
from odradek.config.topic import LogConfig
from odradek.storage.segment.sparse_index import RELATIVE_OFFSET_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentView:
    """A sealed segment as compaction sees it. Its ages are callables, because reading them may need the disk."""

    base_offset: int
    end_offset: int
    """The base offset of the next segment."""
    size_bytes: int
    first_append_ms: Callable[[], int]
    """Returns the time when the segment was begun, or an earlier time."""
    last_append_ms: Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRange:
    """The part of a log that can be compacted now."""

    first_dirty_offset: int
    end_offset: int
    """The end of the range: the base offset of the first segment that compaction must not touch."""
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """How much longer than max.compaction.lag.ms the oldest dirty record has waited; 0 when none has."""

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    @property
    def urgency(self) -> tuple[int, float]:
        """Sort key, largest first: ranges that are overdue longest, then those with the largest dirty part."""
        return self.overdue_ms, self.dirty_ratio


def cleaning_range(
    segments: Sequence[SegmentView],
    *,
    cleaned_offset: int | None,
    start_offset: int,
    limit_offset: int,
    config: LogConfig,
    now_ms: int,
) -> CleaningRange | None:
    """Returns the range to compact of a log with these sealed segments; None when it is too small to begin.

    `cleaned_offset`: up to where the last compaction got, None before the first; one that is not of this log (a lost or
    foreign checkpoint, a deletion) is not believed. `limit_offset`: whole segments below it are decided and durable.
    """
    log_end = segments[-1].end_offset if segments else start_offset
    first_dirty = cleaned_offset if cleaned_offset is not None else start_offset
    if not start_offset <= first_dirty <= log_end:
        first_dirty = start_offset
    clean_bytes = sum(segment.size_bytes for segment in segments if segment.end_offset <= first_dirty)
    dirty = _cleanable(
        [segment for segment in segments if segment.end_offset > first_dirty], limit_offset, config, now_ms
    )
    if not dirty:
        return None
    candidate = CleaningRange(
        first_dirty_offset=first_dirty,
        end_offset=dirty[-1].end_offset,
        clean_bytes=clean_bytes,
        dirty_bytes=sum(segment_view.size_bytes for segment_view in dirty),
        overdue_ms=_overdue_ms(dirty[0], config, now_ms),
    )
    return (
        candidate
        if candidate.overdue_ms or candidate.dirty_ratio > config.min_cleanable_dirty_ratio
        else None
    )


def _cleanable(
    dirty: Sequence[SegmentView], limit_offset: int, config: LogConfig, now_ms: int
) -> list[SegmentView]:
    """Returns the segments up to the first that must not be touched yet."""
    cleanable = []
    youngest_ms = now_ms - config.min_compaction_lag_ms
    for segment in dirty:
        if segment.end_offset > limit_offset:
            break
        if youngest_ms < now_ms and segment.last_append_ms() > youngest_ms:
            break
        cleanable.append(segment)
    return cleanable


def _overdue_ms(first: SegmentView, config: LogConfig, now_ms: int) -> int:
    if config.max_compaction_lag_ms >= LONG_MAX:
        return 0
    return max(0, now_ms - config.max_compaction_lag_ms - first.first_append_ms())


def group_count(segments: Sequence[SegmentView], size_bytes_max: int) -> int:
    """Returns how many of the first segments become one: as many as fit in a segment, by bytes and by offsets; at least one."""
    first = segments[0]
    size_bytes, count = first.size_bytes, 1
    for segment in segments[1:]:
        size_bytes += segment.size_bytes
        reach = segment.end_offset - 1 - first.base_offset
        if size_bytes > size_bytes_max or reach > RELATIVE_OFFSET_MAX:
            break
        count += 1
    return count


def roll_due(first_append_ms: int, config: LogConfig, now_ms: int) -> bool:
    """Returns whether the active segment must end so that its oldest record is compacted in time."""
    lag_ms = config.max_compaction_lag_ms
    return lag_ms < LONG_MAX and 0 <= first_append_ms <= now_ms - lag_ms
