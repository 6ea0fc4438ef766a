"""The open transactions of a log, and how far readers of committed records may read because of them. Pure.

A transaction is *open* from its first batch to its marker, and then *decided*: its outcome is known here, but until the high
watermark has passed the marker a crash, or another leader, could undo it. Readers of committed records stop at the first
offset of the oldest transaction that is either.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class EndedTransaction(NamedTuple):
    """A transaction that a marker ended. Markers of producers that had written nothing end none."""

    producer_id: int
    first_offset: int
    marker_offset: int
    is_commit: bool
    last_stable_offset: int
    """The first offset of the oldest transaction that is still open, or the offset after the marker."""


class LogTransactions:
    """The transactions of one log."""

    __slots__ = ("_decided", "_open")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        """Producer ids by the first offset of their transaction, ascending."""
        self._decided: deque[tuple[int, int]] = deque()
        """(Marker, first offset) of those whose marker may be above the high watermark, in the order of the markers."""

    def __len__(self) -> int:
        """Returns how many transactions are open."""
        return len(self._open)

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Notes the begin of a transaction. Idempotent."""
        if first_offset in self._open:
            return
        is_last = not self._open or next(reversed(self._open)) < first_offset
        self._open[first_offset] = producer_id
        if not is_last:
            self._open = dict(sorted(self._open.items()))

    def end(self, ended: EndedTransaction) -> None:
        del self._open[ended.first_offset]
        self._decided.append((ended.marker_offset, ended.first_offset))

    def forget_decided(self) -> None:
        """Forgets transactions that are decided: all their markers are below the high watermark."""
        self._decided.clear()

    def oldest_but(self, first_offset: int) -> int | None:
        """Returns the first offset of the oldest open transaction other than the one that began there."""
        return next((offset for offset in self._open if offset != first_offset), None)

    @property
    def oldest_producer_id(self) -> int | None:
        """The producer whose open transaction began first; None without one."""
        return next(iter(self._open.values()), None)

    def stable_below(self, high_watermark: int) -> int:
        """Returns the last stable offset. `high_watermark` never goes back: what is decided below it is forgotten."""
        decided = self._decided
        if not self._open and not decided:
            return high_watermark
        while decided and decided[0][0] < high_watermark:
            decided.popleft()
        stable = next(iter(self._open), high_watermark)
        for _, first_offset in decided:
            stable = min(stable, first_offset)
        return min(stable, high_watermark)
