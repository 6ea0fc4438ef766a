"""Kafka's own tools over groups, transactions and what real clients leave in the internal logs.

The jars are those of the benchmark's peer; where no one has fetched them these tests are skipped.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peer import PeerAbsentError
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.interop.kafka_tools.tools import Tools
from tests.interop.server import Server

SECONDS_MAX = 60
TOOLS = "org.apache.kafka.tools"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = f"{TOOLS}.TransactionsCommand"
WRONG = re.compile(
    r"mismatch|corrupt|exception|out of order|[0-9] is followed by|isvalid: false", re.IGNORECASE
)
NOTHING_BEFORE = re.compile(r"^  -1 is followed by [0-9]+$", re.MULTILINE)
"""The tool says so of the first offset of any segment, Kafka's own too."""

Java = Callable[..., str]


@pytest.fixture(scope="module")
def server(server_kind: str, make_node: Any) -> Iterator[Server]:
    """A broker with few internal partitions, and groups that form at once."""
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
    }
    try:
        node = make_node(settings=settings).start()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    try:
        yield Server(kind=server_kind, node=node)  # type: ignore[arg-type]
    finally:
        node.stop()


@pytest.fixture
def java(bootstrap: str, tools: Tools) -> Java:
    """Runs one of Kafka's tools; returns what it printed. `server_flag=None` for those that want no broker's address."""

    def run(main_class: str, *arguments: str, server_flag: str | None = "--bootstrap-server") -> str:
        address = [server_flag, bootstrap] if server_flag else []
        outcome = tools.run(main_class, *address, *arguments)
        assert outcome.status == 0, outcome.terminal
        assert "rror" not in outcome.errors, outcome.errors
        return outcome.printed

    return run


def _write(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(SECONDS_MAX) == 0


def _read_in_group(bootstrap: str, topic: str, group: str, count: int) -> None:
    """A member reads `count` records, commits and leaves."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + SECONDS_MAX
    while count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            count -= 1
    assert count == 0
    consumer.commit(asynchronous=False)
    consumer.close()


def _transact(bootstrap: str, name: str, topic: str, *, commit: bool | None) -> Producer:
    """One transaction; None leaves it open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"transacted", partition=0)
    producer.flush(SECONDS_MAX)
    if commit is not None:
        (producer.commit_transaction if commit else producer.abort_transaction)(SECONDS_MAX)
    return producer


def _rows(said: str) -> list[dict[str, str]]:
    """A table that a tool printed, by its headings."""
    lines = [line.split() for line in said.splitlines() if line.strip()]
    start = next(number for number, line in enumerate(lines) if line[0] in {"GROUP", "TransactionalId"})
    return [dict(zip(lines[start], line, strict=False)) for line in lines[start + 1 :]]


