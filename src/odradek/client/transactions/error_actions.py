"""The meaning of errors for a transaction: one table for every API that takes part in one.

Kafka's own client tells the same three apart: what may be tried again, what costs the transaction (abort it and begin
another), and what costs the producer.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from odradek.client.groups.member import COORDINATOR_MOVED
from odradek.client.groups.values import CommitFailedError
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.public import public


class TransactionError(KafkaError):
    """The transaction cannot be committed any more: abort it, and begin another."""


class FatalTransactionError(KafkaError):
    """The producer cannot be used any more: close it."""


@public("odradek")
class ProducerFencedError(FatalTransactionError):
    """A newer producer uses the transactional id: this one must stop. What it had not committed is aborted."""


class TransactionAbortedError(KafkaError):
    """The record was part of a transaction that was aborted before it was sent."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.OPERATION_NOT_ATTEMPTED, "the transaction was aborted")


class TransactionErrorAction(Enum):
    """The reaction to an error."""

    FINE = auto()
    RETRY = auto()
    ABORTABLE = auto()
    ABORTABLE_AND_BUMP = auto()
    """The transaction is lost, and with it the producer's epoch."""
    FATAL = auto()
    FENCED = auto()


_RETRIED: Final = COORDINATOR_MOVED | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
}
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_MEMBER_GONE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
_ABORTABLE: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.REBALANCE_IN_PROGRESS,
        *_MEMBER_GONE,
    }
)
_BUMP: Final = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
_FATAL_FOR_BATCHES: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)


def action_for_response(code: ErrorCode) -> TransactionErrorAction:
    """Returns the action for a coordinator's answer to InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit or
    EndTxn."""
    if code is ErrorCode.NONE:
        return TransactionErrorAction.FINE
    if code in _RETRIED:
        return TransactionErrorAction.RETRY
    if code in _FENCED:
        return TransactionErrorAction.FENCED
    if code in _ABORTABLE:
        return TransactionErrorAction.ABORTABLE
    return TransactionErrorAction.ABORTABLE_AND_BUMP if code in _BUMP else TransactionErrorAction.FATAL


def action_for_batch(code: ErrorCode) -> TransactionErrorAction:
    """Returns the action for a batch that was given up. An old epoch shows only when the transaction is ended, not here."""
    if code is ErrorCode.PRODUCER_FENCED:
        return TransactionErrorAction.FENCED
    if code in _FATAL_FOR_BATCHES:
        return TransactionErrorAction.FATAL
    return TransactionErrorAction.ABORTABLE_AND_BUMP


def as_error(
    verdict: TransactionErrorAction, code: ErrorCode, what: str, message: str | None = None
) -> KafkaError:
    """Returns the error to raise. `what` describes the attempt."""
    reason = f"{what}: {message or code.meaning}"
    if verdict is TransactionErrorAction.FENCED:
        return ProducerFencedError(
            code, f"{what}: a newer producer uses this transactional id; close this one"
        )
    if verdict is TransactionErrorAction.FATAL:
        return FatalTransactionError(code, f"{reason}; close this producer")
    if code in _MEMBER_GONE:
        return CommitFailedError(
            code, f"{reason}; abort the transaction: another member reads these records again"
        )
    return TransactionError(code, f"{reason}; abort the transaction")
