"""From a time to an offset, by way of the time index."""

from __future__ import annotations

from typing import NamedTuple

from odradek.records import decode_batch
from odradek.storage.batch_walk import Mark
from odradek.storage.segment import Segment
from odradek.storage.segments import SegmentList


class TimestampedOffset(NamedTuple):
    """A record's place and time, as ListOffsets answers it."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(
    segments: SegmentList, timestamp: int, *, start_offset: int, end_offset: int
) -> TimestampedOffset | None:
    """The first record in [start_offset, end_offset) with a timestamp of at least `timestamp`; None without any."""
    for number in range(segments.number_of(start_offset), len(segments)):
        segment = segments[number]
        if segment.base_offset >= end_offset:
            break
        latest = segment.max_timestamp()
        if latest is None or latest.timestamp < timestamp:
            continue
        found = _first_in(segment, timestamp, start_offset, end_offset)
        if found is not None:
            return found
    return None


def _first_in(
    segment: Segment, timestamp: int, start_offset: int, end_offset: int
) -> TimestampedOffset | None:
    # Up to the entry nothing is later than its timestamp, which is not above ours: begin with the batch it names.
    entry = segment.floor_time(timestamp)
    first_offset = max(start_offset, entry.offset if entry is not None else 0)
    for mark in segment.marks(segment.locate(first_offset)):
        if mark.base_offset >= end_offset:
            break
        if mark.max_timestamp < timestamp:
            continue
        for record in decode_batch(segment.batch(mark)):
            if record.timestamp >= timestamp and start_offset <= record.offset < end_offset:
                return TimestampedOffset(record.timestamp, record.offset, mark.leader_epoch)
    return None


def latest(
    segments: SegmentList, *, start_offset: int, end_offset: int, log_end_offset: int
) -> TimestampedOffset | None:
    """The first record with the largest timestamp in [start_offset, end_offset); None when there are no records."""
    homes: list[tuple[Mark, Segment]] = []
    for number in range(segments.number_of(start_offset), len(segments)):
        segment = segments[number]
        if segment.base_offset >= end_offset:
            break
        mark = _latest_batch(segment, start_offset, end_offset, segments.end_of(number, log_end_offset))
        if mark is not None:
            homes.append((mark, segment))
    best: TimestampedOffset | None = None
    for mark, segment in sorted(homes, key=lambda home: (-home[0].max_timestamp, home[0].base_offset)):
        if best is not None and best.timestamp >= mark.max_timestamp:
            break
        found = _latest_record(segment, mark, start_offset, end_offset)
        if found is not None and (best is None or found.timestamp > best.timestamp):
            best = found
    return best


def _latest_record(
    segment: Segment, mark: Mark, start_offset: int, end_offset: int
) -> TimestampedOffset | None:
    """In the batch at `mark`; in the segment's next best where compaction emptied that one and left its header's time."""
    found = _latest_of_batch(segment, mark, start_offset, end_offset)
    if found is not None:
        return found
    inside = _marks_inside(segment, start_offset, end_offset)
    for other in sorted(inside, key=lambda mark: (-mark.max_timestamp, mark.position)):
        found = _latest_of_batch(segment, other, start_offset, end_offset)
        if found is not None:
            return found
    return None


def _latest_of_batch(
    segment: Segment, mark: Mark, start_offset: int, end_offset: int
) -> TimestampedOffset | None:
    records = [
        record for record in decode_batch(segment.batch(mark)) if start_offset <= record.offset < end_offset
    ]
    if not records:
        return None
    record = max(records, key=lambda record: (record.timestamp, -record.offset))
    return TimestampedOffset(record.timestamp, record.offset, mark.leader_epoch)


def _latest_batch(segment: Segment, start_offset: int, end_offset: int, segment_end: int) -> Mark | None:
    """By the index where it speaks of the whole range, else batch by batch."""
    entry = segment.max_timestamp()
    if entry is None:
        return None
    if start_offset <= segment.base_offset and segment_end <= end_offset:
        return segment.mark(segment.locate(entry.offset))
    inside = _marks_inside(segment, start_offset, end_offset)
    return max(inside, key=lambda mark: (mark.max_timestamp, -mark.position), default=None)


def _marks_inside(segment: Segment, start_offset: int, end_offset: int) -> list[Mark]:
    return [
        mark
        for mark in segment.marks(segment.locate(start_offset))
        if mark.base_offset < end_offset and mark.last_offset >= start_offset
    ]