def test_kafka_consumer_groups_shows_resets_and_deletes_a_group(
    java: Java, bootstrap: str, topic: Any
) -> None:
    name, group = topic(2), f"shown-{time.time_ns()}"
    _write(bootstrap, name, 10)
    _read_in_group(bootstrap, name, group, 10)
    _write(bootstrap, name, 2)
    assert group in java(GROUPS, "--list").split()
    rows = _rows(java(GROUPS, "--describe", "--group", group))
    shown = [(row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in rows]
    assert sorted(shown) == [("0", "5", "6", "1"), ("1", "5", "6", "1")]

    reset = ("--reset-offsets", "--group", group, "--topic", name, "--to-offset", "3")
    assert {row["NEW-OFFSET"] for row in _rows(java(GROUPS, *reset, "--dry-run"))} == {"3"}
    assert _committed(bootstrap, group, name) == [5, 5]
    assert {row["NEW-OFFSET"] for row in _rows(java(GROUPS, *reset, "--execute"))} == {"3"}
    assert _committed(bootstrap, group, name) == [3, 3]

    assert "was successful" in java(GROUPS, "--delete", "--group", group)
    assert _committed(bootstrap, group, name) == [-1001, -1001]


def _committed(bootstrap: str, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        return [partition.offset for partition in consumer.committed(places, SECONDS_MAX)]
    finally:
        consumer.close()


def test_kafka_transactions_lists_describes_and_looks_for_hanging_ones(
    java: Java, bootstrap: str, server: Server, topic: Any
) -> None:
    name, mark = topic(2), f"tx-{time.time_ns()}"
    _transact(bootstrap, f"{mark}-done", name, commit=True)
    held = _transact(bootstrap, f"{mark}-open", name, commit=None)
    states = {row["TransactionalId"]: row["TransactionState"] for row in _rows(java(TRANSACTIONS, "list"))}
    assert states[f"{mark}-open"] == "Ongoing"
    assert states[f"{mark}-done"] == "CompleteCommit"
    said = java(TRANSACTIONS, "describe", "--transactional-id", f"{mark}-open")
    assert f"{name}-0" in said
    assert "Ongoing" in said
    hanging = java(TRANSACTIONS, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "1")
    assert f"{mark}-open" not in hanging
    held.abort_transaction(SECONDS_MAX)


def test_the_performance_and_verification_tools_agree_on_what_they_moved(
    java: Java, bootstrap: str, topic: Any
) -> None:
    name = topic(2)
    sent = java(f"{TOOLS}.VerifiableProducer", "--topic", name, "--max-messages", "500", "--acks", "-1")
    summary = json.loads(sent.splitlines()[-1])
    assert summary["name"] == "tool_data"
    assert (summary["sent"], summary["acked"]) == (500, 500)
    group = f"verified-{time.time_ns()}"
    flags = ("--topic", name, "--group-id", group, "--max-messages", "500", "--reset-policy", "earliest")
    events = [json.loads(line) for line in java(f"{TOOLS}.VerifiableConsumer", *flags).splitlines()]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 500
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert commits
    assert all(commit["success"] for commit in commits)

    assert "500 records sent" in java(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", name, "--num-records", "500", "--record-size", "100", "--throughput", "-1"),
    )
    assert _read_by_performance_tool(java, name, 1000) == 1000
    ends = java(f"{TOOLS}.GetOffsetShell", "--topic", name, "--time", "latest").split()
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends) == 1000


def _read_by_performance_tool(java: Java, topic: str, count: int) -> int:
    said = java(f"{TOOLS}.ConsumerPerformance", "--topic", topic, "--num-records", str(count))
    heading, figures = [line for line in said.splitlines() if "," in line][:2]
    return int(dict(zip(heading.split(", "), figures.split(", "), strict=False))["data.consumed.in.nMsg"])


def test_records_are_there_and_back_in_a_moment(java: Java, topic: Any) -> None:
    said = java(
        f"{TOOLS}.EndToEndLatency",
        *("--topic", topic(), "--num-records", "100", "--producer-acks", "all", "--record-size", "100"),
    )
    assert "Avg latency" in said
    assert "Percentiles" in said


def test_what_was_deleted_is_no_longer_at_the_beginning(
    java: Java, bootstrap: str, topic: Any, tmp_path: Path
) -> None:
    name = topic(2)
    _write(bootstrap, name, 10)
    places = [{"topic": name, "partition": number, "offset": 4 - number} for number in range(2)]
    wanted = tmp_path / "delete.json"
    wanted.write_text(json.dumps({"partitions": places, "version": 1}))
    said = java(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert said.count("low_watermark: ") == 2
    begin = java(f"{TOOLS}.GetOffsetShell", "--topic", name, "--time", "earliest").split()
    assert begin == [f"{name}:0:4", f"{name}:1:3"]


@pytest.mark.parametrize(
    ("internal", "decoder"),
    [("__consumer_offsets", "--offsets-decoder"), ("__transaction_state", "--transaction-log-decoder")],
)
def test_the_internal_logs_that_real_clients_wrote_are_sound(
    java: Java, bootstrap: str, server: Server, topic: Any, internal: str, decoder: str
) -> None:
    name, mark = topic(2), f"logged-{time.time_ns()}"
    _write(bootstrap, name, 4)
    _read_in_group(bootstrap, name, mark, 4)
    for commit in (True, False):
        _transact(bootstrap, mark, name, commit=commit)
    files = sorted(str(path) for path in server.node.data_directory.glob(f"{internal}-*/*.log"))
    assert len(files) == 2
    said = java(f"{TOOLS}.DumpLogSegments", decoder, "--files", ",".join(files), server_flag=None)
    assert not WRONG.search(NOTHING_BEFORE.sub("", said)), said
    assert f'"{mark}"' in said or f"transactional_id={mark}" in said or f"transactionalId={mark}" in said
