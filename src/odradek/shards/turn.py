"""The records of all operations in one turn of the event loop: one batch, and the waiters for it.

Many members of a group commit at once. A batch for each would cost far more than what is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek.records import BatchBuilder
from odradek.shards.held import HeldOutcome
from odradek.shards.outcome import NewRecord

_RECORD_BYTES_MAX: Final = 48
"""The most bytes that a record has in addition to its key and value: seven varints."""
_BATCH_BYTES: Final = 61


class OutcomeOrder:
    """Outcomes in their order. Those without records wait for those before them, as their replies may show them."""

    __slots__ = ("_builder", "_bytes_max", "_left_bytes", "record_count", "waiting")

    def __init__(self, bytes_max: int) -> None:
        self._builder = BatchBuilder()
        self._bytes_max = bytes_max
        self._left_bytes = bytes_max - _BATCH_BYTES
        self.record_count = 0
        self.waiting: list[HeldOutcome] = []

    def try_append(self, records: Sequence[NewRecord], now_ms: int) -> bool:
        """Appends the records if there is room for all of them; returns whether there is."""
        weight_bytes = 0
        for key, value in records:
            weight_bytes += _RECORD_BYTES_MAX + len(key) + (0 if value is None else len(value))
        if weight_bytes > self._left_bytes:
            return False
        self._left_bytes -= weight_bytes
        append = self._builder.append
        for key, value in records:
            append(now_ms, key, value, ())
        self.record_count += len(records)
        return True

    def build(self) -> bytearray:
        return self._builder.build()
