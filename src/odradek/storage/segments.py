"""The segments of a log in order: which of them holds an offset, and where each ends."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from odradek.storage.segment import Segment


class SegmentList:
    """At least one segment; the last is the active one. A segment ends where the next begins."""

    __slots__ = ("_bases", "_segments")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]

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

    def add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def drop_first(self, count: int) -> list[Segment]:
        """Take the `count` oldest segments out."""
        dropped = self._segments[:count]
        del self._segments[:count]
        del self._bases[:count]
        return dropped
