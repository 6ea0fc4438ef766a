"""Brokers as processes that lose what they had on disk: nothing acknowledged is lost unless somebody accepts that."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.cluster.test_three_brokers import Acknowledged, create, read_all, topic_of, until

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
    command = [sys.executable, "-m", "odradek.cli.main", "cluster", "elect", partition, "--unclean", "--yes"]
    subprocess.run([*command, "--bootstrap", broker.address], check=True, timeout=60, capture_output=True)


@pytest.mark.parametrize("what", ["t-0", "everything"])
@pytest.mark.parametrize("stop", ["TERM", "KILL"])
def test_the_last_replica_in_sync_that_lost_its_records_does_not_lead(
    cluster: Cluster, stop: str, what: str
) -> None:
    first, second, last = cluster.brokers
    create(admin_of(last), "t", partitions=1)
    before = Acknowledged(cluster.address)
    before.send("t", 0, 50)
    before.finish()
    for broker in (first, second):
        broker.kill()
    until(lambda: topic_of(admin_of(last), "t").partitions[0].isrs == [last.node_id])
    after = Acknowledged(last.address)
    after.send("t", 50, 50)
    after.finish()
    if stop == "TERM":
        assert last.stop() == 0
    else:
        last.kill()
    shutil.rmtree(last.terms.directory / "t-0" if what == "t-0" else last.terms.directory)

    last.start()
    last.wait_until_ready()
    for broker in (first, second):
        broker.start()
        broker.wait_until_ready()

    everybody = admin_of(last)
    until(lambda: len(everybody.list_topics(timeout=10).brokers) == 3)
    partition = topic_of(everybody, "t").partitions[0]
    assert (partition.leader, partition.isrs) == (NO_LEADER, [last.node_id])
    log = last.terms.log_file
    assert log is not None
    assert "odradek cluster elect t-0 --unclean" in log.read_text()

    elect_uncleanly(last, "t-0")  # the disk is gone for good: what the others have is kept

    until(lambda: topic_of(everybody, "t").partitions[0].leader in (first.node_id, second.node_id))
    assert read_all(cluster.address, "t", 50) == Counter(before.values)
    until(lambda: len(topic_of(everybody, "t").partitions[0].isrs) == 3)
