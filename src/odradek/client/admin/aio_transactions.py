"""Administration of transactions and producers, asynchronously."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from odradek.client.admin import transactions
from odradek.client.admin.session import AdminSession
from odradek.client.admin.transaction_descriptions import (
    OpenTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from odradek.client.groups.coordinator import TRANSACTION
from odradek.model.ids import TopicPartition


class TransactionAdministration(AdminSession):
    """Transactional ids, the producers of partitions, and transactions that hang."""

    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        duration_ms: int | None = None,
        pattern: str | None = None,
        timeout_s: float | None = None,
    ) -> list[TransactionListing]:
        """Transactional ids of all brokers, sorted; those open for at least `duration_ms`, those that match `pattern`."""
        told = await self._everywhere(
            "list_transactions",
            timeout_s,
            lambda broker, _, __: transactions.list_transactions(
                broker, states, producer_ids, duration_ms, pattern
            ),
        )
        found = (each for some in told.values() for each in some)
        return sorted(found, key=lambda each: str(each.transactional_id))

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, TransactionDescription]:
        """State, producer and partitions of transactional ids."""
        told: dict[str, TransactionDescription] = await self._each(
            "describe_transactions",
            dict.fromkeys(transactional_ids),
            timeout_s,
            None,
            by=partial(self._calls.by_coordinator, TRANSACTION),
            ask_broker=lambda broker, some, _: transactions.describe_transactions(some, broker),
        )
        return told

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[ProducerDescription, ...]]:
        """The producers that each partition remembers, and where their open transactions begin."""
        wanted = dict.fromkeys(TopicPartition(*tp) for tp in partitions)
        told: dict[TopicPartition, tuple[ProducerDescription, ...]] = await self._each(
            "describe_producers",
            wanted,
            timeout_s,
            transactions.describe_producers,
            by=self._calls.by_leader,
        )
        return told

    async def abort_transaction(
        self, open_transaction: OpenTransaction, *, timeout_s: float | None = None
    ) -> None:
        """Write the abort marker that a hanging transaction lacks in one partition: for transactions nobody else will end."""
        await self._each(
            "abort_transaction",
            {open_transaction.partition: open_transaction},
            timeout_s,
            transactions.abort_transactions,
            by=self._calls.by_leader,
        )
