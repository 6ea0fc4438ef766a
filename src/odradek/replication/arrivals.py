"""Notes when a follower's records arrived, by this process's own clock: their age does not depend on wall clocks. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

_APART_S: Final = 1.0
_KEPT_S: Final = 300.0


class _Mark(NamedTuple):
    end_offset: int
    began_s: float
    ended_s: float
    """Records between the previous mark and `end_offset` arrived from `began_s` to `ended_s`."""


class Arrivals:
    """One mark for each second in which anything arrived, of the last minutes."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque()

    def __len__(self) -> int:
        """Returns how many marks are kept."""
        return len(self._marks)

    def note(self, end_offset: int, now_s: float) -> None:
        """Notes that the log ends at `end_offset` now."""
        marks = self._marks
        began_s = now_s
        if marks and now_s - marks[-1].began_s < _APART_S:
            began_s = marks.pop().began_s
        marks.append(_Mark(end_offset, began_s, now_s))
        while now_s - marks[0].ended_s > _KEPT_S:
            marks.popleft()

    def age_s(self, offset: int, now_s: float) -> float | None:
        """Returns the least time that the record has been here; None when that is unknown."""
        for mark in self._marks:
            if offset < mark.end_offset:
                return now_s - mark.ended_s
        return None

    def forget(self) -> None:
        """Forgets marks after the log was cut."""
        self._marks.clear()
