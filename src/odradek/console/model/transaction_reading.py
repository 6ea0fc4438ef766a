"""Reads which transactions are open for long: readers of committed records wait for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.client.admin.transaction_descriptions import TransactionDescription, TransactionListing
from odradek.client.aio import AsyncAdmin
from odradek.client.network.errors import PartialFailureError
from odradek.console.model.group_reading import readable, readable_list
from odradek.console.model.snapshot import LongTransaction

OPEN_FOR_MS: Final = 60_000
"""The default of transaction.timeout.ms: a transaction that is open for longer was allowed to be."""
DESCRIBED_MAX: Final = 50
"""The number of transactions that are described; others are counted only."""
PARTITIONS_MAX: Final = 100
"""The number of partitions that are kept of each transaction."""
_ONGOING: Final = ("Ongoing",)


async def read_long_transactions(
    admin: AsyncAdmin, now_ms: int, timeout_s: float, open_for_ms: int = OPEN_FOR_MS
) -> tuple[tuple[LongTransaction, ...], int]:
    """Returns the transactions that are open for so long and that this user may see, the oldest first, and how many there are.

    A coordinator that does not answer is left out: its broker is a trouble of its own.
    """
    listed = await readable_list(_listed(admin, open_for_ms, timeout_s))
    names = [str(listing.transactional_id) for listing in listed]
    if not names:
        return (), 0
    described: Mapping[str, TransactionDescription] = await readable(
        admin.describe_transactions(names[:DESCRIBED_MAX], timeout_s=timeout_s)
    )
    transactions = long_transactions(described.values(), now_ms, open_for_ms)
    return transactions, len(transactions) + max(0, len(names) - DESCRIBED_MAX)


async def _listed(admin: AsyncAdmin, open_for_ms: int, timeout_s: float) -> list[TransactionListing]:
    try:
        return await admin.list_transactions(states=_ONGOING, duration_ms=open_for_ms, timeout_s=timeout_s)
    except PartialFailureError as error:
        return [listing for listings in error.results.values() for listing in listings]


def long_transactions(
    described: Iterable[TransactionDescription], now_ms: int, open_for_ms: int
) -> tuple[LongTransaction, ...]:
    """Returns those that are still open, the oldest first. Brokers before KIP-994 list shorter ones, too: they are left out."""
    opened = [
        LongTransaction(
            str(description.transactional_id),
            now_ms - description.start_time_ms,
            description.timeout_ms,
            description.partitions[:PARTITIONS_MAX],
        )
        for description in described
        if description.start_time_ms is not None and now_ms - description.start_time_ms >= open_for_ms
    ]
    return tuple(sorted(opened, key=lambda transaction: (-transaction.open_ms, transaction.transactional_id)))
