"""`odradek txn` and `odradek pipeline` about an exactly-once sink of Spark, against a real broker."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.interop.sink.plain_sink import PlainSink, batch

from odradek import Admin, ProducerFencedError
from odradek.spark.clients import connections
from odradek.spark.exactly_once.driver import SinkDriver

MakeTopic = Callable[..., str]
Run = Callable[..., str]
_numbers = itertools.count()


@pytest.fixture
def sink(bootstrap: str, topic: MakeTopic) -> Iterator[PlainSink]:
    with Admin(bootstrap) as admin:
        yield PlainSink(admin, bootstrap, f"sink-{time.time_ns()}-{next(_numbers)}", topic())
        connections.producer_pool.close()


def listed(run: Run, sink: PlainSink) -> list[tuple[str, str]]:
    """State and owner of the sink's transactional ids."""
    rows: list[dict[str, Any]] = json.loads(run("txn", "list", "--json"))
    return sorted(
        (row["state"], row["owner"])
        for row in rows
        if (row["owner"] or "").startswith(f"sink {sink.sink_id},")
    )


def decide_only(sink: PlainSink, driver: SinkDriver, number: int, *values: bytes) -> None:
    """A batch that is decided, and whose driver dies before it carries that out."""
    terms = driver.begin()
    tasks = [sink.run_task(terms, value) for value in values]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(driver, "carry_out", lambda decision: None)
        driver.decide(terms, batch(number), tasks, {})


def test_whose_a_transaction_is_stands_in_the_list(run: Run, sink: PlainSink) -> None:
    sink.run_task(sink.driver().begin(), b"open")
    assert listed(run, sink) == [
        ("Empty", f"sink {sink.sink_id}, driver"),
        ("Ongoing", f"sink {sink.sink_id}, task"),
    ]
    names = [row["transaction"] for row in json.loads(run("txn", "list", "--state", "Ongoing", "--json"))]
    [name] = [name for name in names if f"{sink.sink_id}~" in name]
    [described] = json.loads(run("txn", "describe", name, "--json"))
    assert described["owner"] == f"sink {sink.sink_id}, task"
    assert described["partitions"] == [f"{sink.topic}-0"]


def test_forgetting_a_sink_aborts_what_it_has_not_decided(
    run: Run, sink: PlainSink, errors: list[str]
) -> None:
    terms = sink.driver().begin()
    for value in (b"a", b"b"):
        sink.run_task(terms, value)
    out = run("pipeline", "forget", sink.sink_id, "--yes")
    assert out.count(f"{sink.topic}-0") == 2
    assert errors == [
        f"sink {sink.sink_id} has decided nothing",
        f"sink {sink.sink_id} holds nothing open any more",
    ]
    assert sink.committed() == []
    assert "Ongoing" not in dict(listed(run, sink))


def test_forgetting_a_sink_commits_what_it_has_decided(run: Run, sink: PlainSink, errors: list[str]) -> None:
    decide_only(sink, sink.driver(), 7, b"a", b"b")
    run("pipeline", "forget", sink.sink_id)
    assert "batch 7 of query q, which is not carried out: its transactions will be committed" in errors[0]
    assert sorted(sink.committed()) == [b"a", b"b"]


def test_a_forgotten_sink_may_come_back_and_doubles_nothing(run: Run, sink: PlainSink) -> None:
    decide_only(sink, sink.driver(), 0, b"a")
    described = json.loads(run("pipeline", "forget", sink.sink_id, "--json"))
    assert described["decided"] == {"query": "q", "batch": 0, "keyed": False, "carried_out": False}
    assert len(described["open"]) == 1
    terms = sink.driver().begin()
    assert terms.decided is not None
    assert (terms.decided.batch, terms.decided.is_ended) == (0, True)


def test_forgetting_shuts_out_a_query_that_is_alive(run: Run, sink: PlainSink) -> None:
    driver = sink.driver()
    terms = driver.begin()
    task = sink.run_task(terms, b"a")
    run("pipeline", "forget", sink.sink_id)
    with pytest.raises(ProducerFencedError, match="another query uses sink"):
        driver.decide(terms, batch(0), [task], {})
    assert sink.committed() == []


def test_the_decision_is_forgotten_when_that_is_asked_for(run: Run, sink: PlainSink) -> None:
    decide_only(sink, sink.driver(), 3, b"a")
    run("pipeline", "forget", sink.sink_id, "--decision")
    assert sink.decided() is None
    assert sink.committed() == [b"a"]


def test_a_sink_that_is_not_there_is_said_with_those_that_are(
    run: Run, sink: PlainSink, errors: list[str]
) -> None:
    sink.driver().begin()
    run("pipeline", "forget", "absent", code=1)
    assert len(errors) == 1
    assert "there is no sink 'absent'" in errors[0]
    assert sink.sink_id in errors[0]


def test_what_is_lost_is_said_after_the_rest_was_ended(run: Run, sink: PlainSink, errors: list[str]) -> None:
    driver = sink.driver()
    decide_only(sink, driver, 5, b"lost")
    [name] = [
        transaction.transactional_id
        for transaction in sink.admin.list_transactions(states=["Ongoing"])
        if sink.sink_id in transaction.transactional_id
    ]
    sink.admin.fence_producers([name])  # as its timeout would
    run("pipeline", "forget", sink.sink_id, code=1)
    assert any("batch 5 of query q was decided" in line for line in errors)
    assert sink.committed() == []


def test_it_asks_on_a_terminal(run: Run, sink: PlainSink, monkeypatch: pytest.MonkeyPatch) -> None:
    sink.run_task(sink.driver().begin(), b"a")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked: list[str] = []
    monkeypatch.setattr("click.confirm", lambda text, **more: asked.append(text))
    run("pipeline", "forget", sink.sink_id)
    assert asked == ["End them?"]
