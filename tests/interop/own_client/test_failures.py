"""Our own client's groups and transactions across a broker that is killed and comes back, and members that vanish."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.odradek_node import Node, serve_environment
from benchmarks.peer import PeerAbsentError
from tests.interop import logins
from tests.kit.waiting import eventually

from odradek import Admin, Consumer, KafkaError, NewTopic, Producer, TopicPartition

SECONDS = 60.0


@pytest.fixture
def node(make_node: Callable[..., Node], tmp_path: Path) -> Iterator[Node]:
    """A broker of this test's own, to be killed."""
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"}
    try:
        made = make_node(settings=settings, directory=tmp_path / "node").start()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    with Admin(**logins.ours(made.bootstrap)) as admin:
        admin.create_topics([NewTopic("in", 2, 1), NewTopic("out", 2, 1)])
    try:
        yield made
    finally:
        made.stop()


def crash_and_restart(node: Node) -> None:
    """Kills the broker, and starts it on the same port and with the same settings."""
    node.kill()
    node.launch()
    node.wait_until_ready()


def committed_values(bootstrap: str, topic: str) -> list[bytes]:
    values: list[bytes] = []
    with Consumer(
        **logins.ours(bootstrap), auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        wanted = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        consumer.assign(wanted)
        ends = consumer.end_offsets(wanted)

        def read() -> bool:
            values.extend(record.value for record in consumer.poll(0.2))
            return all(consumer.positions().get(tp, -1) >= end for tp, end in ends.items())

        eventually(read)
    return values


@pytest.mark.parametrize("options", [{"group_protocol": "classic"}, {}], ids=["classic", "default"])
def test_a_group_outlives_its_coordinator(node: Node, options: Any) -> None:
    values: list[bytes] = []
    settings: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with (
        Producer(**logins.ours(node.bootstrap)) as producer,
        Consumer(**logins.ours(node.bootstrap), **settings, **options) as consumer,
    ):
        consumer.subscribe(["in"])

        def read_to(count: int) -> Callable[[], bool]:
            def read() -> bool:
                values.extend(record.value for record in consumer.poll(0.2))
                return len(set(values)) >= count

            return read

        for number in range(100):
            producer.send("in", b"%d" % number)
        eventually(read_to(100))
        consumer.commit()
        crash_and_restart(node)
        for number in range(100, 200):
            producer.send("in", b"%d" % number)
        eventually(read_to(200))
        consumer.commit(timeout_s=SECONDS)
        committed = consumer.committed([TopicPartition("in", 0), TopicPartition("in", 1)], SECONDS)
    assert len(values) == 200
    assert sum(metadata.offset for metadata in committed.values() if metadata is not None) == 200


def test_transactions_outlive_their_coordinator_and_stay_whole(node: Node) -> None:
    expected: list[bytes] = []
    with Producer(**logins.ours(node.bootstrap), transactional_id="t") as producer:
        producer.init_transactions()
        for round_number in range(12):
            mine = [b"%d.%d" % (round_number, number) for number in range(10)]
            producer.begin_transaction()
            for value in mine:
                producer.send("out", value)
            try:
                if round_number in (3, 8):
                    producer.flush()
                    crash_and_restart(node)
                producer.commit_transaction(SECONDS)
                expected += mine
            except KafkaError:
                producer.abort_transaction(SECONDS)
    eventually(lambda: len(committed_values(node.bootstrap, "out")) >= len(expected))
    assert sorted(committed_values(node.bootstrap, "out")) == sorted(expected)
    assert len(expected) >= 100


def test_a_broker_killed_at_any_moment_leaves_consume_process_produce_exact(node: Node) -> None:
    with Producer(**logins.ours(node.bootstrap)) as producer:
        for number in range(1_000):
            producer.send("in", b"%d" % number, partition=number % 2)
    handled = 0
    killer = threading.Thread(target=lambda: [time.sleep(0.3), crash_and_restart(node)])
    settings: dict[str, Any] = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
    }
    with (
        Producer(**logins.ours(node.bootstrap), transactional_id="t", linger_ms=0) as producer,
        Consumer(**logins.ours(node.bootstrap), **settings) as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe(["in"])
        deadline = time.monotonic() + SECONDS
        killer.start()
        while handled < 1_000 and time.monotonic() < deadline:
            records = consumer.poll(0.5, max_records=20)
            if not records:
                continue
            try:
                with producer.transaction(SECONDS):
                    for record in records:
                        producer.send("out", record.value, partition=record.partition)
                    producer.send_offsets_to_transaction(
                        consumer.positions(), consumer.group_metadata(), SECONDS
                    )
                handled += len(records)
            except KafkaError:
                consumer.seek_to_committed()
        killer.join()
    eventually(lambda: len(committed_values(node.bootstrap, "out")) >= 1_000)
    assert sorted(map(int, committed_values(node.bootstrap, "out"))) == list(range(1_000))


_VICTIM = """
import json, sys
from odradek import Consumer
consumer = Consumer(**json.loads(sys.argv[1]), group_id="g", auto_offset_reset="earliest", session_timeout_ms=1000)
consumer.subscribe(["in"])
while True:
    if consumer.poll(0.1) or consumer.assignment():
        print("reading", flush=True)
"""


def test_a_member_that_is_killed_hands_its_partitions_on(node: Node) -> None:
    victim = subprocess.Popen(
        [sys.executable, "-c", _VICTIM, json.dumps(logins.ours(node.bootstrap))],
        stdout=subprocess.PIPE,
        env=serve_environment(),
    )
    assert victim.stdout is not None
    try:
        assert victim.stdout.readline() == b"reading\n"
        with Consumer(**logins.ours(node.bootstrap), group_id="g", heartbeat_interval_ms=200) as consumer:
            consumer.subscribe(["in"])
            eventually(lambda: consumer.poll(0.1) or len(consumer.assignment()) == 1)
            victim.kill()
            eventually(lambda: consumer.poll(0.1) or len(consumer.assignment()) == 2)
    finally:
        victim.kill()
        victim.wait()
        victim.stdout.close()
