"""The transactions that a compaction meets while it goes through a log from its start. Pure.

Records of an aborted transaction go. A marker stays as long as anything of its transaction does: the first compaction that
meets none of it gives the marker its delete horizon, and one after that time drops it. The entry of the transaction index
stays and goes with the records, as readers use it to leave them out.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.records import BatchHeader, ControlKind


class CleanedTransactions:
    """The aborted transactions and markers that a compaction meets; tells which of them may go. It must see every batch in
    order."""

    __slots__ = ("_aborting", "_coming", "_committing")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """`aborted` contains (producer id, first offset) of transactions whose marker is at or after the first batch shown."""
        self._coming = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._aborting: dict[int, bool] = {}
        """Producer ids in an aborted transaction that is being passed; the value is True once a batch of it was seen."""
        self._committing: set[int] = set()
        """Producers with batches of a transaction that will be committed."""

    def _begin(self, offset: int) -> None:
        while self._coming and self._coming[-1][0] <= offset:
            self._aborting[self._coming.pop()[1]] = False

    def is_aborted(self, header: BatchHeader) -> bool:
        """Returns whether the transaction of a batch of records was aborted."""
        self._begin(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborting:
            self._aborting[header.producer_id] = True
            return True
        self._committing.add(header.producer_id)
        return False

    def is_done(self, header: BatchHeader, kind: ControlKind | None) -> bool:
        """Returns whether a marker of this kind (None: an unknown kind) has nothing of its transaction left."""
        self._begin(header.last_offset)
        if kind is ControlKind.ABORT:
            return not self._aborting.pop(header.producer_id, False)
        if kind is ControlKind.COMMIT:
            was_seen = header.producer_id in self._committing
            self._committing.discard(header.producer_id)
            return not was_seen
        return False
