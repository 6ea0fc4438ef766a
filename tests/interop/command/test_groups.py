"""`odradek group`, `odradek txn` and `odradek consume --group` against a real broker."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kit.waiting import eventually

from odradek import Admin, Consumer, NewTopic, Producer, ProducerFencedError, TopicPartition

MakeTopic = Callable[..., str]
Run = Callable[..., str]
SECONDS = 20.0
_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    return f"cli-{time.time_ns()}-{next(_numbers)}"


@pytest.fixture
def filled(bootstrap: str, topic: MakeTopic) -> str:
    """A topic with two partitions of ten records each."""
    name = topic(partitions=2)
    with Producer(bootstrap) as producer:
        for number in range(20):
            producer.send(name, b"%d" % number, partition=number % 2, timestamp_ms=1_000_000 + number)
    return name


def after(out: str) -> dict[int, Any]:
    """Partition and its offset, from what reset-offsets printed."""
    return {load["partition"]: load["after"] for load in json.loads(out)["offsets"]}


def test_a_group_reads_once_what_is_there(run: Run, filled: str, name: str) -> None:
    first = run("consume", filled, "--group", name, "--max", "7").splitlines()
    rest = run("consume", filled, "--group", name, "--exit-at-end").splitlines()
    assert sorted(map(int, first + rest)) == list(range(20))
    assert run("consume", filled, "--group", name, "--exit-at-end") == ""


def test_a_place_to_start_is_the_groups_affair(run: Run, filled: str, name: str, errors: list[str]) -> None:
    run("consume", filled, "--group", name, "--from", "-5", code=2)
    assert "--group takes --from beginning or --from end" in errors[0]


def test_lag_as_a_table_and_as_json(run: Run, filled: str, name: str, bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.alter_group_offsets(name, {TopicPartition(filled, 0): 4, TopicPartition(filled, 1): 10})
    [described] = json.loads(run("group", "describe", name, "--json"))
    assert described["lag"] == 6
    assert [(entry["committed"], entry["end"], entry["lag"]) for entry in described["offsets"]] == [
        (4, 10, 6),
        (10, 10, 0),
    ]
    table = run("group", "describe", name)
    assert "lag 6" in table
    assert name in run("group", "list")


def test_lag_is_shown_in_seconds_too(run: Run, filled: str, name: str, bootstrap: str) -> None:
    """The age of the first record that the group has yet to read, of each partition, and the largest of them."""
    old, fresh = TopicPartition(filled, 0), TopicPartition(filled, 1)
    with Producer(bootstrap) as producer:
        producer.send(filled, b"x", partition=1, timestamp_ms=int(time.time() * 1000) - 90_000)
    with Admin(bootstrap) as admin:
        admin.alter_group_offsets(name, {old: 10, fresh: 10})
    [described] = json.loads(run("group", "describe", name, "--json"))
    seconds = [entry["lag_seconds"] for entry in described["offsets"]]
    assert seconds[0] == 0.0, "all of it is read"
    assert 90.0 <= seconds[1] < 1_000.0
    assert described["lag_seconds"] == seconds[1]
    with Admin(bootstrap) as admin:
        admin.alter_group_offsets(name, {old: 4})
    [described] = json.loads(run("group", "describe", name, "--json"))
    assert described["lag_seconds"] > 1e9, "the first unread record is of 1970"
    table = run("group", "describe", name)
    assert "s behind" in table.splitlines()[0]
    assert "lag seconds" in table


def test_watching_shows_it_again(run: Run, filled: str, name: str, bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.alter_group_offsets(name, {TopicPartition(filled, 0): 4})
    out = run("group", "describe", name, "--watch", "--times", "2", "--every", "0.1")
    assert out.count("lag 6") == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--to-earliest",), {0: 0, 1: 0}),
        (("--to-latest",), {0: 10, 1: 10}),
        (("--to-current",), {0: 5, 1: 5}),
        (("--to-offset", "3"), {0: 3, 1: 3}),
        (("--shift-by", "-2"), {0: 3, 1: 3}),
        (("--shift-by", "99"), {0: 10, 1: 10}),
        (("--to-datetime", "@1000010"), {0: 5, 1: 5}),
        (("--by-duration", "1d"), {0: 10, 1: 10}),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_offsets_are_reset_only_when_it_is_meant(
    run: Run,
    filled: str,
    name: str,
    bootstrap: str,
    words: tuple[str, ...],
    expected: dict[int, int],
    errors: list[str],
) -> None:
    both = [TopicPartition(filled, 0), TopicPartition(filled, 1)]
    with Admin(bootstrap) as admin:
        admin.alter_group_offsets(name, dict.fromkeys(both, 5))
        assert after(run("group", "reset-offsets", name, *words, "--json")) == expected
        assert "add --execute" in errors[-1]
        assert {committed.offset for committed in admin.list_group_offsets(name).values() if committed} == {5}
        run("group", "reset-offsets", name, *words, "--execute")
        committed = admin.list_group_offsets(name)
    assert {tp.partition: record.offset for tp, record in committed.items() if record} == expected


def test_offsets_of_a_new_group_some_partitions_and_from_a_file(
    run: Run, filled: str, name: str, tmp_path: Path, errors: list[str]
) -> None:
    run("group", "reset-offsets", name, "--to-latest", code=1)
    assert "name topics with --topic" in errors[0]
    out = run("group", "reset-offsets", name, "--to-latest", "--topic", f"{filled}:1", "--execute", "--json")
    assert after(out) == {1: 10}
    plan = tmp_path / "plan"
    plan.write_text(f"{filled},0,4\n{filled},1,6\n")
    out = run("group", "reset-offsets", name, "--from-file", str(plan), "--execute", "--json")
    assert after(out) == {0: 4, 1: 6}
    plan.write_text(out)
    assert after(run("group", "reset-offsets", name, "--from-file", str(plan), "--json")) == {0: 4, 1: 6}


def test_offsets_of_a_topic_that_was_made_again_are_not_put_back(
    bootstrap: str, run: Run, topic: MakeTopic, name: str, tmp_path: Path, errors: list[str]
) -> None:
    """They would leave out the first records of the new one."""
    again = topic(partitions=1)
    only = TopicPartition(again, 0)
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        admin.alter_group_offsets(name, {only: 0})
        for _ in range(7):
            producer.send(again, b"v")
        producer.flush()
        plan = tmp_path / "plan"
        plan.write_text(run("group", "reset-offsets", name, "--to-latest", "--execute", "--json"))
        admin.delete_topics([again])
        admin.create_topics([NewTopic(again)])
        run("group", "reset-offsets", name, "--from-file", str(plan), "--execute", code=1)
        assert f"topic '{again}' was deleted and made again since the file was written" in errors[0]
        assert admin.list_group_offsets(name) == {}


def test_where_to_is_said_once(run: Run, name: str, errors: list[str]) -> None:
    run("group", "reset-offsets", name, code=2)
    run("group", "reset-offsets", name, "--to-earliest", "--to-offset", "3", code=2)
    assert "in one way" in errors[0]


def test_an_active_group_is_left_alone(
    run: Run, filled: str, name: str, bootstrap: str, errors: list[str]
) -> None:
    with Consumer(bootstrap, group_id=name, client_id="busy") as consumer:
        consumer.subscribe([filled])
        deadline = time.monotonic() + SECONDS
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        run("group", "reset-offsets", name, "--to-earliest", "--topic", filled, "--execute", code=1)
        assert len(errors) == 1
        assert "busy at" in errors[0]
        assert "stop them first" in errors[0]
        run("group", "delete", name, code=1)
        [described] = json.loads(run("group", "describe", name, "--json", "--members"))
        assert described["members"][0]["partitions"] == [f"{filled}-0", f"{filled}-1"]
    run("group", "delete", name)
    run("group", "describe", name, code=1)
    assert "there is no such group" in errors[0]


def test_a_transaction_is_terminated_and_its_producer_shut_out(
    run: Run, filled: str, name: str, bootstrap: str, errors: list[str]
) -> None:
    run("txn", "terminate", f"{name}-none", "--yes", code=1)
    assert f"{name}-none" not in {
        entry["transaction"] for entry in json.loads(run("txn", "list", "--json") or "[]")
    }, "an unknown id was not made"
    producer = Producer(bootstrap, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(filled, b"open", partition=0).result(SECONDS)
    run("txn", "terminate", name, "--yes")
    assert "ended the transactions" in errors[0]
    with pytest.raises(ProducerFencedError):
        producer.commit_transaction()
    producer.close()
    [described] = json.loads(run("txn", "describe", name, "--json"))
    assert described["state"] in {"CompleteAbort", "Empty"}


def test_transactions_are_listed_described_and_aborted(
    run: Run, filled: str, name: str, bootstrap: str, errors: list[str]
) -> None:
    with Producer(bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        delivery = producer.send(filled, b"open", partition=0).result(SECONDS)
        listed = json.loads(run("txn", "list", "--state", "Ongoing", "--json"))
        assert name in {entry["transaction"] for entry in listed}
        [described] = json.loads(run("txn", "describe", name, "--json"))
        assert (described["state"], described["partitions"]) == ("Ongoing", [f"{filled}-0"])
        assert json.loads(run("txn", "find-hanging", "--topic", filled, "--older-than", "0s", "--json")) == []
        run(
            "txn",
            "abort",
            "--topic",
            filled,
            "--partition",
            "0",
            "--start-offset",
            str(delivery.offset + 1),
            code=1,
        )
        assert "no transaction that begins at" in errors[0]
        run(
            "txn", "abort", "--topic", filled, "--partition", "0", "--producer-id", str(described["producer"])
        )
        assert "aborted the transaction" in errors[0]
        with Admin(bootstrap) as admin:
            [state] = [
                producer_description
                for producer_description in admin.describe_producers([TopicPartition(filled, 0)])[
                    TopicPartition(filled, 0)
                ]
                if producer_description.producer_id == described["producer"]
            ]
        assert state.transaction_start_offset is None


def test_a_file_sent_in_a_transaction_is_seen_as_a_whole(
    run: Run, topic: MakeTopic, name: str, tmp_path: Path
) -> None:
    into = topic()
    lines = tmp_path / "lines"
    lines.write_text("1\n2\n3\n")
    run("produce", into, str(lines), "--transactional-id", name)
    lines.write_text('{"value": 4}\nnot json\n')
    run("produce", into, str(lines), "--json", "--transactional-id", name, code=1)
    eventually(
        lambda: run("consume", into, "--isolation", "read_committed", "--exit-at-end"),
        holds=lambda out: out == "1\n2\n3\n",
    )
