"""The admin client's descriptions of transactions, producers, elections and features."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.model.ids import TopicPartition

ONGOING = "Ongoing"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id as ListTransactions tells of it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id as its coordinator knows it."""

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
    """A producer that a partition remembers."""

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
    """The levels that a broker can do, and the one that the cluster has agreed on (0: none)."""

    name: str
    supported: tuple[int, int]
    finalized: int
