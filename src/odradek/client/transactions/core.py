"""The state of a transactional producer, without I/O.

    UNINITIALIZED -> INITIALIZING -> READY -> OPEN -> COMMITTING -> READY
                                      ^        |
                                      |        +--> BROKEN --+
                                      |        v             |
                                      +----- ABORTING <------+         any -> FATAL

Two flows. In the classic one a partition is added to the transaction before the first batch for it is sent
(AddPartitionsToTxn), and an epoch serves many transactions. With transaction.version 2 (KIP-890) brokers add partitions
themselves, and every transaction ends its epoch: EndTxn answers with the next one.

An open transaction can be PREPARED (KIP-939's word): all of it is with the brokers, and the holder of its identity may
end it. The producer itself may commit it, abort it, let go of it by `init_transactions`, or, once its holder has
committed it, go on with the next epoch.

A batch that was given up leaves brokers and producer with different ideas of the sequence; then the epoch is bumped
before the next transaction (KIP-360), unless the end of the transaction does that anyhow.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from odradek.client.transactions.error_actions import (
    FatalTransactionError,
    TransactionError,
    TransactionErrorAction,
    action_for_batch,
    as_error,
)
from odradek.model.errors import ErrorCode, ErrorValue, KafkaError
from odradek.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerId:
    """The result of InitProducerId."""

    producer_id: int
    producer_epoch: int


class TransactionalState(Enum):
    """The states of a transactional producer, as the module's picture shows them."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    OPEN = auto()
    BROKEN = auto()
    """The transaction can only be aborted."""
    PREPARED = auto()
    """All of the transaction is with the brokers; nothing more can be sent in it."""
    COMMITTING = auto()
    ABORTING = auto()
    FATAL = auto()


_FORESEEABLE_EPOCH_MAX: Final = 32_000
"""Near 32,767 the coordinator hands out another producer id, and a lost answer costs an epoch, too: then it is asked."""
_MAY_CHANGE_ID: Final = frozenset(
    {TransactionalState.UNINITIALIZED, TransactionalState.READY, TransactionalState.PREPARED}
)
_MAY_BEGIN: Final = frozenset({TransactionalState.READY})
_MAY_PREPARE: Final = frozenset({TransactionalState.OPEN})
_MAY_COMMIT: Final = frozenset(
    {TransactionalState.OPEN, TransactionalState.PREPARED, TransactionalState.COMMITTING}
)
_MAY_ABORT: Final = frozenset(
    {
        TransactionalState.OPEN,
        TransactionalState.PREPARED,
        TransactionalState.BROKEN,
        TransactionalState.ABORTING,
    }
)
_IN_WORDS: Final = {
    TransactionalState.UNINITIALIZED: "call init_transactions first",
    TransactionalState.INITIALIZING: "init_transactions has not finished",
    TransactionalState.READY: "no transaction is open: call begin_transaction first",
    TransactionalState.OPEN: "a transaction is open",
    TransactionalState.BROKEN: "the transaction has failed: abort it first",
    TransactionalState.PREPARED: "the transaction is prepared: commit or abort it, or call init_transactions to let go of it",
    TransactionalState.COMMITTING: "the transaction is being committed: call commit_transaction again to see it through",
    TransactionalState.ABORTING: "the transaction is being aborted: call abort_transaction again to see it through",
}


def epoch_after_commit(epoch: int, *, epoch_per_transaction: bool) -> int | None:
    """Returns the epoch that follows, without a question to the coordinator; None where only it can tell.
    `epoch_per_transaction`: KIP-890."""
    return epoch + 1 if epoch_per_transaction and epoch < _FORESEEABLE_EPOCH_MAX else None


