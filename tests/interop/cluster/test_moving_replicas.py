"""`odradek cluster`: a plan is shown before anything moves, and what it says happens, with every record."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator

import pytest
from tests.kit.commands import odradek_command

from odradek.client import Admin, Consumer, NewTopic, Producer
from odradek.model.ids import TopicPartition
from odradek.testing import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as running:
        with Admin(running.address) as admin:
            admin.create_topics([NewTopic("moved", 4, 2)])
        with Producer(running.address, acks="all") as producer:
            for number in range(2000):
                producer.send("moved", f"{number:04}", partition=number % 4)
        yield running


def odradek(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        odradek_command("cluster", arguments[0], "-b", cluster.address, *arguments[1:]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def replicas_of(cluster: Cluster, broker: int) -> int:
    status = json.loads(odradek(cluster, "status", "--json").stdout)
    return next(entry["replicas"] for entry in status["brokers"] if entry["broker"] == broker)


def test_a_plan_moves_nothing(cluster: Cluster) -> None:
    held = replicas_of(cluster, 3)

    plan = json.loads(odradek(cluster, "plan", "--drain", "3", "--json").stdout)

    assert plan["replicas_after"]["3"] == 0
    assert plan["copied_bytes"] > 0
    assert replicas_of(cluster, 3) == held > 0


def test_a_drained_broker_holds_nothing_and_a_rebalance_gives_it_its_share_again(cluster: Cluster) -> None:
    drained = odradek(cluster, "drain", "3", "--yes")
    assert drained.returncode == 0, drained.stderr
    assert replicas_of(cluster, 3) == 0

    evened = odradek(cluster, "rebalance", "--yes", "--throttle", "50000000")
    assert evened.returncode == 0, evened.stderr
    assert [replicas_of(cluster, broker) for broker in (1, 2, 3)].count(0) == 0

    with Consumer(cluster.address, enable_auto_commit=False) as consumer:
        partitions = [TopicPartition("moved", number) for number in range(4)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(partitions)
        values = []
        for _ in range(200):
            values += [record.value for record in consumer.poll(0.5)]
            if len(values) >= 2000:
                break
    assert sorted(values) == [f"{number:04}".encode() for number in range(2000)]


def test_a_broker_that_no_one_knows_cannot_be_drained(cluster: Cluster) -> None:
    refused = odradek(cluster, "drain", "9", "--yes")

    assert refused.returncode == 1
    assert refused.stderr.strip() == "odradek: BROKER_NOT_AVAILABLE: there is no broker 9; there are 1, 2, 3"


def test_a_plan_says_which_moves_wait_for_a_broker_that_is_down() -> None:
    with Cluster(brokers=2) as running:
        with Admin(running.address) as admin:
            admin.create_topics([NewTopic("alone", assignments=[[1], [2]])])
        running.broker(2).kill()
        while "without a leader" not in odradek(running, "status").stdout:
            time.sleep(0.2)
        shown = odradek(running, "plan", "--drain", "2").stdout
        assert "1 of them have no leader (alone-1): nothing can be copied" in shown
        assert "have no leader" not in odradek(running, "plan", "--drain", "1").stdout


def test_replicas_that_have_nowhere_to_go_are_named(cluster: Cluster) -> None:
    refused = odradek(cluster, "drain", "1", "2", "--yes")

    assert refused.returncode == 1
    assert "there is no other broker left to take the one of broker" in refused.stderr
