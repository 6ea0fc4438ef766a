"""Our own client and Kafka's Java consumer in one group; our groups and transactions as Kafka's tools see them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from benchmarks.peer import PeerAbsentError, cached_peer, java_program
from tests.interop import logins

from odradek import Consumer, Producer, TopicPartition

SECONDS = 60.0
TOOLS = "org.apache.kafka.tools"
ASSIGNORS = "org.apache.kafka.clients.consumer"
MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def command() -> list[str]:
    try:
        jars = cached_peer()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    return java_program(jars)


@contextmanager
def java_member(
    command: list[str], bootstrap: str, topic: str, group: str, settings: dict[str, str]
) -> Iterator[None]:
    """Kafka's console consumer in the group, until the end of the block; it then leaves as it should."""
    where = [*logins.java_flags(bootstrap), "--topic", topic, "--group", group]
    properties = [
        part for key, value in settings.items() for part in ("--command-property", f"{key}={value}")
    ]
    process = subprocess.Popen(
        [*command, f"{TOOLS}.consumer.ConsoleConsumer", *where, *properties],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(SECONDS)


def share(consumer: Consumer) -> int:
    return len(consumer.assignment())


def poll_until(consumer: Consumer, wanted: int) -> list[bytes]:
    """Poll until the consumer has so many partitions; what came meanwhile."""
    values: list[bytes] = []
    deadline = time.monotonic() + SECONDS
    while share(consumer) != wanted:
        assert time.monotonic() < deadline, f"it has {share(consumer)} partitions, not {wanted}"
        values += [record.value for record in consumer.poll(0.1)]
    return values


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            {"partition_assignment_strategy": "cooperative-sticky"},
            {"partition.assignment.strategy": f"{ASSIGNORS}.CooperativeStickyAssignor"},
        ),
        ({"group_protocol": "classic"}, {}),
        ({"group_protocol": "consumer"}, {"group.protocol": "consumer"}),
        ({}, {"group.protocol": "consumer"}),
        ({}, {}),
    ],
    ids=["cooperative-sticky", "range", "consumer", "default-and-consumer", "default-and-classic"],
)
def test_a_group_mixed_with_java(
    command: list[str], bootstrap: str, topic: MakeTopic, ours: Any, theirs: dict[str, str]
) -> None:
    name = topic(partitions=4)
    group = f"with-java-{name}"
    if "group.protocol" not in theirs:
        theirs = {**theirs, "heartbeat.interval.ms": "300"}
    if ours and ours.get("group_protocol") != "consumer":
        ours = {**ours, "heartbeat_interval_ms": 300}
    with Consumer(**logins.ours(bootstrap), group_id=group, **ours) as consumer:
        consumer.subscribe([name])
        poll_until(consumer, 4)
        with java_member(command, bootstrap, name, group, theirs):
            poll_until(consumer, 2)
        poll_until(consumer, 4)


def test_kafkas_tools_see_our_groups_offsets_and_transactions(
    command: list[str], bootstrap: str, topic: MakeTopic
) -> None:
    name = topic()
    only = TopicPartition(name, 0)

    def run(tool: str, *words: str) -> str:
        done = subprocess.run(
            [*command, f"{TOOLS}.{tool}", *logins.java_flags(bootstrap), *words],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with Producer(**logins.ours(bootstrap), transactional_id=f"t-{name}") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(name, b"committed")
        producer.begin_transaction()
        producer.send(name, b"aborted").result(SECONDS)
        assert f"t-{name}" in run("TransactionsCommand", "list")
        producer.abort_transaction()
    with Consumer(**logins.ours(bootstrap), group_id=f"g-{name}") as consumer:
        consumer.commit({only: 1})
    assert f"g-{name}" in run("consumer.group.ConsumerGroupCommand", "--describe", "--group", f"g-{name}")
    where = (
        "--topic",
        name,
        "--from-beginning",
        "--timeout-ms",
        "3000",
        "--isolation-level",
        "read_committed",
    )
    lines = run("consumer.ConsoleConsumer", *where).splitlines()
    assert [line for line in lines if line in ("committed", "aborted")] == ["committed"]
