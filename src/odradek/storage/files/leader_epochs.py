"""The leader epochs that wrote a log, with their start offsets (KIP-101, KIP-279). Pure.

An entry has the offset at which an epoch began; it ends where the next begins. Replicas use this, never the
high watermark, to find out where their logs part.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The answer to OffsetForLeaderEpoch; (-1, -1) is Kafka's 'unknown'."""

    epoch: int
    end_offset: int


UNKNOWN_EPOCH_END = EpochEnd(-1, -1)


class EpochHistory:
    """The leader epochs of a log with their start offsets. Entries ascend strictly in both."""

    __slots__ = ("_entries",)

    def __init__(self, entries: list[EpochStart] | None = None) -> None:
        self._entries = list(entries or [])

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> int:
        """-1 when no epoch wrote anything yet."""
        return self._entries[-1].epoch if self._entries else -1

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Begins `epoch` (at the latest) with `start_offset`. Returns True when that is news.

        An epoch that was assigned and wrote nothing is replaced by the next one that begins at the same offset."""
        if epoch <= self.latest or epoch < 0:
            return False
        while self._entries and self._entries[-1].start_offset >= start_offset:
            self._entries.pop()
        self._entries.append(EpochStart(epoch, start_offset))
        return True

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Returns the largest epoch not above `epoch` that this log knows, and the offset at which it ended here."""
        if epoch < 0 or epoch > self.latest:
            return UNKNOWN_EPOCH_END
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        above = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        known = self._entries[above - 1].epoch if above else epoch
        return EpochEnd(known, self._entries[above].start_offset)

    def epoch_of(self, offset: int) -> int:
        """Returns the epoch that wrote `offset`; -1 when it is older than all entries."""
        above = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[above - 1].epoch if above else -1

    def truncate_from_end(self, end_offset: int) -> bool:
        """Ends the log at `end_offset`: drops an epoch that would begin there or later. Returns True when there was one."""
        count = len(self._entries)
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        return len(self._entries) != count

    def truncate_from_start(self, start_offset: int) -> bool:
        """Begins the log at `start_offset`, where the epoch that covers it begins, too. Returns True when something changed."""
        above = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if above == 0 or (above == 1 and self._entries[0].start_offset == start_offset):
            return False
        self._entries[:above] = [EpochStart(self._entries[above - 1].epoch, start_offset)]
        return True
