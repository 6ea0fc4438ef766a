"""A transactional producer's state, and what each error costs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.client.transactions.core import ProducerId, TransactionalState, TransactionCore
from odradek.client.transactions.error_actions import (
    FatalTransactionError,
    ProducerFencedError,
    TransactionError,
    TransactionErrorAction,
    action_for_batch,
    action_for_response,
)
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition

A = TopicPartition("a", 0)


def ready(*, epoch_per_transaction: bool = False) -> TransactionCore:
    core = TransactionCore("name")
    core.begin_init()
    first = ProducerId(producer_id=7, producer_epoch=0)
    core.initialized(first, epoch_per_transaction=epoch_per_transaction)
    return core


def opened(*, epoch_per_transaction: bool = False) -> TransactionCore:
    core = ready(epoch_per_transaction=epoch_per_transaction)
    core.begin()
    return core


Step = Callable[[TransactionCore], object]


def change_id(core: TransactionCore) -> None:
    core.change_id("other")


@pytest.mark.parametrize(
    ("state", "step"),
    [
        (TransactionalState.UNINITIALIZED, TransactionCore.begin),
        (TransactionalState.UNINITIALIZED, TransactionCore.check_sendable),
        (TransactionalState.READY, TransactionCore.check_sendable),
        (TransactionalState.READY, TransactionCore.begin_commit),
        (TransactionalState.READY, TransactionCore.begin_abort),
        (TransactionalState.READY, TransactionCore.begin_init),
        (TransactionalState.OPEN, TransactionCore.begin),
        (TransactionalState.OPEN, TransactionCore.begin_init),
        (TransactionalState.BROKEN, TransactionCore.begin_commit),
        (TransactionalState.BROKEN, TransactionCore.check_sendable),
        (TransactionalState.BROKEN, TransactionCore.begin),
        (TransactionalState.COMMITTING, TransactionCore.begin_abort),
        (TransactionalState.COMMITTING, TransactionCore.begin),
        (TransactionalState.ABORTING, TransactionCore.begin_commit),
        *(
            (state, change_id)
            for state in TransactionalState
            if state
            not in (TransactionalState.UNINITIALIZED, TransactionalState.READY, TransactionalState.PREPARED)
        ),
        (TransactionalState.FATAL, TransactionCore.begin),
        (TransactionalState.FATAL, TransactionCore.begin_abort),
        (TransactionalState.FATAL, TransactionCore.begin_commit),
    ],
)
def test_what_is_not_allowed_is_refused_and_changes_nothing(state: TransactionalState, step: Step) -> None:
    core = TransactionCore("name")
    core.state = state
    with pytest.raises(KafkaError):
        step(core)
    assert core.state is state


def test_in_the_classic_flow_a_partition_is_added_before_it_is_sent_to() -> None:
    core = opened()
    assert not core.admits(A)
    assert list(core.to_add) == [A]
    core.added([A])
    assert core.admits(A)
    assert core.started


def test_with_an_epoch_per_transaction_brokers_add_partitions_themselves() -> None:
    core = opened(epoch_per_transaction=True)
    assert core.admits(A)
    assert core.started
    assert not core.to_add


def test_nothing_is_sent_outside_a_transaction() -> None:
    assert not ready().admits(A)


def test_a_commit_leaves_nothing_behind() -> None:
    core = opened(epoch_per_transaction=True)
    core.admits(A)
    core.offsets_added("g")
    core.begin_commit()
    core.state = TransactionalState.COMMITTING
    core.ended(ProducerId(producer_id=7, producer_epoch=1))
    assert core.state is TransactionalState.READY
    assert core.identity == ProducerId(producer_id=7, producer_epoch=1)
    assert not core.started


def test_a_lost_batch_breaks_the_transaction_and_the_epoch() -> None:
    core = opened()
    core.batch_failed(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late"))
    assert (core.state, core.bump_wanted, core.gives_up) == (TransactionalState.BROKEN, True, True)
    with pytest.raises(TransactionError, match="too late; abort the transaction"):
        core.begin_commit()
    core.begin_abort()
    core.ended(None)
    assert core.state is TransactionalState.ABORTING  # until a new epoch is there
    core.initialized(ProducerId(producer_id=7, producer_epoch=1), epoch_per_transaction=False)
    assert core.state is TransactionalState.READY
    assert not core.bump_wanted


def test_the_end_of_a_transaction_that_brings_an_epoch_needs_no_other_bump() -> None:
    core = opened(epoch_per_transaction=True)
    core.batch_failed(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    core.begin_abort()
    core.ended(ProducerId(producer_id=7, producer_epoch=1))
    assert core.state is TransactionalState.READY


def test_a_fenced_producer_is_of_no_use_any_more() -> None:
    core = opened()
    error = core.refuse(TransactionErrorAction.FENCED, ErrorCode.PRODUCER_FENCED, "commit_transaction")
    assert isinstance(error, ProducerFencedError)
    with pytest.raises(ProducerFencedError):
        core.begin_abort()
    with pytest.raises(ProducerFencedError):
        core.check_sendable()


def test_an_old_epoch_in_a_batch_costs_only_the_transaction_at_first() -> None:
    core = opened()
    core.batch_failed(KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert core.state is TransactionalState.BROKEN


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NONE, TransactionErrorAction.FINE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, TransactionErrorAction.RETRY),
        (ErrorCode.NOT_COORDINATOR, TransactionErrorAction.RETRY),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, TransactionErrorAction.RETRY),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TransactionErrorAction.RETRY),
        (ErrorCode.TRANSACTION_ABORTABLE, TransactionErrorAction.ABORTABLE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TransactionErrorAction.ABORTABLE),
        (ErrorCode.ILLEGAL_GENERATION, TransactionErrorAction.ABORTABLE),
        (ErrorCode.UNKNOWN_MEMBER_ID, TransactionErrorAction.ABORTABLE),
        (ErrorCode.UNKNOWN_PRODUCER_ID, TransactionErrorAction.ABORTABLE_AND_BUMP),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, TransactionErrorAction.ABORTABLE_AND_BUMP),
        (ErrorCode.PRODUCER_FENCED, TransactionErrorAction.FENCED),
        (ErrorCode.INVALID_PRODUCER_EPOCH, TransactionErrorAction.FENCED),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TransactionErrorAction.FATAL),
        (ErrorCode.INVALID_TXN_STATE, TransactionErrorAction.FATAL),
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, TransactionErrorAction.FATAL),
        (ErrorCode.UNKNOWN_SERVER_ERROR, TransactionErrorAction.FATAL),
    ],
)
def test_what_a_coordinators_answer_means(code: ErrorCode, verdict: TransactionErrorAction) -> None:
    assert action_for_response(code) is verdict


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.PRODUCER_FENCED, TransactionErrorAction.FENCED),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TransactionErrorAction.FATAL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, TransactionErrorAction.ABORTABLE_AND_BUMP),
        (ErrorCode.MESSAGE_TOO_LARGE, TransactionErrorAction.ABORTABLE_AND_BUMP),
        (ErrorCode.REQUEST_TIMED_OUT, TransactionErrorAction.ABORTABLE_AND_BUMP),
    ],
)
def test_what_a_lost_batch_means(code: ErrorCode, verdict: TransactionErrorAction) -> None:
    assert action_for_batch(code) is verdict


def test_what_is_fatal_stays_so() -> None:
    core = opened()
    core.refuse(TransactionErrorAction.FATAL, ErrorCode.INVALID_TXN_STATE, "commit_transaction")
    core.batch_failed(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert core.state is TransactionalState.FATAL
    with pytest.raises(FatalTransactionError):
        core.begin()


def prepared_as(core: TransactionCore, producer_id: int, epoch: int) -> None:
    """The coordinator gave that identity, and what was written under it is prepared."""
    core.begin_init()
    identity = ProducerId(producer_id=producer_id, producer_epoch=epoch)
    core.initialized(identity, epoch_per_transaction=core.epoch_per_transaction)
    core.begin()
    core.prepare()


@pytest.mark.parametrize(
    ("bumps", "epoch", "committed", "following"),
    [
        (True, 3, (7, 3), (7, 4)),
        (True, 3, (7, 2), None),  # another transaction
        (True, 3, (8, 3), None),
        (False, 3, (7, 3), None),  # the epoch stays, but only the coordinator fences who wrote meanwhile
        (True, 32_766, (7, 32_766), None),  # the coordinator chooses another producer id
    ],
)
def test_after_a_commit_elsewhere_a_producer_goes_on_where_the_next_epoch_is_certain(
    bumps: bool, epoch: int, committed: tuple[int, int], following: tuple[int, int] | None
) -> None:
    core = TransactionCore("name")
    core.epoch_per_transaction = bumps
    prepared_as(core, 7, epoch)
    identity = core.resume(ProducerId(producer_id=committed[0], producer_epoch=committed[1]))
    assert (identity and (identity.producer_id, identity.producer_epoch)) == following
    assert core.state is (TransactionalState.PREPARED if following is None else TransactionalState.READY)


def test_a_producer_that_has_prepared_nothing_does_not_go_on_so() -> None:
    core = opened(epoch_per_transaction=True)
    assert core.identity is not None
    assert core.resume(core.identity) is None
    core.check_sendable()


def test_under_another_id_a_producer_goes_on_from_the_last_transaction_of_that_id() -> None:
    core = opened(epoch_per_transaction=True)
    core.admits(A)
    prepared = core.prepare()
    core.change_id("other")
    assert (core.transactional_id, core.state) == ("other", TransactionalState.UNINITIALIZED)
    assert (core.identity, core.started) == (None, False)
    with pytest.raises(KafkaError, match="call init_transactions first"):
        core.begin()
    last = ProducerId(producer_id=9, producer_epoch=4)
    assert core.resume(last) == ProducerId(producer_id=9, producer_epoch=5)
    assert core.state is TransactionalState.READY
    core.change_id("name")
    assert core.resume(prepared) == ProducerId(producer_id=7, producer_epoch=1)


@pytest.mark.parametrize("is_classic", [False, True])
def test_under_another_id_a_producer_asks_where_epochs_say_too_little(is_classic: bool) -> None:
    """A producer that has asked no coordinator does not know whether they do."""
    core = ready(epoch_per_transaction=False) if is_classic else TransactionCore("name")
    core.change_id("other")
    assert core.resume(ProducerId(producer_id=9, producer_epoch=4)) is None
    core.begin_init()
    core.initialized(ProducerId(producer_id=9, producer_epoch=5), epoch_per_transaction=False)
    assert core.state is TransactionalState.READY
