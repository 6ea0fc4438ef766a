"""Streaming reads: limits, restarts, growing topics, lost records."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from odradek.client import Admin, NewTopic

Stream = Callable[..., DataFrame]
Collect = Callable[..., list[str]]
MakeTopic = Callable[..., Any]


def texts(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]


def test_a_stream_goes_on_where_its_checkpoint_left_off(
    topic: Any, read_stream: Stream, collect_stream: Collect
) -> None:
    topic.send_numbers(0, 5)
    assert collect_stream(read_stream(topic)) == texts(0, 5)
    topic.send_numbers(5, 9)
    assert collect_stream(read_stream(topic)) == texts(5, 9)
    assert collect_stream(read_stream(topic)) == []


def test_a_trigger_takes_no_more_than_its_limit(
    topic: Any, read_stream: Stream, tmp_path: Path, run_to_end: Any
) -> None:
    topic.send_numbers(0, 25)
    query = (
        read_stream(topic, maxOffsetsPerTrigger="10")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    run_to_end(query)
    assert [batch["numInputRows"] for batch in query.recentProgress] == [10, 10, 5]
    source = query.recentProgress[-1]["sources"][0]
    for which in ("endOffset", "latestOffset"):
        offsets = json.loads(source[which])
        assert list(offsets.pop("@ids")) == [topic.name]
        assert offsets == {topic.name: {"0": 25}}


def test_a_first_batch_that_failed_is_replayed_from_where_it_began(
    topic: Any, read_stream: Stream, collect_stream: Collect, tmp_path: Path
) -> None:
    """A stream from `latest`: on the replay Spark asks for the initial offset again, and by then it has moved."""
    topic.send_numbers(0, 3)
    frame = read_stream(topic, startingOffsets="latest")
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.processAllAvailable()
        topic.send_numbers(3, 6)
        query.processAllAvailable()
    finally:
        query.stop()
    newest = max(
        int(named.name) for named in (tmp_path / "c" / "offsets").iterdir() if named.name.isdecimal()
    )
    for named in (tmp_path / "c" / "commits").iterdir():  # nothing was committed, as if the driver had died
        named.unlink()
    for number in range(1, newest + 1):
        (tmp_path / "c" / "offsets" / str(number)).unlink()
        (tmp_path / "c" / "offsets" / f".{number}.crc").unlink(missing_ok=True)
    topic.send_numbers(6, 9)
    assert collect_stream(read_stream(topic, startingOffsets="latest"), checkpoint="c") == texts(3, 9)


def test_a_failed_batch_is_replayed_to_the_record(
    topic: Any, read_stream: Stream, collect_stream: Collect
) -> None:
    topic.send_numbers(0, 4)
    assert collect_stream(read_stream(topic)) == texts(0, 4)
    topic.send_numbers(4, 6)
    with pytest.raises(PySparkException, match="failed on purpose"):
        collect_stream(read_stream(topic), fail=True)
    topic.send_numbers(6, 8)
    assert collect_stream(read_stream(topic)) == texts(4, 8)


def test_a_partition_added_while_the_stream_runs_is_read_from_its_first_record(
    topic: Any, read_stream: Stream, tmp_path: Path
) -> None:
    topic.send_numbers(0, 3)
    arrived: list[str] = []

    def take(batch: DataFrame, _: int) -> None:
        arrived.extend(bytes(row.value).decode() for row in batch.select("value").collect())

    query = (
        read_stream(topic, partitionDiscoveryIntervalMs="0")
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        topic.grow(2)
        topic.send_numbers(10, 13, partition=1)
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(arrived, key=int) == [*texts(0, 3), *texts(10, 13)]


def test_lost_records_stop_the_stream_unless_asked_otherwise(
    topic: Any, read_stream: Stream, collect_stream: Collect
) -> None:
    topic.send_numbers(0, 3)
    assert collect_stream(read_stream(topic)) == texts(0, 3)
    topic.send_numbers(3, 9)
    topic.cut(6)
    with pytest.raises(PySparkException, match=r"failOnDataLoss=false"):
        collect_stream(read_stream(topic))
    assert collect_stream(read_stream(topic, failOnDataLoss="false")) == texts(6, 9)


def test_every_record_of_the_topic_that_is_made_again_is_read(
    new_topic: MakeTopic, read_stream: Stream, collect_stream: Collect, tmp_path: Path
) -> None:
    """Its offsets are below those that the query has read of the topic before. A restart lies between, and other batches."""
    steady, topic = new_topic(), new_topic()
    arrived: list[str] = []

    def take(batch: Any, _: int) -> None:
        arrived.extend(bytes(row.value).decode() for row in batch.select("value").collect())

    def started() -> Any:
        given = {"subscribe": f"{steady.name},{topic.name}", "partitionDiscoveryIntervalMs": "0"}
        stream = read_stream(None, failOnDataLoss="false", **given)
        writer = stream.writeStream.foreachBatch(take)
        return writer.option("checkpointLocation", str(tmp_path / "goes-on")).start()

    def read_now(query: Any, *expected: str) -> None:
        query.processAllAvailable()
        assert sorted(arrived) == sorted(expected)
        arrived.clear()

    topic.send(*(b"old %d" % number for number in range(6)))
    assert len(collect_stream(read_stream(topic), checkpoint="fails")) == 6
    query = started()
    try:
        read_now(query, *(f"old {number}" for number in range(6)))
        with Admin(topic.servers) as admin:
            admin.delete_topics([topic.name])
        steady.send(b"steady 0")
        read_now(query, "steady 0")
    finally:
        query.stop()
    query = started()
    try:
        steady.send(b"steady 1")
        read_now(query, "steady 1")
        with Admin(topic.servers) as admin:
            admin.create_topics([NewTopic(topic.name, 1)])
        topic.send(b"new 0", b"new 1")
        steady.send(b"steady 2")
        read_now(query, "new 0", "new 1", "steady 2")
    finally:
        query.stop()
    topic.send(*(b"new %d" % number for number in range(2, 9)))  # past the old topic's end
    query = started()
    try:
        read_now(query, *(f"new {number}" for number in range(2, 9)))
    finally:
        query.stop()

    with pytest.raises(PySparkException) as raised:
        collect_stream(read_stream(topic), checkpoint="fails")
    (line,) = re.findall(r"^.*was deleted and made again.*$", str(raised.value), re.MULTILINE)
    assert f"topic {topic.name!r}" in line
    assert line.endswith("Set failOnDataLoss=false to read the new one from its beginning")
    assert "Traceback" not in str(raised.value)


def test_a_stream_refuses_an_end(topic: Any, read_stream: Stream, tmp_path: Path) -> None:
    query = (
        read_stream(topic, endingOffsets="latest")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    with pytest.raises(PySparkException, match="endingOffsets does not apply to a streaming read"):
        query.awaitTermination(60)


def test_projection_and_decoding_work_in_streams(
    topic: Any, read_stream: Stream, tmp_path: Path, run_to_end: Any
) -> None:
    topic.send(b'{"n": 1}', b'{"n": 2}')
    frame = read_stream(
        topic, columns="offset,value", valueDecode="json", valueSchema="n INT", minPartitions="2"
    )
    rows: list[tuple[int, int]] = []

    def take(batch: DataFrame, _: int) -> None:
        rows.extend((row.offset, row.n) for row in batch.select("offset", "value.n").collect())

    query = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    run_to_end(query)
    assert sorted(rows) == [(0, 1), (1, 2)]
