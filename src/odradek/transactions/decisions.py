"""The next state of a transactional id when a request comes, a timeout passes, or all markers are written. Pure.

Each function takes the state that the log holds (None: the id is unknown) and returns the state to be
written, or raises the error that the client gets. The rules follow Kafka 4.3's coordinator; where two
versions of the protocol differ there are two functions:

- **classic** clients (EndTxn up to version 4) keep their epoch from one transaction to the next. A request is a repeated one
  if the state is already what it asks for, so one that comes very late may meet the next transaction: nothing tells them apart.
- clients of **KIP-890** (EndTxn 5) get a new epoch with the end of each transaction. A request is a repeated one if its epoch
  is the one before the current, and what comes late meets an epoch that has passed.

An abort in the coordinator's name (a timeout, a new producer under the same id) always moves the epoch on.

The **last epoch** is the one before the current if its producer may still ask again (KIP-360). It is not in
the log: after a restart such a producer is fenced and begins again, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.transactions.state import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER,
    NOT_STARTED,
    ProducerIdentity,
    Transaction,
    TransactionState,
    TransactionVersion,
    epochs_used_up,
)

EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING


class ProducerIdRequired(Exception):
    """The decision takes a fresh producer id: get one, and ask again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionChange:
    """The transaction to write, and the last epoch from then on."""

    transaction: Transaction
    last_epoch: int


# -- InitProducerId


def init_producer(
    current: Transaction | None,
    last_epoch: int,
    *,
    timeout_ms: int,
    expected: ProducerIdentity | None,
    fresh_producer_id: int | None,
    now_ms: int,
) -> TransactionChange:
    """Decides InitProducerId: a producer begins, or continues after an error (`expected`: its last identity).
    The id must not be ONGOING.

    PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """
    if current is None:
        begun = Transaction(
            producer_id=_fresh(fresh_producer_id),
            producer_epoch=0,
            previous_producer_id=_fresh(fresh_producer_id),
            state=EMPTY,
            timeout_ms=timeout_ms,
            updated_ms=now_ms,
        )
        return TransactionChange(transaction=begun, last_epoch=NO_EPOCH)
    _check_not_prepared(current)
    identity, last_epoch = _next_identity(current, last_epoch, expected, fresh_producer_id)
    begun = replace(
        current,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER,
        state=EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_ms=NOT_STARTED,
        updated_ms=now_ms,
    )
    return TransactionChange(transaction=begun, last_epoch=last_epoch)


def check_expected(current: Transaction, expected: ProducerIdentity | None) -> None:
    """Raises PRODUCER_FENCED unless `expected` is the producer that the id has, or had before its epochs were used up.

    With a transaction under way it must be the very one: a zombie must not abort its successor's transaction.
    While one is being completed, this is unknown: CONCURRENT_TRANSACTIONS.
    """
    _check_not_prepared(current)
    if expected is None:
        return
    same = expected.producer_id == current.producer_id
    if current.state is ONGOING and same and expected.producer_epoch != current.producer_epoch:
        raise _fenced(current, expected)
    before = expected.producer_id == current.previous_producer_id and epochs_used_up(expected.producer_epoch)
    if not same and not before:
        raise _fenced(current, expected)


def _next_identity(
    current: Transaction, last_epoch: int, expected: ProducerIdentity | None, fresh_producer_id: int | None
) -> tuple[ProducerIdentity, int]:
    """Returns (the producer's next identity, the last epoch)."""
    epoch = current.producer_epoch
    if expected is not None and expected.producer_epoch not in (epoch, last_epoch):
        raise _fenced(current, expected)
    if expected is not None and expected.producer_epoch != epoch:  # a repeated request: its answer got lost
        return current.identity, last_epoch
    last_epoch = NO_EPOCH if expected is None else epoch
    if current.epochs_used_up:
        return ProducerIdentity(producer_id=_fresh(fresh_producer_id), producer_epoch=0), last_epoch
    return ProducerIdentity(producer_id=current.producer_id, producer_epoch=epoch + 1), last_epoch


