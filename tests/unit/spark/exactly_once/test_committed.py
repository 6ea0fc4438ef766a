"""Which transactions a producer may go on from: those that a decision named which was carried out, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.client.transactions.error_actions import ProducerFencedError
from odradek.client.transactions.prepared import TransactionIdentity
from odradek.spark.exactly_once import prepare
from odradek.spark.exactly_once.committed import DECISIONS_MAX, TRANSACTIONS_MAX, CommittedTransactions
from odradek.spark.exactly_once.decision import Decision, Participant
from odradek.spark.exactly_once.driver import BatchTerms
from odradek.spark.exactly_once.prepare import TransactionName, note_prepared, reserve_name

SERVERS, SINK = "127.0.0.1:9092", "shop"
TIMEOUT_S = 60.0


def decision(number: int, transactions: list[tuple[int, int]]) -> Decision:
    return Decision(
        sink_id=SINK,
        query="q",
        batch=number,
        side=number % 2,
        driver=(1, number),
        participants=tuple(
            Participant(writer="00" * 6, slot=slot, producer_id=producer_id, producer_epoch=epoch)
            for slot, (producer_id, epoch) in enumerate(transactions)
        ),
    )


def terms(epoch: int, *committed: tuple[int, int], side: int = 0, producer_id: int = 1) -> BatchTerms:
    return BatchTerms(
        driver=TransactionIdentity(transactional_id="driver", producer_id=producer_id, producer_epoch=epoch),
        side=side,
        decided=None,
        begun_at=0.0,
        committed=frozenset(committed),
    )


@pytest.fixture(autouse=True)
def _own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that no other test has."""
    monkeypatch.setattr(prepare, "known_names", {})


def write(batch: BatchTerms, producer_id: int = 7, epoch: int = 3) -> TransactionName:
    """A task of this process that prepares its transaction under that producer id and epoch."""
    name = reserve_name(SERVERS, SINK, batch, TIMEOUT_S)
    note_prepared(SERVERS, SINK, name, identity_of(name, producer_id, epoch), TIMEOUT_S)
    return name


def identity_of(name: TransactionName, producer_id: int = 7, epoch: int = 3) -> TransactionIdentity:
    return TransactionIdentity(
        transactional_id=name.transactional_id, producer_id=producer_id, producer_epoch=epoch
    )


def test_a_producer_goes_on_from_its_last_transaction_where_a_decision_names_it() -> None:
    first = write(terms(1))
    again = reserve_name(SERVERS, SINK, terms(9, (7, 3), (8, 4)), TIMEOUT_S)
    assert again.transactional_id == first.transactional_id
    assert again.committed == identity_of(first)


@pytest.mark.parametrize("timeout_s", [1.0, 600.0, float("inf")])
def test_a_producer_asks_again_where_its_name_had_another_timeout(timeout_s: float) -> None:
    write(terms(1))
    assert reserve_name(SERVERS, SINK, terms(9, (7, 3)), timeout_s).committed is None


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(terms(2), id="no decision names it"),
        pytest.param(terms(2, (7, 2)), id="the decision names the transaction before it"),
        pytest.param(terms(2, (8, 3)), id="the decision names another producer's"),
        pytest.param(terms(2, (7, 3), side=1), id="another transactional id"),
        pytest.param(terms(2, (7, 3), producer_id=2), id="the driver's epochs were used up"),
    ],
)
def test_otherwise_it_asks(later: BatchTerms) -> None:
    write(terms(1))
    assert reserve_name(SERVERS, SINK, later, TIMEOUT_S).committed is None


def test_it_goes_on_from_a_transaction_once() -> None:
    """A task that failed after it had gone on leaves a transaction that no one knows of."""
    write(terms(1))
    assert reserve_name(SERVERS, SINK, terms(2, (7, 3)), TIMEOUT_S).committed is not None
    assert reserve_name(SERVERS, SINK, terms(3, (7, 3)), TIMEOUT_S).committed is None


def test_a_transaction_of_a_batch_that_was_begun_again_is_not_gone_on_from() -> None:
    """Its process wrote the batch twice under one name, and the second transaction was decided."""
    write(terms(1), epoch=3)
    write(terms(2), epoch=5)
    assert reserve_name(SERVERS, SINK, terms(3, (7, 3)), TIMEOUT_S).committed is None


def test_a_second_attempt_in_the_same_process_has_a_name_of_its_own() -> None:
    write(terms(1))
    batch = terms(2, (7, 3))
    first, second = (reserve_name(SERVERS, SINK, batch, TIMEOUT_S) for _ in range(2))
    assert first.transactional_id != second.transactional_id
    assert second.committed is None


def test_a_task_of_an_older_driver_does_not_go_on() -> None:
    write(terms(1))
    reserve_name(SERVERS, SINK, terms(5), TIMEOUT_S)
    with pytest.raises(ProducerFencedError, match="has begun again"):
        reserve_name(SERVERS, SINK, terms(4, (7, 3)), TIMEOUT_S)


def test_after_a_long_rest_brokers_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(prepare.time, "monotonic", lambda: now[0])
    write(terms(1))
    now[0] = prepare.RESUMED_WITHIN_S + 1
    assert reserve_name(SERVERS, SINK, terms(2, (7, 3)), TIMEOUT_S).committed is None


def test_a_forked_process_does_not_go_on_from_what_its_parent_prepared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parent = write(terms(1))
    monkeypatch.setattr(prepare.os, "getpid", lambda: -1)
    child = reserve_name(SERVERS, SINK, terms(2, (7, 3)), TIMEOUT_S)
    assert child.writer != parent.writer
    assert child.committed is None


def test_transactions_of_the_last_decisions_are_known() -> None:
    committed = CommittedTransactions()
    for number in range(DECISIONS_MAX + 2):
        committed.note(decision(number, [(7, number), (8, number)]))
    kept = range(2, DECISIONS_MAX + 2)
    assert committed.transactions() == {(producer_id, epoch) for producer_id in (7, 8) for epoch in kept}


def test_a_decision_that_is_noted_again_does_not_take_the_place_of_others() -> None:
    committed = CommittedTransactions()
    committed.note(decision(0, [(7, 0)]))
    for _ in range(2 * DECISIONS_MAX):
        committed.note(decision(1, [(7, 1)]))
    assert committed.transactions() == {(7, 0), (7, 1)}


def test_decisions_of_many_transactions_are_fewer() -> None:
    committed = CommittedTransactions()
    many: Any = [[(batch, epoch) for epoch in range(TRANSACTIONS_MAX)] for batch in range(3)]
    for number, transactions in enumerate(many):
        committed.note(decision(number, transactions))
    assert committed.transactions() == set(many[2])
