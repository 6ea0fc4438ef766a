"""Admin calls about transactions: the brokers that they go to, and the form of their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from odradek.client.admin import transactions
from odradek.client.admin.calls import Grouped, Items
from odradek.client.admin.session import AdminSession
from odradek.client.admin.transaction_descriptions import (
    OpenTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from odradek.client.groups.values import OffsetsToCommit, as_committable
from odradek.client.network.errors import WrongArgumentError
from odradek.client.transactions.prepared import TransactionIdentity
from odradek.model.ids import TopicPartition


class TransactionCalls:
    """Asks coordinators about transactional ids, and leaders about partitions."""

    def __init__(self, session: AdminSession) -> None:
        self._session: Final = session

    async def listings(
        self,
        states: Sequence[str],
        producer_ids: Sequence[int],
        duration_ms: int | None,
        pattern: str | None,
        timeout_s: float | None,
    ) -> list[TransactionListing]:
        """Returns the transactional ids of all brokers, sorted."""
        answers = await self._session.everywhere(
            "list_transactions",
            timeout_s,
            lambda broker, _, __: transactions.list_transactions(
                broker, states, producer_ids, duration_ms, pattern
            ),
        )
        listings = (listing for some in answers.values() for listing in some)
        return sorted(listings, key=lambda listing: str(listing.transactional_id))

    async def describe(
        self, transactional_ids: Iterable[str], timeout_s: float | None
    ) -> dict[str, TransactionDescription]:
        """Returns the transactions of these ids, from their coordinators.

        They are looked up for the first attempt only where they are not known, and then for each.
        """
        has_asked = False

        async def by_coordinator(items: Items, _: float) -> Grouped:
            nonlocal has_asked
            search, has_asked = has_asked, True
            grouped: Grouped = {}
            for name, content in items.items():
                broker = await self._session.transactions.broker_of(name, search=search)
                grouped.setdefault(broker, {})[name] = content
            return grouped

        descriptions: dict[str, TransactionDescription] = await self._session.each(
            "describe_transactions",
            dict.fromkeys(transactional_ids),
            timeout_s,
            None,
            by=by_coordinator,
            ask_broker=lambda broker, some, _: transactions.describe_transactions(some, broker),
        )
        return descriptions

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None
    ) -> dict[TopicPartition, tuple[ProducerDescription, ...]]:
        """Returns the producers that partitions remember, from the partitions' leaders."""
        answers: dict[TopicPartition, tuple[ProducerDescription, ...]] = await self._session.each(
            "describe_producers",
            dict.fromkeys(TopicPartition(*tp) for tp in partitions),
            timeout_s,
            transactions.describe_producers,
            by=self._session.calls.by_leader,
        )
        return answers

    async def abort(self, open_transaction: OpenTransaction, timeout_s: float | None) -> None:
        """Writes an abort marker to the partition of a hanging transaction."""
        await self._session.each(
            "abort_transaction",
            {open_transaction.partition: open_transaction},
            timeout_s,
            transactions.abort_transactions,
            by=self._session.calls.by_leader,
        )

    async def fence(
        self, transactional_ids: Iterable[str], transaction_timeout_ms: int, timeout_s: float | None
    ) -> dict[str, TransactionIdentity]:
        """Begins a new epoch of each id, which shuts out its producer."""
        await self._session.start()
        limit_s = self._session.limit_s(timeout_s)
        client = self._session.transactions
        return await self._session.together(
            "fence_producers",
            {
                name: client.fence(name, transaction_timeout_ms, limit_s)
                for name in dict.fromkeys(transactional_ids)
            },
        )

    async def end(
        self, identities: Iterable[TransactionIdentity], committed: bool, timeout_s: float | None
    ) -> None:
        """Commits or aborts prepared transactions, all at the same time. WrongArgumentError for two of one transactional id."""
        wanted: dict[str, TransactionIdentity] = {}
        for identity in identities:
            if wanted.setdefault(identity.transactional_id, identity) != identity:
                raise WrongArgumentError(
                    f"end_transactions: identities has two of transactional id {identity.transactional_id!r:.250},"
                    " and an id has at most one prepared transaction"
                )
        await self._session.start()
        limit_s = self._session.limit_s(timeout_s)
        client = self._session.transactions
        await self._session.together(
            "end_transactions",
            {
                transactional_id: client.end(identity, committed=committed, timeout_s=limit_s)
                for transactional_id, identity in wanted.items()
            },
        )

    async def send_offsets(
        self,
        identity: TransactionIdentity,
        group_id: str,
        offsets: OffsetsToCommit,
        timeout_s: float | None,
    ) -> None:
        """Adds a group's offsets to a transaction."""
        await self._session.start()
        if wanted := as_committable(offsets):
            limit_s = self._session.limit_s(timeout_s)
            await self._session.transactions.commit_offsets(identity, group_id, wanted, limit_s)

    async def after_commit(
        self, committed: TransactionIdentity, timeout_s: float | None
    ) -> TransactionIdentity | None:
        """Returns the identity that follows a committed transaction."""
        await self._session.start()
        limit_s = self._session.limit_s(timeout_s)
        return await self._session.transactions.after_commit(committed, limit_s)
