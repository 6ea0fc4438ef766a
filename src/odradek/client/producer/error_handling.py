"""The producer's error handling: one table of what to do with a batch, by the broker's answer.

A batch is *head* when no earlier batch of its partition is unresolved. With idempotence (KIP-98, KIP-360)
that decides what a gap in the sequence numbers means: after an unresolved batch it is the expected
consequence of that batch's failure; at the head it means that the broker's state and the producer's differ,
and only a new epoch repairs that.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from odradek.client.network.metadata_snapshot import LEADER_MAY_HAVE_MOVED
from odradek.model.errors import ErrorCode


class ProduceErrorAction(Enum):
    """The producer's reaction to a batch's error."""

    DELIVERED = auto()
    RETRY = auto()
    """Again, after a pause."""
    RETRY_IN_TURN = auto()
    """Again, as soon as the batches before it are resolved; it was not its fault."""
    RETRY_ELSEWHERE = auto()
    """Again, after a pause, once the leader has been looked up again."""
    NEW_EPOCH = auto()
    """Again, renumbered from 0 under the next producer epoch."""
    NEW_PRODUCER_ID = auto()
    """Again, renumbered from 0 under another producer id."""
    SPLIT = auto()
    """Again, in two halves."""
    GIVE_UP = auto()


_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_EPOCH_AT_FAULT: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


def judge(
    code: ErrorCode,
    *,
    idempotent: bool,
    head: bool,
    record_count: int,
    may_retry: bool,
    transactional: bool = False,
) -> ProduceErrorAction:
    """Decides what a producer does after an error.

    `may_retry`: the `retries` setting and the delivery timeout leave room for another attempt. `transactional`: only the
    coordinator gives epochs and ids."""
    if code is ErrorCode.NONE or (idempotent and code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return ProduceErrorAction.DELIVERED
    if code in _TOO_LARGE and record_count > 1:
        return ProduceErrorAction.SPLIT
    if idempotent and code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not head:
        return ProduceErrorAction.RETRY_IN_TURN
    if not may_retry:
        return ProduceErrorAction.GIVE_UP
    if transactional and code in _EPOCH_AT_FAULT:
        return ProduceErrorAction.GIVE_UP
    if idempotent and code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
        return ProduceErrorAction.NEW_EPOCH
    if idempotent and code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        return ProduceErrorAction.NEW_PRODUCER_ID
    if code in LEADER_MAY_HAVE_MOVED:
        return ProduceErrorAction.RETRY_ELSEWHERE
    return ProduceErrorAction.RETRY if code.retriable else ProduceErrorAction.GIVE_UP