class TransactionCore:
    """The transactions of one producer. *locked*: called under the accumulator's lock; the rest from one thread at a time."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionalState.UNINITIALIZED
        self.identity: ProducerId | None = None
        self.epoch_per_transaction = False
        """transaction.version 2."""
        self._error: ErrorValue[KafkaError] | None = None
        self.partitions: dict[TopicPartition, None] = {}
        """The partitions of the transaction that the coordinator has confirmed."""
        self.to_add: dict[TopicPartition, None] = {}
        """The partitions that batches wait to be sent to."""
        self.groups: dict[str, None] = {}
        """Groups whose offsets are part of it."""
        self.bump_wanted = False

    @property
    def error(self) -> KafkaError | None:
        """The error by which the state is BROKEN or FATAL. A new exception each time."""
        return self._error.exception() if self._error is not None else None

    @error.setter
    def error(self, error: KafkaError | None) -> None:
        self._error = ErrorValue.of(error) if error is not None else None

    @property
    def started(self) -> bool:
        """The coordinator has something to end."""
        return bool(self.partitions or self.groups)

    # -- the user's side

    def check_sendable(self) -> None:
        """Raise unless a record may be sent now."""
        if self.state is not TransactionalState.OPEN:
            raise self._refusal()

    def begin(self) -> None:
        if self.state not in _MAY_BEGIN:
            raise self._refusal()
        self.state = TransactionalState.OPEN

    def begin_commit(self) -> None:
        if self.state not in _MAY_COMMIT:
            raise self._refusal()

    def begin_abort(self) -> None:
        if self.state not in _MAY_ABORT:
            raise self._refusal()
        self.state = TransactionalState.ABORTING
        self.to_add.clear()

    def check_preparable(self) -> None:
        """Raise unless the transaction may be prepared now."""
        if self.state not in _MAY_PREPARE:
            raise self._refusal()

    def prepare(self) -> ProducerId:
        """Prepares the transaction once everything sent is acknowledged. Returns who the transaction belongs to."""
        self.check_preparable()
        assert self.identity is not None
        self.state = TransactionalState.PREPARED
        return self.identity

    def resume(self, committed: ProducerId) -> ProducerId | None:
        """Notes that the transaction of `committed` is known to be committed: returns who the producer is from then on, and
        is READY again.

        None when it is not the one that this producer prepared, or when only the coordinator can tell. Under an id that the
        producer has just got, `committed` is the last transaction of that id."""
        is_last = self.state is TransactionalState.PREPARED and committed == self.identity
        if not is_last and self.state is not TransactionalState.UNINITIALIZED:
            return None
        epoch = epoch_after_commit(committed.producer_epoch, epoch_per_transaction=self.epoch_per_transaction)
        if epoch is None:
            return None
        self.identity = ProducerId(producer_id=committed.producer_id, producer_epoch=epoch)
        self._clear()
        return self.identity

    def change_id(self, transactional_id: str) -> None:
        """Takes another transactional id. A transaction that was prepared is left to the holder of its identity."""
        if self.state not in _MAY_CHANGE_ID:
            raise self._refusal()
        self._clear()
        self.transactional_id = transactional_id
        self.identity = None
        self.state = TransactionalState.UNINITIALIZED

    def begin_init(self) -> None:
        if self.state not in (
            TransactionalState.UNINITIALIZED,
            TransactionalState.INITIALIZING,
            TransactionalState.PREPARED,
        ):
            raise self._refusal()
        if self.state is TransactionalState.PREPARED:
            self.identity = None  # the transaction may have been ended with it, by another process
        self.state = TransactionalState.INITIALIZING

    # -- batches

    def admits(self, tp: TopicPartition) -> bool:
        """*locked.* Returns whether a batch for the partition may be sent now; if not, it is among `to_add` where that would
        help."""
        if self.state not in (TransactionalState.OPEN, TransactionalState.COMMITTING):
            return False
        if tp in self.partitions:
            return True
        if self.epoch_per_transaction:
            self.partitions[tp] = None
            return True
        self.to_add[tp] = None
        return False

    @property
    def gives_up(self) -> bool:
        """Batches that come back are not to be tried again."""
        return self.state in (
            TransactionalState.ABORTING,
            TransactionalState.BROKEN,
            TransactionalState.FATAL,
        )

    def batch_failed(self, error: Exception) -> None:
        """Notes that a batch of the transaction was given up."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        message = error.message if isinstance(error, KafkaError) else str(error)
        self.refuse(action_for_batch(code), code, "a record could not be sent", message)

    # -- the coordinator's responses

    def initialized(self, identity: ProducerId, *, epoch_per_transaction: bool) -> None:
        self.identity = identity
        self.epoch_per_transaction = epoch_per_transaction
        self._clear()

    def added(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            self.to_add.pop(tp, None)
            self.partitions[tp] = None

    def offsets_added(self, group_id: str) -> None:
        self.groups[group_id] = None

    def ended(self, identity: ProducerId | None) -> None:
        """EndTxn succeeded, or there was nothing to end. `identity`: what to go on with, if it is another one."""
        if identity is not None:
            self.identity = identity
            self.bump_wanted = False
        if not self.bump_wanted:
            self._clear()

    def refuse(
        self, verdict: TransactionErrorAction, code: ErrorCode, what: str, message: str | None = None
    ) -> KafkaError:
        """Changes the state as the error requires, and returns the error to raise."""
        error = as_error(verdict, code, what, message)
        if verdict in (TransactionErrorAction.FATAL, TransactionErrorAction.FENCED):
            self.state = TransactionalState.FATAL
            self.error = error
        else:
            self.bump_wanted = self.bump_wanted or verdict is TransactionErrorAction.ABORTABLE_AND_BUMP
            if self.state in (TransactionalState.OPEN, TransactionalState.COMMITTING):
                self.state = TransactionalState.BROKEN
                self.error = error
        return error

    # -- inside

    def _clear(self) -> None:
        self.state = TransactionalState.READY
        self.error = None
        self.bump_wanted = False
        self.partitions.clear()
        self.to_add.clear()
        self.groups.clear()

    def _refusal(self) -> KafkaError:
        if self._error is not None and self.state in (TransactionalState.FATAL, TransactionalState.BROKEN):
            return self._error.exception()
        kind = FatalTransactionError if self.state is TransactionalState.FATAL else TransactionError
        return kind(ErrorCode.INVALID_TXN_STATE, _IN_WORDS.get(self.state, "the producer has failed"))
