"""The driver of an exactly-once sink against a broker, without Spark: tasks are producers that prepare and leave."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.interop.sink.plain_sink import PlainSink, batch

from odradek import Admin, ProducerFencedError, TopicPartition
from odradek.client.transactions.error_actions import FatalTransactionError
from odradek.client.transactions.service import ProducerTransactions
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.spark.clients import connections
from odradek.spark.exactly_once import open_transactions
from odradek.spark.exactly_once.decision import Participant, SinkRole, participant_id, sink_of
from odradek.spark.exactly_once.driver import BatchLostError, BatchTerms, SinkDriver
from odradek.spark.exactly_once.task import BatchName

MakeTopic = Callable[..., str]
_numbers = itertools.count()


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as made:
        yield made


@pytest.fixture
def sink(admin: Admin, bootstrap: str, topic: MakeTopic) -> Iterator[PlainSink]:
    yield PlainSink(admin, bootstrap, f"sink-{time.time_ns()}-{next(_numbers)}", topic())
    connections.producer_pool.close()


@pytest.fixture
def driver(sink: PlainSink) -> SinkDriver:
    return sink.driver()


def test_batches_are_decided_one_after_the_other(driver: SinkDriver, sink: PlainSink) -> None:
    for turn in range(5):
        terms = driver.begin()
        tasks = [sink.run_task(terms, b"%d.%d" % (turn, number)) for number in range(3)]
        driver.decide(terms, batch(turn), tasks, {})
    assert sorted(sink.committed()) == sorted(b"%d.%d" % (b, n) for b in range(5) for n in range(3))
    decision = sink.decided()
    assert decision is not None
    assert (decision.batch, decision.is_ended) == (4, True)


def test_an_undecided_batch_leaves_nothing_however_few_tasks_its_replay_has(
    driver: SinkDriver, sink: PlainSink
) -> None:
    terms = driver.begin()
    for _ in range(5):
        sink.run_task(terms, b"lost")
    replay = sink.driver()
    terms = replay.begin()
    assert terms.decided is None
    replay.decide(terms, batch(0), [sink.run_task(terms, b"kept") for number in range(2)], {})
    assert sorted(sink.committed()) == [b"kept", b"kept"]


def test_a_batch_that_the_same_driver_tries_again_is_there_once(driver: SinkDriver, sink: PlainSink) -> None:
    terms = driver.begin()
    for _ in range(3):
        sink.run_task(terms, b"lost")
    terms = driver.begin()
    driver.decide(terms, batch(0), [sink.run_task(terms, b"kept")], {})
    assert sorted(sink.committed()) == [b"kept"]


@pytest.mark.parametrize("ended_before", [0, 1, 3])
def test_a_decision_is_carried_out_by_the_next_driver(
    driver: SinkDriver, admin: Admin, monkeypatch: pytest.MonkeyPatch, ended_before: int, sink: PlainSink
) -> None:
    terms = driver.begin()
    tasks = [sink.run_task(terms, b"%d" % number) for number in range(3)]
    with monkeypatch.context() as patched:
        patched.setattr(
            driver,
            "carry_out",
            lambda decision: admin.end_transactions(decision.identities()[:ended_before], committed=True),
        )
        driver.decide(terms, batch(0), tasks, {})
    terms = sink.driver().begin()
    assert terms.decided is not None
    assert (terms.decided.query, terms.decided.batch) == ("q", 0)
    assert sorted(sink.committed()) == [b"0", b"1", b"2"]


def test_an_older_driver_cannot_decide(driver: SinkDriver, sink: PlainSink) -> None:
    old_terms = driver.begin()
    old = [sink.run_task(old_terms, b"old")]
    newer = sink.driver()
    terms = newer.begin()
    with pytest.raises(ProducerFencedError):
        driver.decide(old_terms, batch(0), old, {})
    newer.decide(terms, batch(0), [sink.run_task(terms, b"new")], {})
    assert sorted(sink.committed()) == [b"new"]


def test_a_driver_fences_again_where_another_has_retired_the_sink(
    driver: SinkDriver, sink: PlainSink
) -> None:
    """A program does so that is started with a new checkpoint, in a process that wrote the last batch, too."""
    terms = driver.begin()
    driver.decide(terms, batch(0), [sink.run_task(terms, b"0")], {})
    decided = sink.driver().retire()
    assert decided is not None
    terms = driver.begin(fence_again=True)
    driver.decide(terms, batch(1), [sink.run_task(terms, b"1")], {})
    assert sorted(sink.committed()) == [b"0", b"1"]


@pytest.mark.parametrize("other", ["has begun a batch", "has swept"])
def test_a_driver_goes_on_in_another_process_than_the_one_that_fenced_last(
    driver: SinkDriver, sink: PlainSink, other: str
) -> None:
    """Spark plans the batches of one query in several processes. The other one decides nothing: its batch was in the output
    already, or it has swept after a task that was tried again.
    """
    terms = driver.begin()
    if other == "has swept":
        sink.run_task(terms, b"lost")
    driver.decide(terms, batch(0), [sink.run_task(terms, b"0")], {})
    second = sink.driver()
    if other == "has swept":
        second.sweep()
    else:
        assert second.begin().decided is not None
    terms = driver.begin()
    driver.decide(terms, batch(1), [sink.run_task(terms, b"1")], {})
    assert sorted(sink.committed()) == [b"0", b"1"]


def test_a_driver_fences_where_its_identity_cannot_be_described(
    driver: SinkDriver, admin: Admin, monkeypatch: pytest.MonkeyPatch, sink: PlainSink
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "not allowed")

    monkeypatch.setattr(admin, "describe_transactions", refuse)
    for number in range(2):
        terms = driver.begin()
        driver.decide(terms, batch(number), [sink.run_task(terms, b"%d" % number)], {})
    assert sink.committed() == [b"0", b"1"]


def test_a_task_that_outlived_its_driver_disturbs_no_one(driver: SinkDriver, sink: PlainSink) -> None:
    old_terms = driver.begin()
    newer = sink.driver()
    terms = newer.begin()
    tasks = [sink.run_task(terms, b"new")]
    sink.run_task(old_terms, b"late")
    newer.decide(terms, batch(0), tasks, {})
    newer.sweep()
    assert sorted(sink.committed()) == [b"new"]


def test_of_two_attempts_of_a_task_the_one_that_spark_names_counts(
    driver: SinkDriver, sink: PlainSink
) -> None:
    terms = driver.begin()
    sink.run_task(terms, b"slow")
    named = sink.run_task(terms, b"fast")
    sink.run_task(terms, b"of another stage attempt")
    driver.decide(terms, batch(0), [named], {})
    driver.sweep()
    assert sorted(sink.committed()) == [b"fast"]


def test_a_batch_without_output_is_decided_too(driver: SinkDriver, sink: PlainSink) -> None:
    driver.decide(driver.begin(), batch(0), [], {})
    decision = sink.decided()
    assert decision is not None
    assert decision.batch == 0
    assert sorted(sink.committed()) == []


def test_offsets_are_committed_with_the_decision_or_not_at_all(
    driver: SinkDriver, admin: Admin, sink: PlainSink
) -> None:
    tp = TopicPartition(sink.topic, 0)
    group = f"lag-{sink.sink_id}"
    old_terms = driver.begin()
    newer = sink.driver()
    terms = newer.begin()
    with pytest.raises(ProducerFencedError):
        driver.decide(old_terms, batch(0), [], {group: {tp: 1}})
    newer.decide(terms, batch(0), [], {group: {tp: 2}})
    committed = admin.list_group_offsets(group, [tp], require_stable=True)[tp]
    assert committed is not None
    assert committed.offset == 2


def test_a_decided_transaction_that_was_aborted_is_named_as_lost_and_the_user_may_go_on(
    driver: SinkDriver, admin: Admin, monkeypatch: pytest.MonkeyPatch, sink: PlainSink
) -> None:
    terms = driver.begin()
    task = sink.run_task(terms, b"lost")
    with monkeypatch.context() as patched:
        patched.setattr(driver, "carry_out", lambda decision: None)
        driver.decide(terms, batch(3), [task], {})
    admin.fence_producers(
        [participant_id(sink.sink_id, task.writer, terms.side, task.slot)]
    )  # as its timeout would
    for _ in range(2):
        with pytest.raises(BatchLostError, match="batch 3 of query q was decided"):
            sink.driver().begin()
    terms = sink.driver(failing_on_loss=False).begin()
    assert terms.decided is not None
    assert sink.driver().begin().decided is not None


def test_what_cannot_be_reached_is_tried_again_and_not_called_lost(
    driver: SinkDriver, admin: Admin, monkeypatch: pytest.MonkeyPatch, sink: PlainSink
) -> None:
    from odradek.client import TimedOutError

    terms = driver.begin()
    task = sink.run_task(terms, b"a")

    def fail(*_: object, **__: object) -> None:
        raise TimedOutError("ending the transactions")

    end = admin.end_transactions
    calls = itertools.count()
    monkeypatch.setattr(
        admin, "end_transactions", lambda *a, **k: fail() if next(calls) == 1 else end(*a, **k)
    )
    with pytest.raises(KafkaError) as caught:
        driver.decide(terms, batch(0), [task], {})
    assert not isinstance(caught.value, BatchLostError)
    driver.begin()
    assert sorted(sink.committed()) == [b"a"]


@pytest.mark.parametrize("progress", ["written", "decided", "carried out"])
def test_a_driver_that_stood_still_aborts_only_what_its_successor_can_no_longer_decide(
    driver: SinkDriver, admin: Admin, monkeypatch: pytest.MonkeyPatch, progress: str, sink: PlainSink
) -> None:
    """It stands still after its fence; meanwhile the other one begins a batch and gets as far as `progress`."""
    successor = sink.driver()
    list_transactions = admin.list_transactions
    terms: list[BatchTerms] = []
    tasks: list[Participant] = []

    def stand_still(**more: Any) -> Any:
        monkeypatch.setattr(admin, "list_transactions", list_transactions)
        terms.append(successor.begin())
        tasks.append(sink.run_task(terms[0], b"new"))
        transactions = list_transactions(**more)
        if progress != "written":
            with monkeypatch.context() as patched:
                if progress == "decided":
                    patched.setattr(successor, "carry_out", lambda decision: None)
                successor.decide(terms[0], batch(0), tasks, {})
        return transactions

    monkeypatch.setattr(admin, "list_transactions", stand_still)
    driver.begin()
    if progress == "written":
        with pytest.raises(ProducerFencedError):
            successor.decide(terms[0], batch(0), tasks, {})
    assert sorted(sink.committed()) == ([] if progress == "written" else [b"new"])


def test_what_is_written_under_a_listed_name_since_is_not_aborted(
    driver: SinkDriver, sink: PlainSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver stands still before it aborts; the process of the lost task writes for its successor, under the same name."""
    sink.run_task(driver.begin(), b"lost", has_own_process=False)
    successor, abort = sink.driver(), open_transactions.abort
    terms: list[BatchTerms] = []
    tasks: list[Participant] = []

    def stand_still(*given: Any, **more: Any) -> None:
        monkeypatch.setattr("odradek.spark.exactly_once.driver.abort", abort)
        terms.append(successor.begin())
        tasks.append(sink.run_task(terms[0], b"new", has_own_process=False))
        abort(*given, **more)

    monkeypatch.setattr("odradek.spark.exactly_once.driver.abort", stand_still)
    sink.driver().begin()
    successor.decide(terms[0], batch(0), tasks, {})
    assert sink.committed() == [b"new"]


