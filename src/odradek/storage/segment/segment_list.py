"""The segments of a log in order, and the offsets that they hold: from the log start offset to the log end offset."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from odradek.storage.segment.segment import Segment
from odradek.storage.segment.sparse_index import OFFSET_MAX
from odradek.storage.segment.transaction_index import AbortedTransaction


class SegmentList:
    """The segments of a log, at least one; the last is the active one. A segment ends where the next begins."""

    __slots__ = ("_aborted_bases", "_bases", "_segments", "end_offset", "size_bytes", "start_offset")

    def __init__(self, segments: list[Segment], *, start_offset: int, end_offset: int) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._aborted_bases = [segment.base_offset for segment in segments if len(segment.aborted)]
        """Base offsets of segments that contain markers of aborted transactions."""
        self.start_offset = start_offset
        """The first offset that may be read; inside of the first segment when records were deleted by request."""
        self.end_offset = end_offset
        """The offset of the next record."""
        self.size_bytes = sum(segment.size_bytes for segment in segments)
        """The bytes of all batches."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def base_offset(self) -> int:
        """The base offset of the first segment."""
        return self._bases[0]

    def number_of(self, offset: int) -> int:
        """Returns the number of the segment that holds `offset`: the last that begins at or below it, or the first."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def end_of(self, number: int) -> int:
        """Returns the offset at which a segment ends."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else self.end_offset

    # ---- aborted transactions ----------------------------------------------------------------------------------------

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Returns aborted transactions with records from start to end, in the order of their markers. Reads only segments
        that have any."""
        aborted: list[AbortedTransaction] = []
        bases = self._aborted_bases
        for base_offset in bases[max(bisect_right(bases, start_offset) - 1, 0) :]:
            if self._segments[self.number_of(base_offset)].aborted.find(start_offset, end_offset, aborted):
                break
        return aborted

    def transaction_sums(self) -> dict[int, int]:
        """Returns the CRC of each transaction index that is not empty, by the base offset of its segment."""
        return {base: self._segments[self.number_of(base)].aborted.sum for base in self._aborted_bases}

    def note_aborted(self, segment: Segment, transaction: AbortedTransaction) -> None:
        """Notes an aborted transaction; its marker is the newest batch of `segment`, the last one."""
        segment.aborted.note(transaction)
        if not self._aborted_bases or self._aborted_bases[-1] != segment.base_offset:
            self._aborted_bases.append(segment.base_offset)

    # ---- changes -----------------------------------------------------------------------------------------------------

    def appended(self, segment: Segment, size_bytes: int, end_offset: int, now_ms: int) -> None:
        """Batches were written to the active segment, which has `size_bytes` now. The log ends at `end_offset`."""
        self.size_bytes += size_bytes - segment.size_bytes
        segment.appended(size_bytes, now_ms)
        self.end_offset = end_offset

    def add(self, segment: Segment) -> None:
        """Adds a new active segment."""
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replaces segments that follow each other by one, which begins where the first of them did."""
        first = self.number_of(new.base_offset)
        if tuple(self._segments[first : first + len(old)]) != tuple(old):
            raise AssertionError(f"the segments from {new.base_offset} on are not those that were compacted")
        self._segments[first : first + len(old)] = [new]
        self._bases[first : first + len(old)] = [new.base_offset]
        self._aborted_bases = [segment.base_offset for segment in self._segments if len(segment.aborted)]
        self.size_bytes += new.size_bytes - sum(segment.size_bytes for segment in old)

    def drop_first(self, count: int) -> list[Segment]:
        """Removes the `count` oldest segments."""
        dropped = self._segments[:count]
        del self._segments[:count]
        del self._bases[:count]
        first_offset = self._bases[0] if self._bases else OFFSET_MAX
        del self._aborted_bases[: bisect_left(self._aborted_bases, first_offset)]
        self.size_bytes -= sum(segment.size_bytes for segment in dropped)
        return dropped

    def keep_first(self, count: int) -> list[Segment]:
        """Removes all segments after the first `count`; the transaction index of the last one that stays was cut.

        `truncated` must follow.
        """
        dropped = self._segments[count:]
        del self._segments[count:]
        del self._bases[count:]
        self._aborted_bases = [segment.base_offset for segment in self._segments if len(segment.aborted)]
        return dropped

    def truncated(self, start_offset: int, end_offset: int) -> None:
        """Takes over the new bounds, and counts the bytes of the segments that stay."""
        self.start_offset, self.end_offset = start_offset, end_offset
        self.size_bytes = sum(segment.size_bytes for segment in self._segments)