def fence(
    current: Transaction, *, level: TransactionVersion, fresh_producer_id: int | None, now_ms: int
) -> TransactionChange:
    """Aborts the transaction under way in the coordinator's name, in an epoch that no producer has."""
    assert current.producer_epoch < EPOCH_MAX, "an epoch is left for fencing"
    if level.bumps_epochs:
        return _prepared(
            current,
            TransactionState.PREPARE_ABORT,
            started_ms=current.started_ms,
            fresh_producer_id=fresh_producer_id,
            now_ms=now_ms,
        )
    fenced = replace(
        current,
        producer_epoch=current.producer_epoch + 1,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER,
        state=TransactionState.PREPARE_ABORT,
        updated_ms=now_ms,
        client_version=TransactionVersion.CLASSIC,
    )
    return TransactionChange(transaction=fenced, last_epoch=NO_EPOCH)


# -- AddPartitionsToTxn, AddOffsetsToTxn


def check_producer(current: Transaction | None, who: ProducerIdentity) -> Transaction:
    """Returns the state, if `who` may write under the id. INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED."""
    if current is None or current.producer_id != who.producer_id:
        raise _not_mapped(current, who)
    if current.producer_epoch != who.producer_epoch:
        raise _fenced(current, who)
    return current


def add_partitions(
    current: Transaction | None,
    who: ProducerIdentity,
    partitions: AbstractSet[TopicPartition],
    *,
    client_version: TransactionVersion,
    now_ms: int,
) -> Transaction | None:
    """Adds partitions to the transaction, which begins with the first; returns None if all of them are in it already.

    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS."""
    _check_not_prepared(current)
    current = check_producer(current, who)
    ongoing = current.state is ONGOING
    if ongoing and partitions <= current.partitions:
        return None
    return replace(
        current,
        previous_producer_id=current.producer_id,
        state=ONGOING,
        partitions=current.partitions | partitions,
        started_ms=current.started_ms if ongoing else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def verify_partitions(
    current: Transaction | None, who: ProducerIdentity, partitions: AbstractSet[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Returns for each partition NONE or, if it is not in the transaction, TRANSACTION_ABORTABLE. Raises as
    `add_partitions`."""
    current = check_producer(current, who)
    _check_not_prepared(current)
    return {
        partition: ErrorCode.NONE if partition in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }


# -- EndTxn


def end_classic(
    current: Transaction | None, who: ProducerIdentity, *, commit: bool, now_ms: int
) -> Transaction | None:
    """Decides EndTxn up to version 4: returns the prepared state, or None if the transaction ended in this way already.

    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    """
    current = check_producer(current, who)
    _check_not_prepared(current)
    if current.state is _complete(commit):
        return None
    if current.state is not ONGOING:
        raise _wrong_state(current, commit)
    return replace(
        current,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER,
        state=_prepare(commit),
        updated_ms=now_ms,
        client_version=TransactionVersion.CLASSIC,
    )


def end_with_new_epoch(
    current: Transaction | None,
    who: ProducerIdentity,
    *,
    commit: bool,
    fresh_producer_id: int | None,
    now_ms: int,
) -> TransactionChange | None:
    """Decides EndTxn from version 5: returns the prepared state, or None for a repeated request that ended in this way.

    A client that does not know whether its transaction had begun may abort: that ends an empty one.
    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    """
    _check_not_prepared(current)
    repeated = current is not None and _is_repeated(current, who)
    if current is None or (current.producer_id != who.producer_id and not repeated):
        raise _not_mapped(current, who)
    _check_epoch(current, who, repeated=repeated)
    if repeated:
        if current.state is _complete(commit):
            return None
        raise _wrong_state(current, commit)
    if current.state is ONGOING:
        state, started_ms = _prepare(commit), current.started_ms
    elif not commit:
        state, started_ms = TransactionState.PREPARE_ABORT, now_ms
    else:
        raise _wrong_state(current, commit)
    return _prepared(
        current, state, started_ms=started_ms, fresh_producer_id=fresh_producer_id, now_ms=now_ms
    )


def _is_repeated(current: Transaction, who: ProducerIdentity) -> bool:
    """Returns whether the request ended the epoch before the current one."""
    if who.producer_id == current.producer_id:
        return current.producer_epoch == who.producer_epoch + 1
    return (
        current.previous_producer_id == who.producer_id
        and who.producer_epoch == EPOCH_MAX - 1
        and current.producer_epoch == 0
    )


def _check_epoch(current: Transaction, who: ProducerIdentity, *, repeated: bool) -> None:
    if current.state in (ONGOING, EMPTY):
        allowed = who.producer_epoch == current.producer_epoch and who.producer_id == current.producer_id
    else:
        allowed = repeated or who.producer_epoch == current.producer_epoch
    if not allowed:
        raise _fenced(current, who)


def _prepared(
    current: Transaction,
    state: TransactionState,
    *,
    started_ms: int,
    fresh_producer_id: int | None,
    now_ms: int,
) -> TransactionChange:
    """Returns the decided state, under the next epoch; when that is the last, a fresh producer id is ready."""
    prepared = replace(
        current,
        producer_epoch=current.producer_epoch + 1,
        previous_producer_id=current.producer_id,
        next_producer_id=_fresh(fresh_producer_id) if current.epochs_used_up else NO_PRODUCER,
        state=state,
        started_ms=started_ms,
        updated_ms=now_ms,
        client_version=TransactionVersion.EPOCH_FOR_EACH,
    )
    return TransactionChange(transaction=prepared, last_epoch=current.producer_epoch)


# -- all markers are written


def completed(prepared: Transaction, *, now_ms: int) -> Transaction:
    """Returns the state once every partition has its marker."""
    state = TransactionState.COMPLETE_COMMIT if prepared.is_commit else TransactionState.COMPLETE_ABORT
    identity = identity_after(prepared)
    return replace(
        prepared,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        previous_producer_id=prepared.producer_id,
        next_producer_id=NO_PRODUCER,
        state=state,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


def identity_after(prepared: Transaction) -> ProducerIdentity:
    """Returns the producer's identity after the prepared transaction is complete, which is the answer to EndTxn 5."""
    if prepared.client_version.bumps_epochs and prepared.next_producer_id != NO_PRODUCER:
        return ProducerIdentity(producer_id=prepared.next_producer_id, producer_epoch=0)
    return prepared.identity


# -- words


def _fresh(producer_id: int | None) -> int:
    if producer_id is None:
        raise ProducerIdRequired
    return producer_id


def _prepare(commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT


def _complete(commit: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT


def _check_not_prepared(current: Transaction | None) -> None:
    """Raises CONCURRENT_TRANSACTIONS while a transaction is being completed: this may give the id another epoch, or producer.

    So this comes before any check of the requester, except for classic EndTxn and for verification, as in Kafka.
    """
    if current is not None and current.state.is_prepared:
        raise KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction before is being completed: try again soon"
        )


def _not_mapped(current: Transaction | None, who: ProducerIdentity) -> KafkaError:
    known = "is not known" if current is None else f"belongs to producer {current.producer_id}"
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"the transactional id {known}, not to producer {who.producer_id}",
    )


def _fenced(current: Transaction, who: ProducerIdentity) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"the transactional id is at producer {current.producer_id}, epoch {current.producer_epoch}; "
        f"the request is of producer {who.producer_id}, epoch {who.producer_epoch}",
    )


def _wrong_state(current: Transaction, commit: bool) -> KafkaError:
    ending = "commit" if commit else "abort"
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE, f"there is nothing to {ending}: the transaction is {current.state.title}"
    )