def test_a_batch_that_took_almost_as_long_as_its_transactions_may_is_not_decided(sink: PlainSink) -> None:
    now = [0.0]
    slow = sink.driver(clock=lambda: now[0], transaction_timeout_s=60.0)
    terms = slow.begin()
    task = sink.run_task(terms, b"late")
    now[0] = 55.0
    with pytest.raises(ConfigError, match=r"batch 0 of query q took 55 s, .* time out after 60 s: nothing"):
        slow.decide(terms, batch(0), [task], {})
    assert sink.decided() is None
    terms = slow.begin()
    slow.decide(terms, batch(0), [sink.run_task(terms, b"in time")], {})
    assert sorted(sink.committed()) == [b"in time"]


def test_one_process_writes_many_tasks_of_many_batches_under_few_names(
    driver: SinkDriver, sink: PlainSink
) -> None:
    for number in range(6):
        terms = driver.begin()
        if number % 2:  # a batch that is begun again
            sink.run_task(terms, b"lost", has_own_process=False)
            terms = driver.begin()
        tasks = [sink.run_task(terms, b"%d" % number, has_own_process=False) for _ in range(3)]
        driver.decide(terms, batch(number), tasks, {})
    assert sorted(sink.committed()) == sorted(b"%d" % number for number in range(6) for _ in range(3))
    owners = [sink_of(transaction.transactional_id) for transaction in sink.admin.list_transactions()]
    assert owners.count((sink.sink_id, SinkRole.TASK)) == 6


