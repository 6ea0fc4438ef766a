"""The driver of an exactly-once sink against a broker, without Spark: tasks are producers that prepare and leave."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from odradek import Admin, Consumer, Producer, ProducerFencedError, TopicPartition
from odradek.model.errors import KafkaError
from odradek.spark.exactly_once.decision import Participant
from odradek.spark.exactly_once.driver import BatchLostError, BatchTerms, SinkDriver

SECONDS = 20.0
MakeTopic = Callable[..., str]
_numbers = itertools.count()


@pytest.fixture
def sink_id() -> str:
    return f"sink-{time.time_ns()}-{next(_numbers)}"


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as made:
        yield made


@pytest.fixture
def new_driver(admin: Admin, sink_id: str) -> Callable[..., SinkDriver]:
    """A driver in a process of its own, as far as its memory goes."""
    return lambda **more: SinkDriver(admin, sink_id, **more)


@pytest.fixture
def driver(new_driver: Callable[..., SinkDriver]) -> SinkDriver:
    return new_driver()


@pytest.fixture
def run_task(bootstrap: str, topic: MakeTopic) -> Callable[..., Participant]:
    """A task that writes its values into `run_task.topic` and leaves."""
    into = topic()

    def run(
        terms: BatchTerms, partition: int, *values: bytes, attempt: int = 0, **settings: int
    ) -> Participant:
        name = terms.namespace.transactional_id(partition, attempt)
        with Producer(bootstrap, transactional_id=name, linger_ms=0, **settings) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for value in values:
                producer.send(into, value)
            identity = producer.prepare_transaction()
        return Participant(
            partition=partition,
            attempt=attempt,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
        )

    run.topic = into  # type: ignore[attr-defined]
    return run


@pytest.fixture
def committed(bootstrap: str, run_task: Callable[..., Participant]) -> Callable[[], list[bytes]]:
    """Everything below the end of the log, all of which must become stable."""

    def read() -> list[bytes]:
        tp = TopicPartition(run_task.topic, 0)  # type: ignore[attr-defined]
        values: list[bytes] = []
        with (
            Consumer(bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as consumer,
            Consumer(bootstrap) as plain,
        ):
            consumer.assign([tp])
            end = plain.end_offsets([tp])[tp]
            deadline = time.monotonic() + SECONDS
            while consumer.position(tp) < end:
                assert time.monotonic() < deadline, "a transaction is open and holds back its readers"
                values += [record.value for record in consumer.poll(0.2)]
        return sorted(values)

    return read


Run = Callable[..., Participant]
Read = Callable[[], list[bytes]]
NewDriver = Callable[..., SinkDriver]


def test_batches_are_decided_one_after_the_other(driver: SinkDriver, run_task: Run, committed: Read) -> None:
    for batch in range(5):
        terms = driver.begin()
        tasks = [run_task(terms, number, b"%d.%d" % (batch, number)) for number in range(3)]
        driver.decide(terms, "q", batch, tasks, {})
    assert committed() == sorted(b"%d.%d" % (b, n) for b in range(5) for n in range(3))
    decision = driver.decision()
    assert decision is not None
    assert (decision.batch, decision.is_ended) == (4, True)


def test_an_undecided_batch_leaves_nothing_however_few_tasks_its_replay_has(
    driver: SinkDriver, new_driver: NewDriver, run_task: Run, committed: Read
) -> None:
    terms = driver.begin()
    for number in range(5):
        run_task(terms, number, b"lost")
    replay = new_driver()
    terms = replay.begin()
    assert terms.decided is None
    replay.decide(terms, "q", 0, [run_task(terms, number, b"kept") for number in range(2)], {})
    assert committed() == [b"kept", b"kept"]


def test_a_batch_that_the_same_driver_tries_again_is_there_once(
    driver: SinkDriver, run_task: Run, committed: Read
) -> None:
    terms = driver.begin()
    for number in range(3):
        run_task(terms, number, b"lost")
    terms = driver.begin()
    driver.decide(terms, "q", 0, [run_task(terms, 0, b"kept")], {})
    assert committed() == [b"kept"]


@pytest.mark.parametrize("ended_before", [0, 1, 3])
def test_a_decision_is_carried_out_by_the_next_driver(
    driver: SinkDriver,
    new_driver: NewDriver,
    admin: Admin,
    run_task: Run,
    committed: Read,
    monkeypatch: pytest.MonkeyPatch,
    ended_before: int,
) -> None:
    terms = driver.begin()
    tasks = [run_task(terms, number, b"%d" % number) for number in range(3)]
    with monkeypatch.context() as patched:
        patched.setattr(
            driver,
            "_carry_out",
            lambda decision: admin.end_transactions(decision.identities()[:ended_before], committed=True),
        )
        driver.decide(terms, "q", 0, tasks, {})
    terms = new_driver().begin()
    assert terms.decided is not None
    assert (terms.decided.query, terms.decided.batch) == ("q", 0)
    assert committed() == [b"0", b"1", b"2"]


def test_an_older_driver_cannot_decide(
    driver: SinkDriver, new_driver: NewDriver, run_task: Run, committed: Read
) -> None:
    old_terms = driver.begin()
    old = [run_task(old_terms, 0, b"old")]
    newer = new_driver()
    terms = newer.begin()
    with pytest.raises(ProducerFencedError):
        driver.decide(old_terms, "q", 0, old, {})
    newer.decide(terms, "q", 0, [run_task(terms, 0, b"new")], {})
    assert committed() == [b"new"]


def test_a_task_that_outlived_its_driver_disturbs_nobody(
    driver: SinkDriver, new_driver: NewDriver, run_task: Run, committed: Read
) -> None:
    old_terms = driver.begin()
    newer = new_driver()
    terms = newer.begin()
    tasks = [run_task(terms, 0, b"new")]
    run_task(old_terms, 0, b"late")
    newer.decide(terms, "q", 0, tasks, {})
    newer._memory.swept_at = float("-inf")
    newer.begin()
    assert committed() == [b"new"]


def test_of_two_attempts_of_a_task_the_one_that_spark_names_counts(
    driver: SinkDriver, run_task: Run, committed: Read
) -> None:
    terms = driver.begin()
    run_task(terms, 0, b"slow")
    named = run_task(terms, 0, b"fast", attempt=1)
    run_task(terms, 0, b"speculative", attempt=2)
    driver.decide(terms, "q", 0, [named], {})
    driver.begin()
    assert committed() == [b"fast"]


def test_a_batch_without_output_is_decided_too(driver: SinkDriver, committed: Read) -> None:
    driver.decide(driver.begin(), "q", 0, [], {})
    decision = driver.decision()
    assert decision is not None
    assert decision.batch == 0
    assert committed() == []


def test_offsets_are_committed_with_the_decision_or_not_at_all(
    driver: SinkDriver, new_driver: NewDriver, admin: Admin, topic: MakeTopic, sink_id: str
) -> None:
    tp = TopicPartition(topic(), 0)
    group = f"lag-{sink_id}"
    old_terms = driver.begin()
    newer = new_driver()
    terms = newer.begin()
    with pytest.raises(ProducerFencedError):
        driver.decide(old_terms, "q", 0, [], {group: {tp: 1}})
    newer.decide(terms, "q", 0, [], {group: {tp: 2}})
    committed = admin.list_group_offsets(group, [tp], require_stable=True)[tp]
    assert committed is not None
    assert committed.offset == 2


def test_a_decided_transaction_that_was_aborted_is_named_as_lost_and_the_user_may_go_on(
    driver: SinkDriver, new_driver: NewDriver, admin: Admin, run_task: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = driver.begin()
    task = run_task(terms, 0, b"lost")
    with monkeypatch.context() as patched:
        patched.setattr(driver, "_carry_out", lambda decision: None)
        driver.decide(terms, "q", 3, [task], {})
    admin.fence_producers([terms.namespace.transactional_id(0, 0)])  # as its timeout would
    for _ in range(2):
        with pytest.raises(BatchLostError, match="batch 3 of query q was decided"):
            new_driver().begin()
    terms = new_driver(failing_on_loss=False).begin()
    assert terms.decided is not None
    assert new_driver().begin().decided is not None


def test_what_cannot_be_reached_is_tried_again_and_not_called_lost(
    driver: SinkDriver, admin: Admin, run_task: Run, committed: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    from odradek.client import TimedOutError

    terms = driver.begin()
    task = run_task(terms, 0, b"a")

    def fail(*_: object, **__: object) -> None:
        raise TimedOutError("ending the transactions")

    end = admin.end_transactions
    calls = itertools.count()
    monkeypatch.setattr(
        admin, "end_transactions", lambda *a, **k: fail() if next(calls) == 1 else end(*a, **k)
    )
    with pytest.raises(KafkaError) as caught:
        driver.decide(terms, "q", 0, [task], {})
    assert not isinstance(caught.value, BatchLostError)
    driver.begin()
    assert committed() == [b"a"]
