"""Transactions of an exactly-once sink that no one ends for long: what timed out is named, what has no time-out is not lost."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.interop.sink.plain_sink import PlainSink, batch
from tests.kit.waiting import eventually

from odradek import Admin, KafkaError
from odradek.client import NewTopic
from odradek.client.admin.transaction_descriptions import ONGOING
from odradek.spark.clients import connections
from odradek.spark.exactly_once.decision import Participant, participant_id
from odradek.spark.exactly_once.driver import BatchLostError, BatchTerms, DriverMemory, SinkDriver
from odradek.testing import LocalBroker

SECONDS = 30.0
TIMEOUT_MS = 200
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.two.phase.commit.enable": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with LocalBroker(SETTINGS) as broker:
        yield broker.address
        connections.producer_pool.close()


@pytest.fixture
def sink(servers: str) -> Iterator[PlainSink]:
    name = f"slow-{next(_numbers)}"
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(name, 1)])
        yield PlainSink(admin, servers, name, name)


def state_of(sink: PlainSink, terms: BatchTerms, task: Participant) -> str:
    name = participant_id(sink.sink_id, task.writer, terms.side, task.slot)
    return sink.admin.describe_transactions([name])[name].state


def until_it_times_out(sink: PlainSink, terms: BatchTerms, task: Participant) -> None:
    eventually(lambda: state_of(sink, terms, task) != ONGOING)


def decide_only(driver: SinkDriver, terms: BatchTerms, *tasks: Participant) -> None:
    """Decides, and dies before the decision is carried out."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(driver, "carry_out", lambda decision: None)
        driver.decide(terms, batch(0), tasks, {})


def test_what_timed_out_after_the_decision_is_named_as_lost_and_the_rest_is_committed(
    sink: PlainSink,
) -> None:
    driver = sink.driver()
    terms = driver.begin()
    short = sink.run_task(terms, b"lost", transaction_timeout_ms=TIMEOUT_MS)
    long = sink.run_task(terms, b"kept")
    decide_only(driver, terms, short, long)
    until_it_times_out(sink, terms, short)
    with pytest.raises(BatchLostError, match=r"batch 0 of query q was decided .* 1 of its 2 transactions"):
        sink.driver().begin()
    assert sink.committed() == [b"kept"]
    sink.driver(failing_on_loss=False).begin()
    following = sink.driver()
    terms = following.begin()
    following.decide(terms, batch(1), [sink.run_task(terms, b"next")], {})
    assert sink.committed() == [b"kept", b"next"]


def test_with_two_phase_commit_a_decided_batch_waits_for_ever(sink: PlainSink) -> None:
    driver = sink.driver()
    terms = driver.begin()
    patient = sink.run_task(
        terms, b"kept", transaction_timeout_ms=TIMEOUT_MS, transaction_two_phase_commit_enable="true"
    )
    decide_only(driver, terms, patient)
    later = sink.run_task(terms, b"undecided", transaction_timeout_ms=TIMEOUT_MS)
    until_it_times_out(sink, terms, later)
    assert state_of(sink, terms, patient) == ONGOING
    sink.driver().begin()
    assert sink.committed() == [b"kept"]


@pytest.mark.parametrize("two_phase_commit", ["false", "true"])
def test_a_query_that_starts_again_with_another_timeout_has_it_in_each_batch(
    sink: PlainSink, two_phase_commit: str
) -> None:
    memory = DriverMemory()
    before: dict[str, Any] = {"transaction_timeout_ms": 5000}
    after: dict[str, Any] = {
        "transaction_timeout_ms": 60000,
        "transaction_two_phase_commit_enable": two_phase_commit,
    }
    seen = []
    for number, settings in enumerate([before, before, after, after]):
        driver = sink.driver(memory=memory)
        terms = driver.begin(fence_again=number == 2)
        task = sink.run_task(terms, b"%d" % number, has_own_process=False, **settings)
        name = participant_id(sink.sink_id, task.writer, terms.side, task.slot)
        seen.append(sink.admin.describe_transactions([name])[name].timeout_ms)
        driver.decide(terms, batch(number), [task], {})
    longest = 2**31 - 1 if two_phase_commit == "true" else 60000
    assert seen == [5000, 5000, longest, longest]
    assert sink.committed() == [b"0", b"1", b"2", b"3"]


def test_with_two_phase_commit_a_batch_may_take_as_long_as_it_likes() -> None:
    client = {"transaction.two.phase.commit.enable": "true", "transaction.timeout.ms": "1000"}
    assert connections.transaction_timeout_s(client) == float("inf")
    assert connections.transaction_timeout_s({**client, "transaction.two.phase.commit.enable": "no"}) == 1


def test_a_broker_that_does_not_allow_two_phase_commit_is_named_as_the_reason(
    bootstrap: str, topic: Callable[..., str]
) -> None:
    with Admin(bootstrap) as admin:
        sink = PlainSink(admin, bootstrap, f"slow-{time.time_ns()}", topic())
        terms = sink.driver().begin()
        with pytest.raises(
            KafkaError, match=r"two-phase commit .* transaction\.two\.phase\.commit\.enable=true"
        ):
            sink.run_task(terms, b"a", transaction_two_phase_commit_enable="true")
