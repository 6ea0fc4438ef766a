"""The question whether a producer may write into partitions now (KIP-890), and the port that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationQuestion:
    """The question to a transaction coordinator whether a producer may write into partitions now. With `adds` they become
    part of its transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool
    partitions: frozenset[TopicPartition]


class TransactionVerifier(Protocol):
    """The coordinator of a transaction on this broker, on another, or wherever it is."""

    async def verify(self, question: VerificationQuestion) -> Mapping[TopicPartition, ErrorCode]:
        """Returns a code for each partition. It raises no KafkaError.

        The codes are NONE, TRANSACTION_ABORTABLE (clients older than Produce 11 know it as
        INVALID_TXN_STATE), INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, the
        codes of a coordinator that is not there, and NETWORK_EXCEPTION when it cannot be reached.
        """
