"""Broker processes on a real ZooKeeper that lose their disk, or find a copy of it beside them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.cluster.test_lost_disks import (
    NO_LEADER,
    acknowledge_until_all_are_down,
    admin_of,
    elect_uncleanly,
    started_on,
)
from tests.interop.cluster.test_three_brokers import Acknowledged, create, read_all, topic_of
from tests.kit.waiting import eventually

from odradek.model.errors import OdradekError
from odradek.testing import Cluster
from odradek.testing.zookeeper import ZooKeeperServer

SESSION_MS = "3000"
LONGER_THAN_A_START_MS = "12000"


def cluster_on(connect: str, data: Path, session_ms: str) -> Cluster:
    settings = {
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": session_ms,
        "min.insync.replicas": "1",
    }
    return Cluster(brokers=3, settings=settings, data=data)


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path) -> Iterator[Cluster]:
    with cluster_on(zookeeper.address + chroot, tmp_path / "cluster", SESSION_MS) as running:
        yield running


def test_a_broker_that_fell_with_the_others_and_was_wiped_is_itself_again_and_gets_its_records_back(
    zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    with cluster_on(zookeeper.address + chroot, tmp_path / "cluster", LONGER_THAN_A_START_MS) as cluster:
        wiped, other, _ = cluster.brokers
        create(admin_of(other), "t", partitions=3)
        producer = Acknowledged(cluster.address)
        producer.send("t", 0, 50)
        producer.finish()
        for broker in cluster.brokers:
            broker.kill()
        shutil.rmtree(wiped.terms.directory)

        for (
            broker
        ) in cluster.brokers:  # its registration is there yet, with the id of a directory that is gone
            broker.start()
        for broker in cluster.brokers:
            broker.wait_until_ready()

        everyone = admin_of(other)
        eventually(
            lambda: all(len(partition.isrs) == 3 for partition in topic_of(everyone, "t").partitions.values())
        )
        assert (wiped.terms.directory / "t-0").exists()
        assert read_all(cluster.address, "t", 50) == Counter(producer.values)


@pytest.mark.parametrize("stop", ["TERM", "KILL"])
def test_the_last_replica_in_sync_that_lost_its_disk_does_not_lead(cluster: Cluster, stop: str) -> None:
    first, second, last = cluster.brokers
    by_all = acknowledge_until_all_are_down(cluster, stop)
    shutil.rmtree(last.terms.directory)

    for broker in (last, first, second):
        broker.start()
        broker.wait_until_ready()

    everyone = admin_of(last)
    eventually(lambda: len(everyone.list_topics(timeout=60).brokers) == 3)
    partition = topic_of(everyone, "t").partitions[0]
    assert (partition.leader, partition.isrs) == (NO_LEADER, [last.node_id])
    elect_uncleanly(last, "t-0")
    eventually(lambda: topic_of(everyone, "t").partitions[0].leader in (first.node_id, second.node_id))
    assert read_all(cluster.address, "t", 50) == Counter(by_all.values)


def test_a_copy_of_a_live_brokers_disk_and_a_second_broker_of_its_id_are_refused(
    cluster: Cluster, tmp_path: Path
) -> None:
    original = cluster.brokers[0]
    create(admin_of(original), "t", partitions=3, replicas=1)
    eventually(
        lambda: all(
            partition.leader > 0 for partition in topic_of(admin_of(original), "t").partitions.values()
        )
    )
    leader = cluster.broker(topic_of(admin_of(original), "t").partitions[0].leader)
    producer = Acknowledged(cluster.address)
    producer.send("t", 0, 50)
    producer.finish()
    shutil.copytree(leader.terms.directory, tmp_path / "copy", ignore=shutil.ignore_patterns("*.tmp"))
    producer.send("t", 50, 50)
    producer.finish()

    for directory in ("copy", "empty"):
        newcomer = started_on(tmp_path / directory, leader)
        with pytest.raises(OdradekError, match="DUPLICATE_BROKER_REGISTRATION"):
            newcomer.wait_until_ready()
        newcomer.stop()

    assert leader.is_alive
    producer.send("t", 100, 50)
    producer.finish()
    assert read_all(cluster.address, "t", 150) == Counter(producer.values)
