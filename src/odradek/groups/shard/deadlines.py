"""Deadlines: there are many, each is moved often, and the next one is always known.

A heartbeat moves a session's deadline far more often than one ever passes, so moving it later costs one dictionary entry: the
heap keeps the earlier time, and puts the deadline back in its place when that time comes.
"""

from __future__ import annotations

import heapq
from enum import Enum
from typing import NamedTuple


class DeadlineKey(NamedTuple):
    """The key of a deadline. `kind` is any enumeration's member; `member_id` is empty for a deadline of the whole group."""

    kind: Enum
    group_id: str
    member_id: str = ""


class Deadlines:
    """A heap of deadlines by key, in milliseconds of the monotonic clock."""

    __slots__ = ("_count", "_heap", "_times")

    def __init__(self) -> None:
        self._times: dict[DeadlineKey, int] = {}
        self._heap: list[tuple[int, int, DeadlineKey]] = []
        """(Not later than its time, serial number, what). Each live deadline is in it at least once."""
        self._count = 0

    def __len__(self) -> int:
        return len(self._times)

    @property
    def entry_count(self) -> int:
        """How many entries are in memory: deadlines that were moved or cancelled may stay for a while."""
        return len(self._heap)

    def set(self, due: DeadlineKey, at_ms: int) -> None:
        """Sets the deadline, or moves it."""
        before = self._times.get(due)
        self._times[due] = at_ms
        if before is None or at_ms < before:
            self._push(due, at_ms)

    def cancel(self, due: DeadlineKey) -> None:
        self._times.pop(due, None)

    def at(self, due: DeadlineKey) -> int | None:
        return self._times.get(due)

    def next_ms(self) -> int | None:
        """Returns the earliest deadline; None when there is none."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def next_check_ms(self) -> int | None:
        """Returns a time that no deadline comes before; None when there is none. It costs nothing, but a deadline that was
        moved may still be there at its earlier time, until `peek` or `next_ms` is asked."""
        return self._heap[0][0] if self._heap else None

    def peek(self, now_ms: int) -> DeadlineKey | None:
        """Returns the earliest deadline, if its time has come."""
        self._settle()
        return self._heap[0][2] if self._heap and self._heap[0][0] <= now_ms else None

    def _push(self, due: DeadlineKey, at_ms: int) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at_ms, self._count, due))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._times):
            self._heap = [(time, number, key) for number, (key, time) in enumerate(self._times.items())]
            self._count = len(self._heap)
            heapq.heapify(self._heap)

    def _settle(self) -> None:
        """Repairs the top of the heap: forgets cancelled deadlines, moves the ones that were moved."""
        heap, times = self._heap, self._times
        while heap:
            listed_ms, _, due = heap[0]
            actual_ms = times.get(due)
            if actual_ms == listed_ms:
                return
            heapq.heappop(heap)
            if actual_ms is not None and actual_ms > listed_ms:
                self._push(due, actual_ms)
