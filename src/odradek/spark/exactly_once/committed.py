"""Which of a sink's transactions are known to be committed: what producers go on from without a question to a broker."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from odradek.spark.exactly_once.decision import Decision

DECISIONS_MAX: Final = 8
"""Spark gives the tasks of a query to any of its Python processes: one that wrote a batch may write the next one but six."""
TRANSACTIONS_MAX: Final = 256
"""Beyond that, fewer decisions: all of this travels with each task."""

ProducerAndEpoch = tuple[int, int]
"""Names one transaction: a producer id belongs to one transactional id, and each of its transactions has an epoch (KIP-890)."""


@dataclass(slots=True)
class CommittedTransactions:
    """The transactions of the last decisions that were carried out without a loss.

    A decision that was carried out stays so, also one of another driver: entries may be old, and are never wrong.
    """

    _by_driver: deque[tuple[ProducerAndEpoch, frozenset[ProducerAndEpoch]]] = field(default_factory=deque)

    def note(self, decision: Decision) -> None:
        """Notes that all transactions of the decision are committed. Idempotent."""
        if any(driver == decision.driver for driver, _ in self._by_driver):
            return
        transactions = frozenset(
            (participant.producer_id, participant.producer_epoch) for participant in decision.participants
        )
        self._by_driver.append((decision.driver, transactions))
        while len(self._by_driver) > DECISIONS_MAX or (len(self._by_driver) > 1 and self._is_over_limit()):
            self._by_driver.popleft()

    def transactions(self) -> frozenset[ProducerAndEpoch]:
        """Returns all transactions that are remembered now."""
        return frozenset[ProducerAndEpoch]().union(*(transactions for _, transactions in self._by_driver))

    def _is_over_limit(self) -> bool:
        return sum(len(transactions) for _, transactions in self._by_driver) > TRANSACTIONS_MAX
