"""The next state of a transactional id: every state against every event, as a table.

A cell says what comes out: the state that is written (with + where the epoch moves on), `same` where nothing is, or an error.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.transactions import decisions
from odradek.transactions.decisions import ProducerIdRequired, TransactionChange
from odradek.transactions.state import (
    EPOCH_MAX,
    MAY_FOLLOW,
    STATES_BY_TITLE,
    ProducerIdentity,
    Transaction,
    TransactionState,
    TransactionVersion,
)

CLASSIC, BUMPING = TransactionVersion.CLASSIC, TransactionVersion.EPOCH_FOR_EACH
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER, EPOCH, FRESH, NOW = 7, 10, 900, 5_000
CURRENT = ProducerIdentity(producer_id=PRODUCER, producer_epoch=EPOCH)
BEFORE = ProducerIdentity(producer_id=PRODUCER, producer_epoch=EPOCH - 1)
NEWER = ProducerIdentity(producer_id=PRODUCER, producer_epoch=EPOCH + 1)
STRANGER = ProducerIdentity(producer_id=8, producer_epoch=EPOCH)


def stored(title: str, **changes: Any) -> Transaction | None:
    if title == "none":
        return None
    state = STATES_BY_TITLE[title]
    busy = not state.is_idle
    values: dict[str, Any] = {
        "producer_id": PRODUCER,
        "producer_epoch": EPOCH,
        "previous_producer_id": PRODUCER,
        "state": state,
        "timeout_ms": 60_000,
        "updated_ms": 4_000,
        "started_ms": 3_000 if busy else -1,
        "partitions": frozenset({P0}) if busy else frozenset(),
        "client_version": BUMPING,
    }
    return Transaction(**(values | changes))


def event(name: str, current: Transaction | None) -> Any:
    """Run one event; the decision, or its error's code."""
    makers: dict[str, Any] = {
        "init": lambda: init(current),
        "init as current": lambda: init(current, CURRENT),
        "init as before": lambda: init(current, BEFORE),
        "init as stranger": lambda: init(current, STRANGER),
        "add": lambda: add(current, CURRENT, P1),
        "add again": lambda: add(current, CURRENT, P0),
        "add as before": lambda: add(current, BEFORE, P1),
        "add as newer": lambda: add(current, NEWER, P1),
        "add as stranger": lambda: add(current, STRANGER, P1),
        "verify": lambda: verify(current, P0),
        "verify other": lambda: verify(current, P1),
        "v4 commit": lambda: decisions.end_classic(current, CURRENT, commit=True, now_ms=NOW),
        "v4 abort": lambda: decisions.end_classic(current, CURRENT, commit=False, now_ms=NOW),
        "v4 commit as before": lambda: decisions.end_classic(current, BEFORE, commit=True, now_ms=NOW),
        "v4 commit as newer": lambda: decisions.end_classic(current, NEWER, commit=True, now_ms=NOW),
        "v4 commit as stranger": lambda: decisions.end_classic(current, STRANGER, commit=True, now_ms=NOW),
        "v5 commit": lambda: end(current, CURRENT, commit=True),
        "v5 abort": lambda: end(current, CURRENT, commit=False),
        "v5 commit again": lambda: end(current, BEFORE, commit=True),
        "v5 abort again": lambda: end(current, BEFORE, commit=False),
        "v5 commit as newer": lambda: end(current, NEWER, commit=True),
        "v5 abort as stranger": lambda: end(current, STRANGER, commit=False),
    }
    try:
        return makers[name]()
    except KafkaError as error:
        return error.code


def init(
    current: Transaction | None, expected: ProducerIdentity | None = None, last_epoch: int = -1
) -> TransactionChange:
    if current is not None:
        decisions.check_expected(current, expected)
        if current.state is TransactionState.ONGOING:
            return decisions.fence(current, level=BUMPING, fresh_producer_id=FRESH, now_ms=NOW)
    return decisions.init_producer(
        current, last_epoch, timeout_ms=30_000, expected=expected, fresh_producer_id=FRESH, now_ms=NOW
    )


