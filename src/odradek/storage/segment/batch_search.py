"""Finds a batch of one segment by offset or time: with remembered positions, then with the index, then batch by batch.

An entry of an index is checked against the batch that it names whenever it is used, and an index is never fully trusted.
"""

from __future__ import annotations

from typing import Final

from odradek.storage.segment.batch_walk import BrokenChain, Mark, walk
from odradek.storage.segment.file_records import FileRecords
from odradek.storage.segment.segment_index import SegmentIndex
from odradek.storage.segment.sparse_index import OFFSET_MAX, OffsetEntry, TimeEntry

_HINTS_MAX: Final = 64


class BatchSearch:
    """Finds the batches of one segment. Used on the event loop only."""

    __slots__ = ("_hints", "_index", "_records")

    def __init__(self, records: FileRecords, index: SegmentIndex) -> None:
        self._records = records
        self._index = index
        self._hints = index.hints

    def locate(self, offset: int) -> int:
        """Returns the byte position of the first batch that ends at or after `offset`; the segment's size when none does."""
        if offset <= self._records.base_offset:
            return 0
        hint = self._hints.get(offset)
        return hint if hint is not None else self._search(offset)

    def remember(self, offset: int, position: int) -> None:
        """Notes that the batch that begins with `offset` is (or will be) at `position`."""
        hints = self._hints
        if len(hints) >= _HINTS_MAX:
            del hints[next(iter(hints))]
        hints[offset] = position

    def remembered(self, offset: int) -> int:
        """Returns the position of the batch that begins with `offset`; -1 when it is not remembered."""
        return self._hints.get(offset, -1)

    def _search(self, offset: int) -> int:
        entry = self._index.floor(offset)
        if entry is not None:
            try:
                return self._walk_to(offset, entry)
            except BrokenChain as doubt:
                self._index.rebuild(doubt.reason)
        try:
            return self._walk_to(offset, self._index.floor(offset))
        except BrokenChain as damage:
            raise self._records.damaged(damage) from None

    def _walk_to(self, offset: int, entry: OffsetEntry | None) -> int:
        size_bytes, position = self._records.size_bytes, entry.position if entry is not None else 0
        if entry is not None and not 0 <= position < size_bytes:
            raise BrokenChain(position, "an offset index entry points outside of the log")
        for mark in walk(self._records.log_file, position, size_bytes):
            if entry is not None and mark.position == position and mark.last_offset != entry.offset:
                raise BrokenChain(position, "an offset index entry names another batch")
            if mark.last_offset >= offset:
                return mark.position
        return size_bytes

    def last_batch(self) -> Mark | None:
        """Returns the last batch, read from the file; None in an empty segment."""
        self._search(OFFSET_MAX)  # finds out whether the last index entry is true
        entry = self._index.floor(OFFSET_MAX)
        last = None
        for mark in self._records.marks(entry.position if entry is not None else 0):
            last = mark
        return last

    def mark_before(self, position: int) -> Mark:
        """Returns the batch that ends at byte `position`, which is not the first."""
        entry = self._index.floor_by_position(position - 1)
        if entry is not None and self._records.mark(entry.position).last_offset != entry.offset:
            self._index.rebuild("an offset index entry names another batch")
            entry = self._index.floor_by_position(position - 1)
        for mark in self._records.marks(entry.position if entry is not None else 0):
            if mark.position + mark.size_bytes >= position:
                return mark
        raise self._records.damaged(BrokenChain(position, "no batch ends here"))

    def floor_time(self, timestamp: int) -> TimeEntry | None:
        """Returns the last time entry at or before `timestamp`, checked against the batch that it names."""
        entry = self._index.floor_time(timestamp)
        if entry is None or self._index.in_memory is not None or self._is_true(entry):
            return entry
        self._index.rebuild("a time index entry is not true of its batch")
        return self._index.floor_time(timestamp)

    def _is_true(self, entry: TimeEntry) -> bool:
        position = self.locate(entry.offset)
        if position >= self._records.size_bytes:
            return False
        mark = self._records.mark(position)
        return (mark.last_offset, mark.max_timestamp) == (entry.offset, entry.timestamp)
