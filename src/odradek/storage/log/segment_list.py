"""The segments of a log in order: which of them holds an offset, and where each ends."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from odradek.storage.segment.segment import Segment
from odradek.storage.segment.sparse_index import OFFSET_MAX
from odradek.storage.segment.transaction_index import AbortedTransaction


class SegmentList:
    """At least one segment; the last is the active one. A segment ends where the next begins."""

    __slots__ = ("_aborted_bases", "_bases", "_segments")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._aborted_bases = [segment.base_offset for segment in segments if len(segment.aborted)]
        """Of the segments with markers of aborted transactions."""

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
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def number_of(self, offset: int) -> int:
        """The segment that holds `offset`: the last that begins at or below it, or the first of all."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def end_of(self, number: int, log_end_offset: int) -> int:
        """The offset at which a segment ends."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else log_end_offset

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those with records from start to end, in the order of their markers. Only segments with aborted ones are asked."""
        found: list[AbortedTransaction] = []
        bases = self._aborted_bases
        for base_offset in bases[max(bisect_right(bases, start_offset) - 1, 0) :]:
            if self._segments[self.number_of(base_offset)].aborted.find(start_offset, end_offset, found):
                break
        return found

    def transaction_sums(self) -> dict[int, int]:
        """By base offset: the CRC of each transaction index that is not empty."""
        return {base: self._segments[self.number_of(base)].aborted.sum for base in self._aborted_bases}

    def note_aborted(self, segment: Segment, transaction: AbortedTransaction) -> None:
        """Its marker is the newest batch of the segment, the last one."""
        segment.aborted.note(transaction)
        if not self._aborted_bases or self._aborted_bases[-1] != segment.base_offset:
            self._aborted_bases.append(segment.base_offset)

    def add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Put a segment in the place of some that follow each other; it begins where the first of them did."""
        first = self.number_of(new.base_offset)
        if tuple(self._segments[first : first + len(old)]) != tuple(old):
            raise AssertionError(f"the segments from {new.base_offset} on are not those that were compacted")
        self._segments[first : first + len(old)] = [new]
        self._bases[first : first + len(old)] = [new.base_offset]
        self._aborted_bases = [one.base_offset for one in self._segments if len(one.aborted)]

    def drop_first(self, count: int) -> list[Segment]:
        """Take the `count` oldest segments out."""
        dropped = self._segments[:count]
        del self._segments[:count]
        del self._bases[:count]
        first_offset = self._bases[0] if self._bases else OFFSET_MAX
        del self._aborted_bases[: bisect_left(self._aborted_bases, first_offset)]
        return dropped

    def keep_first(self, count: int) -> list[Segment]:
        """Take all segments behind the first `count` out; of the last one that stays the transaction index was cut."""
        dropped = self._segments[count:]
        del self._segments[count:]
        del self._bases[count:]
        self._aborted_bases = [one.base_offset for one in self._segments if len(one.aborted)]
        return dropped
