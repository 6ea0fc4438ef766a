"""The port by which the coordinator reaches a transaction's partitions; `broker/` implements it with local
ones and other brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.transactions.state import TransactionVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerBatch:
    """One transaction's end, for some of its partitions."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    """Leader epoch of the coordinator's partition: a coordinator that was replaced gets its markers refused."""
    version: TransactionVersion
    """How the transaction was spoken: it says whether the marker's epoch must be newer than the records'."""
    partitions: tuple[TopicPartition, ...]


class Markers(Protocol):
    async def write(self, batch: MarkerBatch) -> Mapping[TopicPartition, ErrorCode]:
        """Writes the markers; returns an outcome for each partition, NONE when its marker is durable.

        UNKNOWN_TOPIC_OR_PARTITION means that the partition does not exist in the cluster (any more), and nothing else.
        """
