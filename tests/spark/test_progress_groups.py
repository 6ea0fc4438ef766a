"""A query's position as a consumer group's offsets: published, started from, resumed from."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from tests.kit.waiting import eventually
from tests.spark.committed import committed_values, numbers

from odradek import Admin, TopicPartition
from odradek.spark import publish_offsets

WAIT_S = 60
MakeTopic = Callable[..., Any]
Finish = Callable[[Any], None]


def offsets_of(group: str, topic: Any, partitions: int = 1) -> list[int | None]:
    wanted = [TopicPartition(topic.name, number) for number in range(partitions)]
    with Admin(topic.servers) as admin:
        committed = admin.list_group_offsets(group, wanted)
    return [getattr(committed[partition], "offset", None) for partition in wanted]


def to_noop(frame: DataFrame) -> Any:
    return frame.writeStream.format("noop")


def to_memory(frame: DataFrame) -> Any:
    return frame.writeStream.format("memory").queryName("published")


def to_foreach_batch(frame: DataFrame) -> Any:
    return frame.writeStream.foreachBatch(lambda batch, _: batch.count() and None)


@pytest.mark.parametrize(
    ("sink", "later"),
    [(to_noop, [3]), (to_foreach_batch, [3]), (to_memory, [])],  # the memory sink takes no old checkpoint
)
def test_whatever_the_sink_the_group_stands_where_the_query_has_read_to(
    new_topic: MakeTopic,
    read_stream: Any,
    tmp_path: Path,
    run_to_end: Finish,
    sink: Callable[..., Any],
    later: list[int],
) -> None:
    source = new_topic(2)
    group = f"lag-of-{source.name}"
    source.send_numbers(0, 5)
    source.send_numbers(5, 12, partition=1)
    for more in (0, *later):
        source.send_numbers(0, more)
        stream = read_stream(source, maxOffsetsPerTrigger="6", publishOffsets=group)
        query = sink(stream).option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        run_to_end(query.start())
        assert offsets_of(group, source, 2) == [5 + more, 7]


def test_a_listener_publishes_at_the_end_of_a_batch_and_every_tool_sees_the_lag(
    spark: Any, topic: Any, read_stream: Any, tmp_path: Path
) -> None:
    topic.send_numbers(0, 5)
    group = f"lag-of-{topic.name}"
    listener = publish_offsets(spark)
    query = (
        to_noop(read_stream(topic, publishOffsets=group))
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="1 hour")
        .start()
    )
    try:
        eventually(lambda: offsets_of(group, topic), holds=lambda offsets: offsets == [5], every_s=0.2)
    finally:
        query.stop()
        spark.streams.removeListener(listener)
    topic.send_numbers(5, 8)
    command = [str(Path(sys.executable).with_name("odradek")), "group", "describe", group, "--json"]
    described = subprocess.run(
        [*command, "-b", topic.servers], capture_output=True, text=True, check=True, timeout=60
    )
    assert '"lag": 3' in described.stdout
    confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is absent")
    admin = pytest.importorskip("confluent_kafka.admin").AdminClient({"bootstrap.servers": topic.servers})
    asked = [confluent.ConsumerGroupTopicPartitions(group)]
    seen = admin.list_consumer_group_offsets(asked)[group].result(30).topic_partitions
    assert [(text.topic, text.partition, text.offset) for text in seen] == [(topic.name, 0, 5)]


def test_a_batch_that_fails_is_not_published(
    topic: Any, read_stream: Any, tmp_path: Path, run_to_end: Finish
) -> None:
    topic.send_numbers(0, 9)

    def fail_second(_: DataFrame, number: int) -> None:
        if number:
            raise RuntimeError("the sink failed on purpose")

    query = (
        read_stream(topic, maxOffsetsPerTrigger="3", publishOffsets=f"lag-of-{topic.name}")
        .writeStream.foreachBatch(fail_second)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match="failed on purpose"):
        run_to_end(query)
    assert offsets_of(f"lag-of-{topic.name}", topic) == [3]


def test_a_stream_and_a_batch_start_where_a_group_stands(
    new_topic: MakeTopic, read: Any, read_stream: Any, collect_stream: Any
) -> None:
    source = new_topic(2)
    source.send_numbers(0, 9)
    source.send_numbers(10, 12, partition=1)
    with Admin(source.servers) as admin:
        admin.alter_group_offsets("readers-" + source.name, {TopicPartition(source.name, 0): 7})
    options = {"startingOffsets": "group:readers-" + source.name}
    rows = read(source, **options).select("value").collect()
    assert sorted(int(row.value) for row in rows) == [7, 8, 10, 11]
    assert sorted(map(int, collect_stream(read_stream(source, **options)))) == [7, 8, 10, 11]


class ResumingQuery:
    """Copies a topic exactly once, with `resume=true` on both sides."""

    def __init__(self, source: Any, target: Any, read_stream: Any, finish: Finish) -> None:
        self.source, self._target = source, target
        self._read_stream, self._finish = read_stream, finish

    def run(
        self, checkpoint: Path, *, resume_read: str = "true", resume_write: str = "true", **more: str
    ) -> None:
        sink_id = self._target.name
        read = {"resume": resume_read} | ({"sinkId": sink_id} if resume_read == "true" else {})
        query = (
            self._read_stream(self.source, maxOffsetsPerTrigger="4", **read)
            .select("value")
            .writeStream.format("odradek")
            .option("kafka.bootstrap.servers", self._target.servers)
            .option("topic", self._target.name)
            .option("delivery", "exactly_once")
            .option("sinkId", sink_id)
            .option("resume", resume_write)
            .option("checkpointLocation", str(checkpoint))
            .options(**more)
            .trigger(availableNow=True)
            .start()
        )
        self._finish(query)


@pytest.fixture
def resuming(new_topic: MakeTopic, topic: Any, read_stream: Any, run_to_end: Finish) -> ResumingQuery:
    return ResumingQuery(new_topic(), topic, read_stream, run_to_end)


def test_a_lost_checkpoint_costs_no_record_and_doubles_none(
    resuming: ResumingQuery, topic: Any, tmp_path: Path
) -> None:
    source = resuming.source
    for round_number in range(3):
        source.send_numbers(10 * round_number, 10 * round_number + 10)
        resuming.run(tmp_path / "c")
        if round_number != 1:
            shutil.rmtree(tmp_path / "c")
    resuming.run(tmp_path / "d")
    assert committed_values(topic) == numbers(0, 30)


def test_a_query_that_does_not_begin_where_the_decision_ends_is_refused(
    resuming: ResumingQuery, topic: Any, tmp_path: Path
) -> None:
    resuming.source.send_numbers(0, 10)
    resuming.run(tmp_path / "c")
    resuming.source.send_numbers(10, 20)
    with pytest.raises(StreamingQueryException, match=r"begins at offset 0 of .* ends at 10"):
        resuming.run(tmp_path / "other", resume_read="false")
    with pytest.raises(StreamingQueryException, match="belongs to query"):
        resuming.run(tmp_path / "third", resume_write="false")
    assert committed_values(topic) == numbers(0, 10)
    resuming.run(tmp_path / "fourth")
    assert committed_values(topic) == numbers(0, 20)
