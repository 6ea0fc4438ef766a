"""The growth of partitions: how long ago the oldest record was written that a group has yet to read. A core: no I/O, no clock.

Theory. Each scrape notes where partitions end that groups read. A group's next record was written between the last note that is
not beyond it and the first one that is, and its time is interpolated between the two. Notes become sparser with their age, so
that a partition costs at most `_NOTES_MAX` of them. A record that was written before the first note is at least as old as that.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection
from typing import Final

from odradek.model.ids import TopicPartition

_NOTES_MAX: Final = 32
"""The most notes of a partition: 512 bytes."""


class EndNotes:
    """The notes of one partition, oldest first."""

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._ends = array("q")
        self._times = array("d")

    def __len__(self) -> int:
        return len(self._ends)

    def note(self, end_offset: int, now: float) -> None:
        ends, times = self._ends, self._times
        if ends and end_offset < ends[-1]:  # the topic was made again, or its log was cut
            del ends[:], times[:]
        if len(ends) > 1 and ends[-2] == end_offset:
            times[-1] = now  # the end offset did not move: its first and its last time are enough
            return
        if len(ends) == _NOTES_MAX:
            self._thin_out()
        ends.append(end_offset)
        times.append(now)

    def _thin_out(self) -> None:
        """Drops every other note of the older half, but never the first."""
        older = slice(1, _NOTES_MAX // 2, 2)
        del self._ends[older], self._times[older]

    def age_s(self, offset: int, now: float) -> float:
        """Seconds since the record at `offset` was written; 0 for an offset that no note is beyond."""
        ends, times = self._ends, self._times
        beyond = bisect_right(ends, offset)
        if beyond == len(ends):
            return 0.0
        if beyond == 0:
            return now - times[0]
        early, late = beyond - 1, beyond
        share = (offset + 1 - ends[early]) / (ends[late] - ends[early])
        return max(now - (times[early] + share * (times[late] - times[early])), 0.0)


class EndHistory:
    """The notes of all partitions that groups read which this broker coordinates. Used on the event loop."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, EndNotes] = {}

    def note(self, name: TopicPartition, end_offset: int, now: float) -> None:
        notes = self._partitions.get(name)
        if notes is None:
            notes = self._partitions[name] = EndNotes()
        notes.note(end_offset, now)

    def age_s(self, name: TopicPartition, offset: int, now: float) -> float:
        notes = self._partitions.get(name)
        return 0.0 if notes is None else notes.age_s(offset, now)

    def keep(self, names: Collection[TopicPartition]) -> None:
        """Drops all other partitions: their topics were deleted, or no group reads them any more."""
        for name in self._partitions.keys() - names:
            del self._partitions[name]

    def __len__(self) -> int:
        return len(self._partitions)
