"""The admin client's descriptions of transactions, producers, elections and features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odradek.model.ids import TopicPartition

ONGOING = "Ongoing"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id in an answer to ListTransactions."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id in the description of its coordinator."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    """The start of the open transaction; None without one."""
    partitions: tuple[TopicPartition, ...]
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerDescription:
    """A producer whose state a partition keeps."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None
    """The first offset of its open transaction in this partition; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """One partition's part of an open transaction, with the values that are needed to abort it there."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDescription:
    """The levels of a feature that a broker supports, and the finalized level of the cluster (0: none)."""

    name: str
    supported: tuple[int, int]
    finalized: int


_ENDED_STATES = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


def open_transactions_in(
    described: Mapping[TopicPartition, Iterable[ProducerDescription]],
) -> list[OpenTransaction]:
    """Returns the transactions that are open in partitions whose producers were described."""
    return [
        OpenTransaction(
            partition=tp,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=producer.coordinator_epoch,
            start_offset=producer.transaction_start_offset,
            last_timestamp_ms=producer.last_timestamp_ms,
        )
        for tp, producers in described.items()
        for producer in producers
        if producer.transaction_start_offset is not None
    ]


def ids_not_ended(listings: Iterable[TransactionListing]) -> list[str]:
    """Returns the transactional ids whose coordinators may still have a transaction to end."""
    return [listing.transactional_id for listing in listings if listing.state not in _ENDED_STATES]


def hanging_among(
    suspects: Iterable[OpenTransaction], described: Iterable[TransactionDescription]
) -> list[OpenTransaction]:
    """Returns the open transactions that no coordinator will ever end: none knows them as open in their partition."""
    known = {(transaction.producer_id, tp) for transaction in described for tp in transaction.partitions}
    return [suspect for suspect in suspects if (suspect.producer_id, suspect.partition) not in known]
