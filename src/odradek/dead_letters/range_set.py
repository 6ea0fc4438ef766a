"""A set of offsets, kept as ranges that do not touch each other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping


class RangeSet:
    """Offsets from `start` to before `end`, for each range."""

    def __init__(self, ranges: Mapping[int, int] | None = None) -> None:
        """`ranges`: from start to end. They may touch and overlap."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted((ranges or {}).items()):
            self.add(start, end)

    def add(self, start: int, end: int) -> dict[int, int | None]:
        """Add a range. What is to be written down: the end of the range that has it now, None for ranges that went into it."""
        if start >= end:
            return {}
        first = bisect_right(self._starts, start)
        if first > 0 and self._ends[first - 1] >= start:
            first -= 1
        last = bisect_right(self._starts, end)
        if first < last:
            if self._starts[first] <= start and self._ends[first] >= end:
                return {}
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        changes: dict[int, int | None] = dict.fromkeys(self._starts[first:last])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        changes[start] = end
        return changes

    def drop_below(self, offset: int) -> dict[int, int | None]:
        """Drops the ranges that end at or below `offset`; returns the changes to write, as `add` does."""
        count = bisect_right(self._ends, offset)
        gone: dict[int, int | None] = dict.fromkeys(self._starts[:count])
        del self._starts[:count], self._ends[:count]
        return gone

    def end_of(self, offset: int) -> int | None:
        """Returns the end of the range that holds `offset`; None where none does."""
        index = bisect_right(self._starts, offset) - 1
        return self._ends[index] if index >= 0 and self._ends[index] > offset else None

    def __contains__(self, offset: int) -> bool:
        return self.end_of(offset) is not None

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._ends, strict=True)))