def test_a_task_whose_batch_has_begun_again_in_its_process_is_refused(
    driver: SinkDriver, sink: PlainSink
) -> None:
    old_terms, terms = driver.begin(), driver.begin()
    task = sink.run_task(terms, b"new", has_own_process=False)
    with pytest.raises(ProducerFencedError, match="has begun again"):
        sink.run_task(old_terms, b"old", has_own_process=False)
    driver.decide(terms, batch(0), [task], {})
    assert sink.committed() == [b"new"]


def test_an_error_that_is_no_loss_is_not_called_one(
    driver: SinkDriver, admin: Admin, monkeypatch: pytest.MonkeyPatch, sink: PlainSink
) -> None:
    terms = driver.begin()
    task = sink.run_task(terms, b"a")
    end, calls = admin.end_transactions, itertools.count()

    def refuse(*given: Any, **more: Any) -> None:
        if next(calls) == 1:
            raise FatalTransactionError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "not allowed")
        end(*given, **more)

    monkeypatch.setattr(admin, "end_transactions", refuse)
    with pytest.raises(FatalTransactionError, match="not allowed"):
        driver.decide(terms, batch(0), [task], {})
    driver.begin()
    assert sorted(sink.committed()) == [b"a"]


def test_an_end_mark_that_comes_late_does_not_end_another_decision(
    driver: SinkDriver, monkeypatch: pytest.MonkeyPatch, sink: PlainSink
) -> None:
    """A batch write is decided under a key, another one, and then the first key again: same key, same batch 0."""
    names = [BatchName(query=key, batch=0, is_keyed=True) for key in ("monday", "tuesday", "monday")]
    alter = driver._admin.alter_group_offsets
    late: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(driver._admin, "alter_group_offsets", lambda *given: late.append(given))
        terms = driver.begin()
        driver.decide(terms, names[0], [sink.run_task(terms, b"0")], {})
    for number in (1, 2):
        terms = driver.begin()
        task = sink.run_task(terms, b"%d" % number)
        if number == 2:
            monkeypatch.setattr(driver, "carry_out", lambda decision: None)
        driver.decide(terms, names[number], [task], {})
    alter(*late[0])
    sink.driver().begin()
    assert sorted(sink.committed()) == [b"0", b"1", b"2"]


