"""Reads from a disk that give way to the syncs of the same disk.

A sync is a few requests to the disk, one after another, and each queues behind the reads that are there already. So reads of
data that is not in memory are small where there are syncs, and a new one waits while a sync is under way. The wait is bounded
by the duration of the read before it, and so by the speed of the disk: a reader keeps a fifth of its pace, however many syncs
follow each other. After a read that took very long, such as that of a disk that hung, it is bounded by a second: meanwhile a
thread waits with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

PATIENCE: Final = 4.0
"""How long a read waits for syncs at most: in durations of the last read."""
WAIT_S_MAX: Final = 1.0
"""How long a read waits at most, however long the last one took."""


class ColdReads:
    """The reads and syncs of one disk. Used on any thread."""

    __slots__ = (
        "_begun_count",
        "_begun_count_seen",
        "_last_read_s",
        "_none_under_way",
        "_now",
        "_sync_count",
    )

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._none_under_way = threading.Condition()
        self._sync_count = 0
        """Syncs under way."""
        self._begun_count = 0
        """All syncs that ever began."""
        self._begun_count_seen = 0
        """Syncs that had begun when the last read began."""
        self._last_read_s = 0.0
        """The duration of the last read. Threads replace it without a lock: any of their values will do."""

    def sync_began(self) -> None:
        with self._none_under_way:
            self._sync_count += 1
            self._begun_count += 1

    def sync_ended(self) -> None:
        with self._none_under_way:
            self._sync_count -= 1
            if self._sync_count == 0:
                self._none_under_way.notify_all()

    @property
    def meet_syncs(self) -> bool:
        """Whether a sync is under way, or began since the last read did: reads should be small."""
        return self._sync_count > 0 or self._begun_count != self._begun_count_seen

    def read(self, work: Callable[[], int]) -> int:
        """Calls `work`, a read of bounded size, and returns its result. Waits first while a sync is under way, for a bounded
        time."""
        if self._sync_count:
            with self._none_under_way:
                longest_s = min(PATIENCE * self._last_read_s, WAIT_S_MAX)
                self._none_under_way.wait_for(lambda: not self._sync_count, longest_s)
        self._begun_count_seen = self._begun_count
        began = self._now()
        count = work()
        self._last_read_s = self._now() - began
        return count
