"""Which dead letters were sent back: ranges of offsets, kept in a compacted topic.

A record of `__odradek_redrives` marks a range as done. Its key is the dead-letter topic's id, the partition
and the range's first offset; its value has the end. It is written in the transaction that sends the letters
of the range, so it is there exactly when they are. Offsets of a group would be forgotten after some days
without a commit; this is not.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID

REDRIVES_TOPIC: Final = "__odradek_redrives"
REDRIVES_CONFIG: Final = {"cleanup.policy": "compact"}

StateRecord = tuple[bytes, bytes | None]
"""Key and value; no value: the range has become part of another one, or its letters were deleted."""


class RedrivenState:
    """The letters of one dead-letter topic that were sent back."""

    def __init__(
        self, topic: str, topic_id: UUID, records: Iterable[tuple[bytes | None, bytes | None]] = ()
    ) -> None:
        """`records`: all of the topic `__odradek_redrives`, in order. A topic that is made again has another id."""
        self._topic = topic
        self._name = topic if topic_id == ZERO_UUID else str(topic_id)
        ends: dict[tuple[int, int], int] = {}
        for key, value in records:
            place = self._place(key)
            if place is not None and value is None:
                ends.pop(place, None)
            elif place is not None and value is not None:
                ends[place] = _end(value)
        self._ranges: dict[int, RangeSet] = {}
        for (partition, start), end in sorted(ends.items()):
            self.of(partition).add(start, end)

    def of(self, partition: int) -> RangeSet:
        """Returns the offsets that need no second look."""
        return self._ranges.setdefault(partition, RangeSet())

    def records(self, partition: int, changes: Mapping[int, int | None]) -> Iterator[StateRecord]:
        """Yields the records to write for changes of `of(partition)`."""
        for start, end in changes.items():
            key = f"{self._name}/{partition}/{start}".encode()
            yield key, None if end is None else json.dumps({"topic": self._topic, "end": end}).encode()

    def _place(self, key: bytes | None) -> tuple[int, int] | None:
        """Returns partition and first offset from keys that concern this topic."""
        parts = (key or b"").decode("utf-8", "replace").rsplit("/", 2)
        if len(parts) != 3 or parts[0] != self._name:
            return None
        return int(parts[1]), int(parts[2])


def _end(value: bytes) -> int:
    try:
        return int(json.loads(value)["end"])  # digits: a number of our own JSON
    except (ValueError, TypeError, KeyError):
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"a record of {REDRIVES_TOPIC} was not written by odradek: {value[:80]!r}",
        ) from None


class RangeSet:
    """Offsets from `start` to before `end`, for each range."""

    def __init__(self, ranges: Mapping[int, int] | None = None) -> None:
        """`ranges`: from start to end. They may touch and overlap."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted((ranges or {}).items()):
            self.add(start, end)

    def add(self, start: int, end: int) -> dict[int, int | None]:
        """Adds a range. Returns the changes to store: the end of the range that contains it now, None for
        ranges that were merged into it."""
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
