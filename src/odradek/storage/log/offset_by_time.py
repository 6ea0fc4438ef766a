"""Finds the offset for a time with the time index."""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from odradek.records import Codec, Record, decode_batch, read_header
from odradek.runtime.ports import DiskFile
from odradek.storage.files import naming
from odradek.storage.files.at_hand import ReadProgress
from odradek.storage.segment.batch_walk import Mark
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.segment_list import SegmentList

_FEW_RECORDS: Final = 2_000
SMALL_BYTES: Final = 64 * 1024
_SMALL_COMPRESSED_BYTES: Final = 4 * 1024
"""It may expand to a thousand times as much. Batches within these limits are decoded on the event loop."""


class TimestampedOffset(NamedTuple):
    """A record's place and time, as ListOffsets answers it."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(
    segments: SegmentList,
    timestamp: int,
    *,
    end_offset: int,
    beside: ReadProgress | None = None,
) -> TimestampedOffset | None:
    """Returns the first record below `end_offset` with a timestamp of at least `timestamp`; None without any."""
    start_offset = segments.start_offset
    for number in range(segments.number_of(start_offset), len(segments)):
        segment = segments[number]
        if segment.base_offset >= end_offset:
            break
        latest = segment.index.max_timestamp()
        if latest is None or latest.timestamp < timestamp:
            continue
        timestamped_offset = _first_in(segment, timestamp, start_offset, end_offset, beside)
        if timestamped_offset is not None:
            return timestamped_offset
    return None


def _first_in(
    segment: Segment, timestamp: int, start_offset: int, end_offset: int, beside: ReadProgress | None
) -> TimestampedOffset | None:
    # Up to the entry nothing is later than its timestamp, which is not above ours: begin with the batch it names.
    entry = segment.search.floor_time(timestamp)
    first_offset = max(start_offset, entry.offset if entry is not None else 0)
    for mark in segment.records.marks(segment.search.locate(first_offset)):
        if mark.base_offset >= end_offset:
            break
        if mark.max_timestamp < timestamp:
            continue
        inside = _BatchSlice(max(start_offset, mark.base_offset), min(end_offset, mark.last_offset + 1))
        record = _of_batch(segment, mark, partial(_first_record, timestamp, inside), beside)
        if record is not None:
            return TimestampedOffset(record.timestamp, record.offset, mark.leader_epoch)
    return None


class _BatchSlice(NamedTuple):
    """A batch's records from `start_offset` up to `end_offset`, exclusive."""

    start_offset: int
    end_offset: int


def _first_record(timestamp: int, inside: _BatchSlice, batch: bytes) -> Record | None:
    for record in decode_batch(batch):
        if record.timestamp >= timestamp and inside.start_offset <= record.offset < inside.end_offset:
            return record
    return None


def _latest_of(inside: _BatchSlice, batch: bytes) -> Record | None:
    return max(
        (
            candidate
            for candidate in decode_batch(batch)
            if inside.start_offset <= candidate.offset < inside.end_offset
        ),
        key=lambda record: (record.timestamp, -record.offset),
        default=None,
    )


def _of_batch(
    segment: Segment, mark: Mark, look: partial[Record | None], beside: ReadProgress | None
) -> Record | None:
    """Returns the record that `look` finds in the batch; another thread, if any, reads and decodes a large one."""
    if beside is None or _is_quick(segment, mark):
        return look(segment.records.batch(mark))
    key = (segment.path(naming.LOG), mark, look.func, look.args)
    work = partial(_search_on_thread, segment.records.file_for_threads, mark, look)
    records = beside.result(key, work, mark.size_bytes)
    return records[0] if records else look(segment.records.batch(mark))


def _is_quick(segment: Segment, mark: Mark) -> bool:
    if mark.size_bytes > SMALL_BYTES:
        return False
    header = read_header(segment.records.batch(mark))
    is_small = header.codec is Codec.NONE or mark.size_bytes <= _SMALL_COMPRESSED_BYTES
    return is_small and header.record_count <= _FEW_RECORDS


def _search_on_thread(file: DiskFile, mark: Mark, look: partial[Record | None]) -> tuple[Record | None, ...]:
    """Returns the record that was found; empty when the file cannot be read, as when it is closed meanwhile. Blocks, on any
    thread."""
    try:
        batch = file.pread(mark.size_bytes, mark.position)
    except OSError:
        return ()
    return (look(batch),)


def latest(
    segments: SegmentList,
    *,
    end_offset: int,
    beside: ReadProgress | None = None,
) -> TimestampedOffset | None:
    """Returns the first record below `end_offset` with the largest timestamp; None when there are no records."""
    start_offset = segments.start_offset
    placement: list[tuple[Mark, Segment]] = []
    for number in range(segments.number_of(start_offset), len(segments)):
        segment = segments[number]
        if segment.base_offset >= end_offset:
            break
        mark = _latest_batch(segment, start_offset, end_offset, segments.end_of(number))
        if mark is not None:
            placement.append((mark, segment))
    best: TimestampedOffset | None = None
    for mark, segment in sorted(placement, key=lambda home: (-home[0].max_timestamp, home[0].base_offset)):
        if best is not None and best.timestamp >= mark.max_timestamp:
            break
        timestamped_offset = _latest_record(segment, mark, start_offset, end_offset, beside)
        if timestamped_offset is not None and (best is None or timestamped_offset.timestamp > best.timestamp):
            best = timestamped_offset
    return best


def _latest_record(
    segment: Segment, mark: Mark, start_offset: int, end_offset: int, beside: ReadProgress | None
) -> TimestampedOffset | None:
    """Returns the latest record of the batch at `mark`; of the segment's next best batch where compaction emptied that one
    and left its header's time."""
    timestamped_offset = _latest_of_batch(segment, mark, start_offset, end_offset, beside)
    if timestamped_offset is not None:
        return timestamped_offset
    inside = _marks_inside(segment, start_offset, end_offset)
    for other in sorted(inside, key=lambda mark: (-mark.max_timestamp, mark.position)):
        timestamped_offset = _latest_of_batch(segment, other, start_offset, end_offset, beside)
        if timestamped_offset is not None:
            return timestamped_offset
    return None


def _latest_of_batch(
    segment: Segment, mark: Mark, start_offset: int, end_offset: int, beside: ReadProgress | None
) -> TimestampedOffset | None:
    inside = _BatchSlice(max(start_offset, mark.base_offset), min(end_offset, mark.last_offset + 1))
    record = _of_batch(segment, mark, partial(_latest_of, inside), beside)
    return None if record is None else TimestampedOffset(record.timestamp, record.offset, mark.leader_epoch)


def _latest_batch(segment: Segment, start_offset: int, end_offset: int, segment_end: int) -> Mark | None:
    """Finds the batch with the largest timestamp: with the index if the range covers the whole segment, else batch by batch."""
    entry = segment.index.max_timestamp()
    if entry is None:
        return None
    if start_offset <= segment.base_offset and segment_end <= end_offset:
        return segment.records.mark(segment.search.locate(entry.offset))
    inside = _marks_inside(segment, start_offset, end_offset)
    return max(inside, key=lambda mark: (mark.max_timestamp, -mark.position), default=None)


def _marks_inside(segment: Segment, start_offset: int, end_offset: int) -> list[Mark]:
    start = segment.search.locate(start_offset)
    segment.records.will_walk(start)
    return [
        mark
        for mark in segment.records.marks(start)
        if mark.base_offset < end_offset and mark.last_offset >= start_offset
    ]