def add(current: Transaction | None, who: ProducerIdentity, partition: TopicPartition) -> Transaction | None:
    return decisions.add_partitions(current, who, {partition}, client_version=BUMPING, now_ms=NOW)


def verify(current: Transaction | None, partition: TopicPartition) -> ErrorCode:
    return decisions.verify_partitions(current, CURRENT, {partition})[partition]


def end(current: Transaction | None, who: ProducerIdentity, *, commit: bool) -> TransactionChange | None:
    return decisions.end_with_new_epoch(current, who, commit=commit, fresh_producer_id=FRESH, now_ms=NOW)


def shown(outcome: Any, current: Transaction | None) -> str:
    if isinstance(outcome, ErrorCode):
        return SHORT[outcome]
    if outcome is None:
        return "same"
    written = outcome.transaction if isinstance(outcome, TransactionChange) else outcome
    before = TransactionState.EMPTY if current is None else current.state
    assert before in MAY_FOLLOW[written.state]
    moved = current is not None and written.producer_epoch == current.producer_epoch + 1
    return written.state.title + "+" * moved


SHORT = {
    ErrorCode.NONE: "ok",
    ErrorCode.PRODUCER_FENCED: "FENCED",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "MAPPING",
    ErrorCode.CONCURRENT_TRANSACTIONS: "CONCURRENT",
    ErrorCode.INVALID_TXN_STATE: "STATE",
    ErrorCode.TRANSACTION_ABORTABLE: "ABORTABLE",
}
STATES = ["none", "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]
TABLE = """
event                  none     Empty         Ongoing         PrepareCommit  PrepareAbort  CompleteCommit  CompleteAbort
init                   Empty    Empty+        PrepareAbort+   CONCURRENT     CONCURRENT    Empty+          Empty+
init as current        Empty    Empty+        PrepareAbort+   CONCURRENT     CONCURRENT    Empty+          Empty+
init as before         Empty    FENCED        FENCED          CONCURRENT     CONCURRENT    FENCED          FENCED
init as stranger       Empty    FENCED        FENCED          CONCURRENT     CONCURRENT    FENCED          FENCED
add                    MAPPING  Ongoing       Ongoing         CONCURRENT     CONCURRENT    Ongoing         Ongoing
add again              MAPPING  Ongoing       same            CONCURRENT     CONCURRENT    Ongoing         Ongoing
add as before          MAPPING  FENCED        FENCED          CONCURRENT     CONCURRENT    FENCED          FENCED
add as newer           MAPPING  FENCED        FENCED          CONCURRENT     CONCURRENT    FENCED          FENCED
add as stranger        MAPPING  MAPPING       MAPPING         CONCURRENT     CONCURRENT    MAPPING         MAPPING
verify                 MAPPING  ABORTABLE     ok              CONCURRENT     CONCURRENT    ABORTABLE       ABORTABLE
verify other           MAPPING  ABORTABLE     ABORTABLE       CONCURRENT     CONCURRENT    ABORTABLE       ABORTABLE
v4 commit              MAPPING  STATE         PrepareCommit   CONCURRENT     CONCURRENT    same            STATE
v4 abort               MAPPING  STATE         PrepareAbort    CONCURRENT     CONCURRENT    STATE           same
v4 commit as before    MAPPING  FENCED        FENCED          FENCED         FENCED        FENCED          FENCED
v4 commit as newer     MAPPING  FENCED        FENCED          FENCED         FENCED        FENCED          FENCED
v4 commit as stranger  MAPPING  MAPPING       MAPPING         MAPPING        MAPPING       MAPPING         MAPPING
v5 commit              MAPPING  STATE         PrepareCommit+  CONCURRENT     CONCURRENT    STATE           STATE
v5 abort               MAPPING  PrepareAbort+ PrepareAbort+   CONCURRENT     CONCURRENT    PrepareAbort+   PrepareAbort+
v5 commit again        MAPPING  FENCED        FENCED          CONCURRENT     CONCURRENT    same            STATE
v5 abort again         MAPPING  FENCED        FENCED          CONCURRENT     CONCURRENT    STATE           same
v5 commit as newer     MAPPING  FENCED        FENCED          CONCURRENT     CONCURRENT    FENCED          FENCED
v5 abort as stranger   MAPPING  MAPPING       MAPPING         CONCURRENT     CONCURRENT    MAPPING         MAPPING
"""


def cells() -> list[tuple[str, str, str]]:
    records = []
    for line in TABLE.strip().splitlines()[1:]:
        name, outcomes = line[:23].strip(), line[23:].split()
        records += [(name, state, outcome) for state, outcome in zip(STATES, outcomes, strict=True)]
    return records


@pytest.mark.parametrize(("name", "state", "expected"), cells())
def test_every_state_meets_every_event(name: str, state: str, expected: str) -> None:
    current = stored(state)
    assert shown(event(name, current), current) == expected


def test_a_transaction_begins_with_its_first_partition_and_its_time_stays() -> None:
    begun = add(stored("Empty"), CURRENT, P0)
    assert begun is not None
    assert (begun.started_ms, begun.partitions) == (NOW, {P0})
    more = decisions.add_partitions(begun, CURRENT, {P1}, client_version=BUMPING, now_ms=NOW + 50)
    assert more is not None
    assert (more.started_ms, more.updated_ms, more.partitions) == (NOW, NOW + 50, {P0, P1})


def test_completion_forgets_the_partitions_and_keeps_the_producer() -> None:
    prepared = stored("PrepareCommit")
    assert prepared is not None
    done = decisions.completed(prepared, now_ms=NOW)
    assert (done.state, done.partitions, done.identity) == (
        TransactionState.COMPLETE_COMMIT,
        frozenset(),
        CURRENT,
    )


# -- KIP-360: a producer goes on after an error, and asks again if the answer got lost


def test_a_repeated_init_gets_the_same_answer_and_no_other_epoch() -> None:
    first = init(stored("Empty"), CURRENT)
    assert first.transaction.identity == NEWER
    again = init(first.transaction, CURRENT, last_epoch=first.last_epoch)
    assert again.transaction.identity == NEWER
    assert again.last_epoch == first.last_epoch


def test_a_new_producer_under_the_id_ends_the_right_to_ask_again() -> None:
    first = init(stored("Empty"), CURRENT)
    other = init(first.transaction, None, last_epoch=first.last_epoch)
    assert other.last_epoch == -1
    with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
        init(other.transaction, CURRENT, last_epoch=other.last_epoch)


def test_a_zombie_does_not_abort_its_successors_transaction() -> None:
    with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
        init(stored("Ongoing"), BEFORE, last_epoch=BEFORE.producer_epoch)


def test_a_producer_that_timed_out_may_go_on() -> None:
    ongoing = stored("Ongoing")
    assert ongoing is not None
    fenced = decisions.fence(ongoing, level=BUMPING, fresh_producer_id=None, now_ms=NOW)
    done = decisions.completed(fenced.transaction, now_ms=NOW)
    assert init(done, CURRENT, last_epoch=fenced.last_epoch).transaction.identity == NEWER


def test_without_epochs_for_each_fencing_forgets_the_last_epoch() -> None:
    ongoing = stored("Ongoing", client_version=CLASSIC)
    assert ongoing is not None
    fenced = decisions.fence(ongoing, level=CLASSIC, fresh_producer_id=None, now_ms=NOW)
    assert (fenced.transaction.producer_epoch, fenced.last_epoch) == (EPOCH + 1, -1)


# -- the last epochs


def test_used_up_epochs_bring_a_new_producer_id() -> None:
    current = stored("Empty", producer_epoch=EPOCH_MAX - 1)
    change = init(current)
    assert change.transaction.identity == ProducerIdentity(producer_id=FRESH, producer_epoch=0)
    assert change.transaction.previous_producer_id == PRODUCER


def test_a_repeated_init_finds_the_new_producer_id_again() -> None:
    last = ProducerIdentity(producer_id=PRODUCER, producer_epoch=EPOCH_MAX - 1)
    change = init(stored("Empty", producer_epoch=EPOCH_MAX - 1), last)
    again = init(change.transaction, last, last_epoch=change.last_epoch)
    assert again.transaction.identity == ProducerIdentity(producer_id=FRESH, producer_epoch=0)


def test_the_last_epoch_commits_under_the_largest_and_goes_on_under_a_new_id() -> None:
    last = ProducerIdentity(producer_id=PRODUCER, producer_epoch=EPOCH_MAX - 1)
    change = end(stored("Ongoing", producer_epoch=EPOCH_MAX - 1), last, commit=True)
    assert change is not None
    prepared = change.transaction
    assert (prepared.producer_epoch, prepared.next_producer_id) == (EPOCH_MAX, FRESH)
    assert decisions.identity_after(prepared) == ProducerIdentity(producer_id=FRESH, producer_epoch=0)
    with pytest.raises(KafkaError, match="CONCURRENT_TRANSACTIONS"):
        end(prepared, last, commit=True)
    done = decisions.completed(prepared, now_ms=NOW)
    assert done.identity == ProducerIdentity(producer_id=FRESH, producer_epoch=0)
    assert end(done, last, commit=True) is None, "asked again: the same outcome"
    with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
        end(done, last, commit=False)


def test_fencing_at_the_last_epoch_has_one_left() -> None:
    ongoing = stored("Ongoing", producer_epoch=EPOCH_MAX - 1)
    assert ongoing is not None
    change = decisions.fence(ongoing, level=BUMPING, fresh_producer_id=FRESH, now_ms=NOW)
    assert change.transaction.producer_epoch == EPOCH_MAX
    done = decisions.completed(change.transaction, now_ms=NOW)
    assert done.identity == ProducerIdentity(producer_id=FRESH, producer_epoch=0)


@pytest.mark.parametrize("state", ["none", "Empty"])
def test_a_fresh_producer_id_is_asked_for_only_when_it_is_needed(state: str) -> None:
    current = stored(state, producer_epoch=EPOCH_MAX - 1)
    with pytest.raises(ProducerIdRequired):
        decisions.init_producer(current, -1, timeout_ms=1, expected=None, fresh_producer_id=None, now_ms=NOW)
    ongoing = stored("Ongoing", producer_epoch=EPOCH_MAX - 2)
    assert ongoing is not None
    decisions.fence(ongoing, level=BUMPING, fresh_producer_id=None, now_ms=NOW)
    decisions.fence(
        replace(ongoing, producer_epoch=EPOCH_MAX - 1), level=CLASSIC, fresh_producer_id=None, now_ms=NOW
    )


# -- late requests (failure mode 48)


def test_a_late_end_cannot_complete_the_next_transaction() -> None:
    first = end(stored("Ongoing"), CURRENT, commit=True)
    assert first is not None
    done = decisions.completed(first.transaction, now_ms=NOW)
    following = add(done, NEWER, P1)
    for commit in (True, False):
        with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
            end(following, CURRENT, commit=commit)


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_gets_one_outcome_only(commit: bool) -> None:
    first = end(stored("Ongoing"), CURRENT, commit=commit)
    assert first is not None
    done = decisions.completed(first.transaction, now_ms=NOW)
    assert end(done, CURRENT, commit=commit) is None
    with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
        end(done, CURRENT, commit=not commit)


def test_a_timeout_that_beat_the_commit_is_reported() -> None:
    ongoing = stored("Ongoing")
    assert ongoing is not None
    fenced = decisions.fence(ongoing, level=BUMPING, fresh_producer_id=None, now_ms=NOW)
    done = decisions.completed(fenced.transaction, now_ms=NOW)
    assert event("v5 commit again", done) is not None
    with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
        end(done, CURRENT, commit=True)
    with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
        decisions.end_classic(done, CURRENT, commit=True, now_ms=NOW)