def count_fences(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    fences: list[list[str]] = []
    fence = admin.fence_producers

    def noted(names: Any, **more: Any) -> Any:
        fences.append(list(names))
        return fence(names, **more)

    monkeypatch.setattr(admin, "fence_producers", noted)
    return fences


def test_a_driver_that_no_one_disturbs_is_fenced_once(
    driver: SinkDriver, admin: Admin, sink: PlainSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    fences = count_fences(admin, monkeypatch)
    drivers = set()
    for number in range(5):
        terms = driver.begin()
        drivers.add((terms.driver.producer_id, terms.driver.producer_epoch))
        driver.decide(terms, batch(number), [sink.run_task(terms, b"%d" % number, has_own_process=False)], {})
    assert len(drivers) == 5, "each batch is decided under an identity of its own"
    assert len(fences) == 1
    assert sink.committed() == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize(
    "meanwhile", ["nothing was decided", "another driver began", "another driver decided", "too long a rest"]
)
def test_a_driver_fences_again_unless_its_last_batch_was_the_last_that_was_decided(
    admin: Admin, sink: PlainSink, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    now = [0.0]
    driver, other = sink.driver(clock=lambda: now[0]), sink.driver()
    terms = driver.begin()
    if meanwhile != "nothing was decided":
        driver.decide(terms, batch(0), [sink.run_task(terms, b"0", has_own_process=False)], {})
    else:
        sink.run_task(terms, b"lost", has_own_process=False)
    if meanwhile.startswith("another driver"):
        others = other.begin()
        if meanwhile == "another driver decided":
            other.decide(others, batch(1), [sink.run_task(others, b"1")], {})
    now[0] = 1_000.0 if meanwhile == "too long a rest" else 0.0
    fences = count_fences(admin, monkeypatch)
    terms = driver.begin()
    assert fences
    if meanwhile == "another driver began":
        with pytest.raises(ProducerFencedError, match="another query uses sink"):
            other.decide(others, batch(1), [], {})
    driver.decide(terms, batch(2), [sink.run_task(terms, b"2", has_own_process=False)], {})
    expected = {"nothing was decided": [b"2"], "another driver decided": [b"0", b"1", b"2"]}
    assert sink.committed() == expected.get(meanwhile, [b"0", b"2"])


def test_the_note_that_a_decision_was_carried_out_may_come_later_or_never(
    admin: Admin, sink: PlainSink
) -> None:
    left: list[Any] = []
    driver = sink.driver(later=left.append)
    for number in range(4):
        terms = sink.driver().begin() if number % 2 else driver.begin()
        driver.decide(terms, batch(number), [sink.run_task(terms, b"%d" % number)], {})
        decision = sink.decided()
        assert decision is not None
        assert not decision.is_ended
        if number == 2:
            left.pop()(admin)
            assert getattr(sink.decided(), "is_ended", False)
    assert sink.committed() == [b"0", b"1", b"2", b"3"]
    driver = sink.driver()
    driver.begin()
    assert getattr(sink.decided(), "is_ended", False)


def count_initialisations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Transactional ids for which a task asks a broker how to go on."""
    asked: list[str] = []
    init = ProducerTransactions.init

    async def noted(transactions: ProducerTransactions, *given: Any, **more: Any) -> Any:
        asked.append(transactions.core.transactional_id)
        return await init(transactions, *given, **more)

    monkeypatch.setattr(ProducerTransactions, "init", noted)
    return asked


def test_a_process_that_writes_now_and_then_asks_no_broker_how_to_go_on(
    driver: SinkDriver, sink: PlainSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = count_initialisations(monkeypatch)
    for number in range(9):
        terms = driver.begin()
        task = sink.run_task(terms, b"%d" % number, has_own_process=number % 4 != 0)
        driver.decide(terms, batch(number), [task], {})
    assert len(asked) == len(set(asked)) == 7
    assert sink.committed() == [b"%d" % number for number in range(9)]


def test_what_a_stale_sweep_has_listed_is_not_what_its_producer_writes_since(
    driver: SinkDriver, admin: Admin, sink: PlainSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver lists an open transaction and stands still. It is decided meanwhile, and its producer goes on from it."""
    successor = sink.driver()
    asked = count_initialisations(monkeypatch)
    list_open, abort = open_transactions.open_transactions, open_transactions.abort
    last: list[tuple[BatchTerms, Participant]] = []

    def list_and_stand_still(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr("odradek.spark.exactly_once.driver.open_transactions", list_open)
        terms = successor.begin()
        task = sink.run_task(terms, b"0", has_own_process=False)
        listed = list_open(*given, **more)
        assert listed
        successor.decide(terms, batch(0), [task], {})
        return listed

    def stand_still_and_abort(*given: Any, **more: Any) -> None:
        monkeypatch.setattr("odradek.spark.exactly_once.driver.abort", abort)
        between = successor.begin(fence_again=True)
        successor.decide(between, batch(1), [sink.run_task(between, b"1")], {})
        latest = successor.begin()
        last.append((latest, sink.run_task(latest, b"2", has_own_process=False)))
        abort(*given, **more)

    monkeypatch.setattr("odradek.spark.exactly_once.driver.open_transactions", list_and_stand_still)
    monkeypatch.setattr("odradek.spark.exactly_once.driver.abort", stand_still_and_abort)
    driver.begin()
    for latest, participant in last:
        successor.decide(latest, batch(2), [participant], {})
    assert last
    assert len(asked) == len(set(asked)) == 2, "the producer went on"
    assert sink.committed() == [b"0", b"1", b"2"]


def test_after_a_batch_was_lost_its_process_writes_on(
    driver: SinkDriver, admin: Admin, sink: PlainSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision names a transaction that was aborted: nothing goes on from it."""
    terms = driver.begin()
    task = sink.run_task(terms, b"lost", has_own_process=False)
    with monkeypatch.context() as patched:
        patched.setattr(driver, "carry_out", lambda decision: None)
        driver.decide(terms, batch(0), [task], {})
    admin.fence_producers([participant_id(sink.sink_id, task.writer, terms.side, task.slot)])
    asked = count_initialisations(monkeypatch)
    driver = sink.driver(failing_on_loss=False)
    for number in (1, 2):
        terms = driver.begin()
        task = sink.run_task(terms, b"%d" % number, has_own_process=False)
        driver.decide(terms, batch(number), [task], {})
    assert len(asked) == 2
    assert sink.committed() == [b"1", b"2"]
