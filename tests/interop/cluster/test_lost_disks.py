"""Brokers as processes that lose what they had on disk: nothing acknowledged is lost unless someone accepts that."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.interop.cluster.test_three_brokers import Acknowledged, create, read_all, topic_of
from tests.kit.commands import odradek_command
from tests.kit.waiting import eventually

from odradek import Consumer
from odradek.cli.serving.broker_processes import BrokerProcess
from odradek.model.errors import OdradekError
from odradek.testing import Cluster

confluent_kafka = pytest.importorskip("confluent_kafka")
admin_module = pytest.importorskip("confluent_kafka.admin")

NO_LEADER = -1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {"broker.session.timeout.ms": "6000", "min.insync.replicas": "1"}
    with Cluster(brokers=3, settings=settings, data=tmp_path) as running:
        yield running


def admin_of(broker: Any) -> Any:
    return admin_module.AdminClient({"bootstrap.servers": broker.address})


def elect_uncleanly(broker: Any, partition: str) -> None:
    command = odradek_command(
        "cluster", "elect", partition, "--unclean", "--yes", "--bootstrap", broker.address
    )
    subprocess.run(command, check=True, timeout=60, capture_output=True)


def started_on(copy: Path, original: BrokerProcess) -> BrokerProcess:
    """Another process, for the same broker."""
    log_file = copy.with_suffix(".log")
    broker = BrokerProcess(replace(original.terms, directory=copy, listen="127.0.0.1:0", log_file=log_file))
    broker.start()
    return broker


def wait_until_noted(broker: BrokerProcess, topic: str) -> None:
    """Waits until the disk of the broker says that it has a log of the topic, which it does within seconds."""
    held = broker.terms.directory / "held-replicas"
    eventually(lambda: held.exists() and f"{topic} 0 " in held.read_text())


def acknowledge_until_all_are_down(cluster: Cluster, stop: str) -> Acknowledged:
    """Two brokers die, and the last one ends by the signal `stop`. Returns what was acknowledged by all; the last one has
    acknowledged more."""
    first, second, last = cluster.brokers
    create(admin_of(last), "t", partitions=1)
    before = Acknowledged(cluster.address)
    before.send("t", 0, 50)
    before.finish()
    for broker in (first, second):
        broker.kill()
    eventually(lambda: topic_of(admin_of(last), "t").partitions[0].isrs == [last.node_id])
    after = Acknowledged(last.address)
    after.send("t", 50, 50)
    after.finish()
    wait_until_noted(last, "t")
    if stop == "TERM":
        assert last.stop() == 0
    else:
        last.kill()
    return before


def values_by_offset(address: str, topic: str, count: int) -> dict[int, bytes]:
    results: dict[int, bytes] = {}
    with Consumer(address) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_beginning()
        while len(results) < count:
            results.update((record.offset, record.value) for record in consumer.poll(timeout_s=10))
    return results


def test_a_copy_of_a_live_brokers_disk_does_not_evict_it(cluster: Cluster, tmp_path: Path) -> None:
    original = cluster.brokers[0]
    create(admin_of(original), "t", partitions=1, replicas=1)
    eventually(lambda: topic_of(admin_of(original), "t").partitions[0].leader > 0)
    leader = cluster.broker(topic_of(admin_of(original), "t").partitions[0].leader)
    producer = Acknowledged(cluster.address)
    producer.send("t", 0, 50)
    producer.finish()
    shutil.copytree(leader.terms.directory, tmp_path / "copy", ignore=shutil.ignore_patterns("*.tmp"))
    producer.send("t", 50, 50)
    producer.finish()

    copy = started_on(tmp_path / "copy", leader)
    with pytest.raises(OdradekError, match="DUPLICATE_BROKER_REGISTRATION"):
        copy.wait_until_ready()
    copy.stop()

    assert leader.is_alive
    producer.send("t", 100, 50)
    producer.finish()
    expected = [str(number).encode() for number in range(150)]
    assert [value for _, value in sorted(values_by_offset(leader.address, "t", 150).items())] == expected


def test_an_older_copy_that_takes_the_place_of_the_disk_is_recognised(
    cluster: Cluster, tmp_path: Path
) -> None:
    original, other, _ = cluster.brokers
    create(admin_of(other), "shared", partitions=1)
    create(admin_of(other), "alone", partitions=9, replicas=1)
    own = next(
        number
        for number, partition in topic_of(admin_of(other), "alone").partitions.items()
        if partition.leader == original.node_id
    )
    producer = Acknowledged(cluster.address)
    producer.send("shared", 0, 50)
    producer.finish()
    shutil.copytree(original.terms.directory, tmp_path / "copy", ignore=shutil.ignore_patterns("*.tmp"))
    producer.send("shared", 50, 50)
    producer.finish()
    assert original.stop() == 0

    restored = started_on(tmp_path / "copy", original)
    try:
        restored.wait_until_ready()
        everyone = admin_of(other)
        eventually(lambda: len(topic_of(everyone, "shared").partitions[0].isrs) == 3)
        assert topic_of(everyone, "alone").partitions[own].leader == NO_LEADER
        assert read_all(other.address, "shared", 100) == Counter(producer.values)
        log_file = restored.terms.log_file
        assert log_file is not None
        assert "log_directory_is_an_older_copy" in log_file.read_text()
        elect_uncleanly(other, f"alone-{own}")
        eventually(lambda: topic_of(everyone, "alone").partitions[own].leader == original.node_id)
    finally:
        restored.stop()


@pytest.mark.parametrize("what", ["t-0", "everything"])
@pytest.mark.parametrize("stop", ["TERM", "KILL"])
def test_the_last_replica_in_sync_that_lost_its_records_does_not_lead(
    cluster: Cluster, stop: str, what: str
) -> None:
    first, second, last = cluster.brokers
    by_all = acknowledge_until_all_are_down(cluster, stop)
    shutil.rmtree(last.terms.directory / "t-0" if what == "t-0" else last.terms.directory)

    last.start()
    last.wait_until_ready()
    for broker in (first, second):
        broker.start()
        broker.wait_until_ready()

    everyone = admin_of(last)
    eventually(lambda: len(everyone.list_topics(timeout=60).brokers) == 3)
    partition = topic_of(everyone, "t").partitions[0]
    assert (partition.leader, partition.isrs) == (NO_LEADER, [last.node_id])
    log = last.terms.log_file
    assert log is not None
    assert "odradek cluster elect t-0 --unclean" in log.read_text()

    elect_uncleanly(last, "t-0")  # the disk is gone for good: what the others have is kept

    eventually(lambda: topic_of(everyone, "t").partitions[0].leader in (first.node_id, second.node_id))
    assert read_all(cluster.address, "t", 50) == Counter(by_all.values)
    eventually(lambda: len(topic_of(everyone, "t").partitions[0].isrs) == 3)


@pytest.mark.parametrize("stop", ["TERM", "KILL"])
def test_a_broker_alone_does_not_lead_an_empty_log_in_place_of_one_that_it_had(
    tmp_path: Path, stop: str
) -> None:
    with Cluster(brokers=1, data=tmp_path) as cluster:
        [broker] = cluster.brokers
        for topic in ("lost", "kept"):
            create(admin_of(broker), topic, partitions=1, replicas=1)
            producer = Acknowledged(cluster.address)
            producer.send(topic, 0, 50)
            producer.finish()
        wait_until_noted(broker, "kept")
        if stop == "TERM":
            assert broker.stop() == 0
        else:
            broker.kill()
        shutil.rmtree(broker.terms.directory / "lost-0")

        for _ in range(2):
            broker.start()
            broker.wait_until_ready()
            everything = admin_of(broker)
            assert topic_of(everything, "kept").partitions[0].leader == broker.node_id
            assert topic_of(everything, "lost").partitions[0].leader == NO_LEADER
            broker.kill()

        broker.start()
        broker.wait_until_ready()
        elect_uncleanly(broker, "lost-0")
        eventually(lambda: topic_of(admin_of(broker), "lost").partitions[0].leader == broker.node_id)
        producer = Acknowledged(cluster.address)
        producer.send("lost", 0, 10)
        producer.finish()
        assert read_all(cluster.address, "kept", 50)[b"49"] == 1
