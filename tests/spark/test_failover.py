"""An exactly-once sink on three brokers: those that a batch needs are killed while Spark is in the middle of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from tests.faults.sink.outcome import compare, read_rows
from tests.kit.waiting import eventually
from tests.spark import pausing_sink
from tests.spark.pausing_sink import BEFORE_THE_DECISION, IN_A_TASK

from odradek import Admin, NewTopic, Producer
from odradek.spark.exactly_once.decision import driver_id
from odradek.testing import Cluster

PARTITIONS = 4
RECORDS = 240
PATIENCE_S = 90.0
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3000",
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=SETTINGS) as running:
        yield running


def wait_for(file: Path, query: Any) -> None:
    eventually(lambda: file.exists() or not query.isActive, file.name, seconds=PATIENCE_S)
    assert file.exists(), query.exception()


def test_a_batch_is_there_once_though_a_leader_dies_in_a_task_and_the_coordinator_before_the_decision(
    spark: Any, cluster: Cluster, tmp_path: Path, run_to_end: Callable[[Any], None]
) -> None:
    sink_id = "receipts"
    with Admin(cluster.address) as admin, Producer(cluster.address) as producer:
        admin.create_topics([NewTopic(name, PARTITIONS) for name in ("source", "target")])
        for number in range(RECORDS):
            producer.send("source", b"%d" % (number // 10), key=b"k%d" % (number % 10))
        producer.flush()
        pausing_sink.register(spark)
        query = (
            spark.readStream.format("odradek")
            .option("kafka.bootstrap.servers", cluster.address)
            .option("subscribe", "source")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(RECORDS // 4))
            .load()
            .select("key", "value")
            .writeStream.format(pausing_sink.FORMAT)
            .option("kafka.bootstrap.servers", cluster.address)
            .option("topic", "target")
            .option("delivery", "exactly_once")
            .option("sinkId", sink_id)
            .option("pauses", str(tmp_path))
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            wait_for(tmp_path / IN_A_TASK, query)
            leader = cluster.broker(admin.describe_topics(["target"])["target"].partitions[0].leader)
            leader.kill()
            (tmp_path / IN_A_TASK).unlink()
            wait_for(tmp_path / BEFORE_THE_DECISION, query)
            leader.start()
            leader.wait_until_ready()
            name = driver_id(sink_id)
            coordinator = cluster.broker(admin.describe_transactions([name])[name].coordinator)
            coordinator.kill()
            (tmp_path / BEFORE_THE_DECISION).unlink()
            run_to_end(query)
        finally:
            query.stop()
    source = read_rows(cluster.address, "source", PARTITIONS, PATIENCE_S)
    target = read_rows(cluster.address, "target", PARTITIONS, PATIENCE_S)
    assert len(source) == RECORDS
    outcome = compare(source, target)
    assert outcome.is_clean, outcome.text()
