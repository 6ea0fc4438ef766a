"""Transactions that tasks of a sink have left open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from odradek.client import Admin
from odradek.client.admin.transaction_descriptions import ONGOING, TransactionDescription
from odradek.client.network.errors import PartialFailureError
from odradek.client.transactions.prepared import TransactionIdentity
from odradek.model.errors import ErrorCode, KafkaError
from odradek.spark.exactly_once.decision import SinkRole, sink_of

GONE: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""The errors of a coordinator for a transaction that is no longer open."""


def open_transactions(
    admin: Admin, sink_id: str, *, timeout_s: float | None = None
) -> list[TransactionDescription]:
    """Returns the open transactions of the sink's tasks. KafkaError unless every broker answers."""
    listed = admin.list_transactions(states=[ONGOING], timeout_s=timeout_s)
    names = [
        transaction.transactional_id
        for transaction in listed
        if sink_of(transaction.transactional_id) == (sink_id, SinkRole.TASK)
    ]
    if not names:
        return []
    described = admin.describe_transactions(names, timeout_s=timeout_s)
    return [transaction for transaction in described.values() if transaction.state == ONGOING]


def abort(admin: Admin, wanted: Sequence[TransactionDescription], *, timeout_s: float | None = None) -> None:
    """Aborts these very transactions, and not what was written under their names since. KafkaError when one stays open."""
    identities = [
        TransactionIdentity(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
        )
        for transaction in wanted
    ]
    left = [
        error
        for error in failures(
            lambda: admin.end_transactions(identities, committed=False, timeout_s=timeout_s)
        )
        if error.code not in GONE
    ]
    if left:
        raise left[0]


def failures(call: Callable[[], None]) -> list[KafkaError]:
    """Returns the errors that an admin call raised for several transactions."""
    try:
        call()
    except PartialFailureError as failure:
        return list(failure.errors.values())
    except KafkaError as error:
        return [error.as_outcome()]
    return []
