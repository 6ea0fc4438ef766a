"""The lag of groups over time: a bounded ring for each group."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from typing import Final, NamedTuple

SAMPLES_MAX: Final = 180
GROUPS_MAX: Final = 2_000


class LagSample(NamedTuple):
    """The lag of a group at one moment."""

    at_ms: int
    lag: int


class LagHistory:
    """Keeps the last samples of each group; of the group that was noted longest ago, none if there are too many groups."""

    def __init__(self, samples_max: int = SAMPLES_MAX, groups_max: int = GROUPS_MAX) -> None:
        self._samples_max = samples_max
        self._groups_max = groups_max
        self._rings: OrderedDict[str, array[int]] = OrderedDict()

    def note(self, group_id: str, at_ms: int, lag: int) -> None:
        """Adds a sample. An unknown lag (below 0) is left out."""
        if lag < 0:
            return
        ring = self._rings.setdefault(group_id, array("q"))
        self._rings.move_to_end(group_id)
        ring.extend((at_ms, lag))
        if len(ring) > 2 * self._samples_max:
            del ring[: len(ring) - 2 * self._samples_max]
        while len(self._rings) > self._groups_max:
            self._rings.popitem(last=False)

    def of(self, group_id: str) -> list[LagSample]:
        """Returns the samples of a group, the oldest first."""
        ring = self._rings.get(group_id, array("q"))
        return [LagSample(ring[index], ring[index + 1]) for index in range(0, len(ring), 2)]
