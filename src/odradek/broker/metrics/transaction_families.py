"""Transactions that this broker coordinates: how many are in which state, and which are open for the longest."""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from odradek.broker.requests.context import BrokerContext
from odradek.model.errors import KafkaError
from odradek.runtime.turns import Turn
from odradek.shards import Moment, Outcome, decided
from odradek.telemetry.metrics import Family, gauge, labels

if TYPE_CHECKING:
    from odradek.transactions.machine import TransactionMachine
    from odradek.transactions.state import Transaction

_SHOWN_MAX: Final = 10
"""Transactions that are open for the longest have series of their own."""


class TransactionFamilies:
    """The metric families of the transactions that this broker coordinates. `collect` fills them."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._states: Counter[str] = Counter({"Ongoing": 0})
        self._open: list[tuple[int, str]] = []
        """Milliseconds since the start of each transaction, and its transactional id."""

    async def collect(self, turn: Turn) -> None:
        parts = self._broker.kinds.transactions.existing_parts
        now_ms = self._broker.runtime.clock.wall_ms()
        for _, shard in parts.shards if parts is not None else ():
            await turn.step()
            try:
                entries = decided(shard, _entries)
            except KafkaError:
                continue  # it is loaded, or another broker leads it by now
            for transactional_id, transaction in entries:
                await turn.step()
                self._states[transaction.state.title] += 1
                if not transaction.state.is_idle and transaction.started_ms >= 0:
                    self._open.append((max(now_ms - transaction.started_ms, 0), transactional_id))

    def families(self) -> list[Family]:
        states = gauge("odradek_transactional_ids", "Transactional ids, by the state of their transaction.")
        for title, count in sorted(self._states.items()):
            states.add(count, labels(state=title))
        longest = gauge(
            "odradek_transaction_open_seconds_max", "Time for which a transaction is open at most."
        )
        longest.add(max(self._open)[0] / 1_000 if self._open else 0)
        ages = gauge("odradek_transaction_open_seconds", "Time for which the oldest transactions are open.")
        for age_ms, transactional_id in nlargest(_SHOWN_MAX, self._open):
            ages.add(age_ms / 1_000, labels(transactional_id=transactional_id))
        return [states, longest, ages]


def _entries(machine: TransactionMachine, now: Moment) -> Outcome[list[tuple[str, Transaction]]]:
    return machine.entries()
