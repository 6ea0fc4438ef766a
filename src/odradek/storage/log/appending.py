"""What becomes of batches when they are appended: their places, and what the active segment notes of them."""

from __future__ import annotations

from odradek.records import assign
from odradek.storage.log.active_segment import Batches
from odradek.storage.segment.segment import Segment


def place(batches: Batches, first_offset: int, leader_epoch: int, log_append_time: int | None) -> int:
    """Write offsets, epoch and append time into the batches; return the offset behind the last."""
    next_offset = first_offset
    for header, batch in batches:
        assign(batch, next_offset, leader_epoch, log_append_time=log_append_time)
        next_offset += header.last_offset_delta + 1
    return next_offset


def note_batches(segment: Segment, batches: Batches, first_offset: int, log_append_time: int | None) -> int:
    """Enter batches that were written into the indexes in memory; return the segment's size with them."""
    _, index = segment.writing()
    interval, position, next_offset = segment.index.interval_bytes, segment.size_bytes, first_offset
    for header, _ in batches:
        next_offset += header.last_offset_delta + 1
        timestamp = header.max_timestamp if log_append_time is None else log_append_time
        index.note(interval, position, header.size_bytes, next_offset - 1, timestamp)
        position += header.size_bytes
    return position


def note_fetched(segment: Segment, batches: Batches) -> int:
    """The same for batches that came with their offsets and times."""
    _, index = segment.writing()
    interval, position = segment.index.interval_bytes, segment.size_bytes
    for header, _ in batches:
        index.note(interval, position, header.size_bytes, header.last_offset, header.max_timestamp)
        position += header.size_bytes
    return position
