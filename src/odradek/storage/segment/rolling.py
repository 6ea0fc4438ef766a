"""Decides when a new segment begins. Pure.

Age counts from the first append to the segment by the broker's clock, not from record timestamps as in Kafka: records that
jump back and forth in time would otherwise begin a segment with every jump.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from odradek.config.topic import LogConfig
from odradek.storage.segment.sparse_index import OFFSET_ENTRY, RELATIVE_OFFSET_MAX, TIME_ENTRY


class RollReason(Enum):
    SIZE = "size"
    AGE = "age"
    INDEX_FULL = "index full"
    OFFSET_RANGE = "offset range"


@dataclass(frozen=True, slots=True)
class RollLimits:
    """A topic's settings as the numbers that each append compares. `jitter_ms` was drawn once for this segment."""

    segment_bytes: int
    segment_ms: int
    offset_entries_max: int
    time_entries_max: int

    @classmethod
    def of(cls, config: LogConfig, jitter: float) -> RollLimits:
        """Returns the limits of a new segment. `jitter` in [0, 1): which part of segment.jitter.ms shortens this segment's
        life."""
        segment_ms = config.segment_ms
        if "compact" in config.cleanup_policy:  # what is in the active segment is not compacted
            segment_ms = min(segment_ms, config.max_compaction_lag_ms)
        jitter_ms = int(jitter * min(config.segment_jitter_ms, segment_ms))
        return cls(
            config.segment_bytes,
            segment_ms - jitter_ms,
            max(config.segment_index_bytes // OFFSET_ENTRY.size, 1),
            max(config.segment_index_bytes // TIME_ENTRY.size - 1, 1),
        )


class SegmentFill(NamedTuple):
    """How full the active segment is. A tuple: every append makes one."""

    base_offset: int
    size_bytes: int
    first_append_ms: int
    offset_entry_count: int
    time_entry_count: int


def roll_reason(
    limits: RollLimits, fill: SegmentFill, *, append_bytes: int, last_offset: int, now_ms: int
) -> RollReason | None:
    """Returns the reason why an append of `append_bytes` that ends with `last_offset` needs a new segment; None without one.

    An empty segment is never replaced for its size or age; a batch larger than segment.bytes was refused before.
    """
    if last_offset - fill.base_offset > RELATIVE_OFFSET_MAX:
        return RollReason.OFFSET_RANGE
    if fill.size_bytes == 0:
        return None
    if fill.size_bytes > limits.segment_bytes - append_bytes:
        return RollReason.SIZE
    if now_ms - fill.first_append_ms >= limits.segment_ms and fill.first_append_ms >= 0:
        return RollReason.AGE
    full = (
        fill.offset_entry_count >= limits.offset_entries_max
        or fill.time_entry_count >= limits.time_entries_max
    )
    return RollReason.INDEX_FULL if full else None
