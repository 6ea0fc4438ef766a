"""Where a log is cut when it is truncated: between two batches."""

from __future__ import annotations

from typing import NamedTuple

from odradek.storage.log.damage import DamagedBatchError
from odradek.storage.log.segment_list import SegmentList


class Cut(NamedTuple):
    """What stays: the segments up to number `number`, of that one `position` bytes. The log ends at `end_offset` then."""

    number: int
    position: int
    end_offset: int


def find_cut(segments: SegmentList, offset: int) -> Cut | None:
    """In front of the first batch that reaches to `offset`; None when no batch stays.

    Where offsets are missing, because a compaction took them, the log ends behind the last batch that stays: what a restart
    would find.
    """
    number = segments.number_of(offset)
    try:
        position = segments[number].search.locate(offset)
    except DamagedBatchError:  # what cannot be read is cut off, too
        position = segments[number].records.damaged_at(offset)
    while position == 0:
        if number == 0:
            return None
        number -= 1
        position = segments[number].size_bytes
    return Cut(number, position, segments[number].search.mark_before(position).last_offset + 1)
