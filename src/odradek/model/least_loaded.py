"""The least loaded of many, again and again, without looking at all of them each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from typing import Generic, TypeVar

T = TypeVar("T")


class LeastLoaded(Generic[T]):
    """Finds the least loaded of `candidates`, of which there is at least one. The caller owns `loads`, which only grow: an
    old entry of the heap is a lower bound, so that it is enough to correct the first one."""

    __slots__ = ("_candidates", "_heap", "_loads")

    def __init__(self, candidates: Sequence[T], loads: Mapping[T, int]) -> None:
        self._candidates = candidates
        self._loads = loads
        self._heap = [(loads[candidate], place) for place, candidate in enumerate(candidates)]
        heapify(self._heap)

    def find(self) -> T:
        """Returns the candidate with the smallest load; of several, the first in the order of the candidates."""
        heap = self._heap
        while True:
            load, place = heap[0]
            candidate = self._candidates[place]
            load_now = self._loads[candidate]
            if load_now == load:
                return candidate
            heapreplace(heap, (load_now, place))
