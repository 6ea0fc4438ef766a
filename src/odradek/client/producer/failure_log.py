"""Failures that no one has seen yet: `flush` and `close` raise them, so that none is lost in silence."""

from __future__ import annotations

from collections import deque
from typing import Final

from odradek.client.network.errors import DeliveryError
from odradek.client.producer.delivery import ProducerBatch
from odradek.model.errors import ErrorValue

_REMEMBERED_MAX: Final = 1_000


class FailureLog:
    """Batches that failed. One whose `Delivery` someone looked at, or gave a callback to, counts as seen."""

    __slots__ = ("_batches", "_forgotten_count")

    def __init__(self) -> None:
        self._batches: deque[tuple[ProducerBatch, ErrorValue[Exception]]] = deque()
        self._forgotten_count = 0

    def note(self, batch: ProducerBatch, error: Exception) -> None:
        """Notes a failed batch; beyond a thousand batches it counts only the records, seen or not. Called on the loop."""
        if len(self._batches) < _REMEMBERED_MAX:
            self._batches.append((batch, ErrorValue.of(error)))
        else:
            self._forgotten_count += batch.record_count

    def pop(self) -> DeliveryError | None:
        """Returns the error to raise, if there is something to tell; it is raised once. From any thread."""
        first: ErrorValue[Exception] | None = None
        record_count = self._forgotten_count
        self._forgotten_count = 0
        while self._batches:
            batch, error = self._batches.popleft()
            if not batch.root.observed:
                record_count += batch.record_count
                first = first or error
        if first is None:
            return None
        return DeliveryError(record_count, first.exception())
