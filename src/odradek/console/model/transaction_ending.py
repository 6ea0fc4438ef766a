"""Transactions that someone has to end: found, looked at closely before they are ended, and ended exactly as they were shown.

Two kinds hold readers of committed records back. One that its coordinator knows is ended there: its producer is fenced, and
its records are aborted in all partitions. One that no coordinator knows any more *hangs*: it is ended in its partition, by
the abort marker that it lacks. To write that marker for a transaction of the first kind would tear it apart, so it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.client import LATEST
from odradek.client.admin.transaction_descriptions import (
    ONGOING,
    OpenTransaction,
    ProducerDescription,
    TransactionDescription,
    hanging_among,
    ids_not_ended,
    open_transactions_in,
)
from odradek.client.aio import AsyncAdmin
from odradek.console.model.group_reading import readable
from odradek.console.model.snapshot import UNKNOWN, ModelSnapshot
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition

CALL_S: Final = 15.0
PARTITIONS_MAX: Final = 5_000
"""The partitions that one step of a search for hanging transactions looks at."""
HANGING_MAX: Final = 200
"""The hanging transactions that one step returns."""
_COMMITTED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingSearch:
    """What one step of a search saw."""

    transactions: tuple[OpenTransaction, ...] = ()
    """The hanging transactions, those to which nothing was written for longest first."""
    left_out: int = 0
    looked_at: int = 0
    """The partitions that were looked at so far, of `total` that have a leader."""
    total: int = 0

    @property
    def is_complete(self) -> bool:
        return self.looked_at >= self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransactionView:
    """One transaction that is open in a partition, and what ending it changes there."""

    transaction: OpenTransaction
    owner: str = ""
    """The transactional id whose coordinator still knows it in this partition; empty if it hangs."""
    stable_end: int = UNKNOWN
    """The last stable offset: readers of committed records wait there."""
    end: int = UNKNOWN

    @property
    def hidden(self) -> int:
        """The number of offsets that readers of committed records do not get; UNKNOWN without both ends."""
        return UNKNOWN if self.stable_end < 0 or self.end < 0 else max(0, self.end - self.stable_end)

    @property
    def is_first(self) -> bool:
        """Whether it is the transaction that readers wait for, and not a later one."""
        return self.transaction.start_offset <= self.stable_end


def searched_partitions(snapshot: ModelSnapshot, topic: str) -> list[TopicPartition]:
    """Returns the partitions with a leader of a topic, or of all, in a fixed order."""
    topics = snapshot.topics
    names = sorted(topics) if not topic else [topic] if topic in topics else []
    return [
        TopicPartition(name, row.partition)
        for name in names
        for row in snapshot.partitions.of(topics[name])
        if not row.is_offline
    ]


async def find_hanging(
    admin: AsyncAdmin, partitions: Sequence[TopicPartition], start: int, before_ms: int
) -> HangingSearch:
    """Looks at the next partitions, from the number `start` on, for hanging transactions without a record since `before_ms`.

    Partitions that this user may not read are passed over. A transactional id that this user may not describe looks like one
    that no coordinator knows.
    """
    some = partitions[start : start + PARTITIONS_MAX]
    described = await _producers(admin, some)
    suspects = [
        transaction
        for transaction in open_transactions_in(described)
        if transaction.last_timestamp_ms <= before_ms
    ]
    hanging = hanging_among(suspects, (await _known(admin, suspects)).values()) if suspects else []
    hanging.sort(key=lambda transaction: (transaction.last_timestamp_ms, transaction.partition))
    return HangingSearch(
        transactions=tuple(hanging[:HANGING_MAX]),
        left_out=max(0, len(hanging) - HANGING_MAX),
        looked_at=start + len(some),
        total=len(partitions),
    )


async def open_transaction(admin: AsyncAdmin, tp: TopicPartition, producer_id: int) -> OpenTransactionView:
    """Returns the open transaction of a producer in a partition. KafkaError if it has none there."""
    described = await admin.describe_producers([tp], timeout_s=CALL_S)
    matching = [
        transaction
        for transaction in open_transactions_in(described)
        if transaction.producer_id == producer_id
    ]
    if not matching:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"no transaction of producer {producer_id} is open in {tp}"
        )
    known = await _known(admin, matching)
    owners = [name for name, transaction in known.items() if not hanging_among(matching, [transaction])]
    ends = await readable(admin.list_offsets({tp: LATEST}, timeout_s=CALL_S))
    stable = await readable(admin.list_offsets({tp: LATEST}, isolation=_COMMITTED, timeout_s=CALL_S))
    return OpenTransactionView(
        transaction=matching[0],
        owner=owners[0] if owners else "",
        stable_end=stable[tp].offset if tp in stable else UNKNOWN,
        end=ends[tp].offset if tp in ends else UNKNOWN,
    )


async def abort_hanging(admin: AsyncAdmin, shown: OpenTransaction) -> None:
    """Writes the abort marker of a hanging transaction, if it still is the one that was shown. KafkaError otherwise."""
    view = await open_transaction(admin, shown.partition, shown.producer_id)
    if _identity(view.transaction) != _identity(shown):
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {shown.producer_id} has begun another transaction in {shown.partition} meanwhile: look at it first",
        )
    if view.owner:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"the coordinator of {view.owner!r} still knows this transaction: end it there, in all of its partitions",
        )
    await admin.abort_transaction(view.transaction, timeout_s=CALL_S)


def _identity(transaction: OpenTransaction) -> tuple[int, int, int]:
    return transaction.producer_id, transaction.producer_epoch, transaction.start_offset


async def known_transaction(admin: AsyncAdmin, transactional_id: str) -> TransactionDescription:
    """Returns what the coordinator knows of an id. KafkaError if there is none: fencing an unknown id would make it."""
    return (await admin.describe_transactions([transactional_id], timeout_s=CALL_S))[transactional_id]


async def terminate(admin: AsyncAdmin, transactional_id: str, producer_id: int, start_ms: int) -> None:
    """Aborts the open transaction that was shown, and fences its producer. KafkaError if it is another one by now."""
    transaction = await known_transaction(admin, transactional_id)
    shown = (producer_id, start_ms, ONGOING)
    if (transaction.producer_id, transaction.start_time_ms, transaction.state) != shown:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"the transaction of {transactional_id!r} has ended meanwhile, or another one was begun: look at it first",
        )
    await admin.fence_producers([transactional_id], timeout_s=CALL_S)


async def _producers(
    admin: AsyncAdmin, partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, tuple[ProducerDescription, ...]]:
    if not partitions:
        return {}
    return await readable(admin.describe_producers(partitions, timeout_s=CALL_S))


async def _known(
    admin: AsyncAdmin, suspects: Sequence[OpenTransaction]
) -> Mapping[str, TransactionDescription]:
    """Returns what coordinators know of the producers of these transactions, by transactional id. Every broker is asked: a
    coordinator that does not answer would make its transactions look as if they hang."""
    producer_ids = sorted({suspect.producer_id for suspect in suspects})
    listed = await admin.list_transactions(producer_ids=producer_ids, timeout_s=CALL_S)
    names = ids_not_ended(listed)
    return await admin.describe_transactions(names, timeout_s=CALL_S) if names else {}
