"""Sets of offsets, kept as runs: what an archive and a topic hold is compared without an object per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]
_NONE: Final[Offsets] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OffsetRuns:
    """A set of offsets: run i holds `starts[i]` up to, but without, `ends[i]`. Sorted; runs neither overlap nor touch."""

    starts: Offsets
    ends: Offsets

    @classmethod
    def empty(cls) -> OffsetRuns:
        return cls(starts=_NONE, ends=_NONE)

    @classmethod
    def between(cls, start: int, end: int) -> OffsetRuns:
        """Returns all offsets from `start` up to, but without, `end`."""
        return (
            cls(starts=np.array([start], np.int64), ends=np.array([end], np.int64))
            if start < end
            else cls.empty()
        )

    @classmethod
    def of(cls, offsets: Offsets) -> OffsetRuns:
        """Returns the set of these offsets, in any order; repeated ones count once."""
        if len(offsets) == 0:
            return cls.empty()
        distinct = np.unique(offsets)
        breaks = np.flatnonzero(np.diff(distinct) != 1)
        starts = distinct[np.concatenate(([0], breaks + 1))]
        ends = distinct[np.concatenate((breaks, [len(distinct) - 1]))] + 1
        return cls(starts=starts, ends=ends)

    @classmethod
    def union(cls, sets: Iterable[OffsetRuns]) -> OffsetRuns:
        """Returns the offsets that are in at least one of the sets."""
        listed = list(sets)
        starts = np.concatenate([offset_runs.starts for offset_runs in listed]) if listed else _NONE
        if len(starts) == 0:
            return cls.empty()
        ends = np.concatenate([offset_runs.ends for offset_runs in listed])
        order = np.argsort(starts, kind="stable")
        starts, reach = starts[order], np.maximum.accumulate(ends[order])
        is_first = np.concatenate(([True], starts[1:] > reach[:-1]))
        is_last = np.concatenate((is_first[1:], [True]))
        return cls(starts=starts[is_first], ends=reach[is_last])

    def __len__(self) -> int:
        """Returns the number of offsets."""
        return int((self.ends - self.starts).sum())

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The runs: start, end."""
        return zip(self.starts.tolist(), self.ends.tolist(), strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OffsetRuns):
            return NotImplemented
        return np.array_equal(self.starts, other.starts) and np.array_equal(self.ends, other.ends)

    def __hash__(self) -> int:
        return hash((self.starts.tobytes(), self.ends.tobytes()))

    def minus(self, other: OffsetRuns) -> OffsetRuns:
        """Returns the offsets that are here and not in `other`."""
        return _select(self, other, in_other=False)

    def within(self, other: OffsetRuns) -> OffsetRuns:
        """Returns the offsets that are both here and in `other`."""
        return _select(self, other, in_other=True)


def _select(mine: OffsetRuns, other: OffsetRuns, *, in_other: bool) -> OffsetRuns:
    """Walks all borders in order and keeps the stretches that are inside of `mine` and inside, or outside, of `other`."""
    points = np.concatenate((mine.starts, mine.ends, other.starts, other.ends))
    if len(points) == 0:
        return OffsetRuns.empty()
    steps = [len(mine.starts), len(mine.ends), len(other.starts), len(other.ends)]
    order = np.argsort(points, kind="stable")
    points = points[order]
    in_mine = np.cumsum(np.repeat([1, -1, 0, 0], steps)[order])[:-1] > 0
    is_in_other = np.cumsum(np.repeat([0, 0, 1, -1], steps)[order])[:-1] > 0
    is_covered = in_mine & (is_in_other == in_other) & (points[1:] > points[:-1])
    return OffsetRuns.union([OffsetRuns(starts=points[:-1][is_covered], ends=points[1:][is_covered])])


def spell(runs: OffsetRuns, most: int = 3) -> str:
    """Returns the first runs for people: `5, 7-9 and 12 runs more`."""
    texts = [str(start) if end == start + 1 else f"{start}-{end - 1}" for start, end in runs]
    shown = ", ".join(texts[:most])
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most} runs more"
