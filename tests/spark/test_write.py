"""Writes: every column reaches its record, and a batch written twice can be read once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark program gives it

from odradek.spark import deduplicate

Read = Callable[..., DataFrame]
MakeTopic = Callable[..., Any]
Consume = Callable[[Any], list[dict[str, Any]]]


def write(frame: DataFrame, servers: str, **options: str) -> None:
    frame.write.format("odradek").option("kafka.bootstrap.servers", servers).options(**options).mode(
        "append"
    ).save()


def test_every_column_reaches_its_record(
    spark: Any, new_topic: MakeTopic, servers: str, consume: Consume
) -> None:
    topic = new_topic(3)
    moment = dt.datetime(2013, 1, 1, 10, 0, 0, 123_000, tzinfo=dt.UTC)
    frame = spark.createDataFrame(
        [
            (b"k", "v", topic.name, 2, [("h", b"1"), ("h", None)], moment),
            (None, None, topic.name, 0, None, moment),
        ],
        "key BINARY, value STRING, topic STRING, partition INT,"
        " headers ARRAY<STRUCT<key: STRING, value: BINARY>>, timestamp TIMESTAMP",
    )
    write(frame, servers)
    second, first = consume(topic)
    assert (first["partition"], first["key"], first["value"]) == (2, b"k", b"v")
    assert first["timestamp_ms"] == 1_357_034_400_123
    assert [tuple(header) for header in first["headers"]] == [("h", b"1"), ("h", None)]
    assert (second["partition"], second["key"], second["value"], list(second["headers"])) == (
        0,
        None,
        None,
        [],
    )


def test_keys_go_to_the_partition_that_every_other_client_chooses(
    spark: Any, new_topic: MakeTopic, servers: str, consume: Consume
) -> None:
    from odradek.records import partition_of

    topic = new_topic(5)
    write(
        spark.range(40).select(F.col("id").cast("string").alias("key"), F.lit("v").alias("value")),
        servers,
        topic=topic.name,
    )
    rows = consume(topic)
    assert sorted(int(row["key"]) for row in rows) == list(range(40))
    assert all(row["partition"] == partition_of(row["key"], 5) for row in rows)


def test_a_topic_is_copied_as_it_is(new_topic: MakeTopic, servers: str, read: Read, consume: Consume) -> None:
    source, target = new_topic(2), new_topic(2)
    source.send_numbers(0, 20)
    source.send_numbers(20, 30, partition=1)
    write(read(source, includeHeaders="true"), servers, topic=target.name)
    assert consume(target) == consume(source)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["key"], {}, "needs a column value"),
        (["value", "id"], {}, "it would lose id"),
        (["value"], {"topic": ""}, "option topic"),
        (["value"], {"delivery": "twice"}, "at_least_once, exactly_once"),
        (["value"], {"subscribe": "x"}, "option subscribe does not apply to a batch write"),
        (["value"], {"kafka.no.such.setting": "1"}, "no.such.setting"),
    ],
)
def test_what_cannot_be_written_is_refused(
    spark: Any, topic: Any, servers: str, columns: list[str], options: dict[str, str], message: str
) -> None:
    frame = spark.range(1).selectExpr("id", "'k' AS key", "'v' AS value").select(*columns)
    with pytest.raises(PySparkException, match=message):
        write(frame, servers, **{"topic": topic.name, **options})


def test_a_topic_is_never_overwritten(spark: Any, topic: Any, servers: str) -> None:
    writer = spark.range(1).selectExpr("'v' AS value").write.format("odradek").option("topic", topic.name)
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        writer.option("kafka.bootstrap.servers", servers).mode("overwrite").save()


def test_a_partition_that_does_not_exist_fails_the_write(spark: Any, topic: Any, servers: str) -> None:
    with pytest.raises(PySparkException, match="7"):
        write(spark.range(1).selectExpr("'v' AS value", "7 AS partition"), servers, topic=topic.name)


def copy(frame: DataFrame, target: Any, checkpoint: Path, run_to_end: Any, **options: str) -> None:
    query = (
        frame.select("key", "value")
        .writeStream.format("odradek")
        .option("kafka.bootstrap.servers", target.servers)
        .option("topic", target.name)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    run_to_end(query)


def test_a_batch_that_was_written_twice_is_read_once(
    new_topic: MakeTopic, read: Read, read_stream: Read, consume: Consume, tmp_path: Path, run_to_end: Any
) -> None:
    source, target = new_topic(), new_topic()
    source.send_numbers(0, 10)
    copy(read_stream(source), target, tmp_path / "c", run_to_end)
    for file in (tmp_path / "c" / "commits").iterdir():  # as if the driver had died before it took note
        file.unlink()
    copy(read_stream(source), target, tmp_path / "c", run_to_end)
    target.send(b"by another hand", b"by another hand")
    assert len(consume(target)) == 22
    once = deduplicate(read(target, includeHeaders="true")).select(F.col("value").cast("string")).collect()
    assert sorted(row.value for row in once) == sorted([*map(str, range(10)), *["by another hand"] * 2])

    marks = [name for name, _ in consume(target)[0]["headers"]]
    assert marks == ["odradek.query", "odradek.batch", "odradek.partition", "odradek.sequence"]

    streamed: list[str] = []

    def take(batch: DataFrame, _: int) -> None:
        streamed.extend(bytes(row.value).decode() for row in batch.collect())

    frame = deduplicate(read_stream(target, includeHeaders="true"), within="1 hour").select("value")
    query = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "d"))
        .trigger(availableNow=True)
        .start()
    )
    run_to_end(query)
    assert sorted(streamed) == sorted(row.value for row in once)


def test_marks_can_be_left_out(
    new_topic: MakeTopic, read_stream: Read, consume: Consume, tmp_path: Path, run_to_end: Any
) -> None:
    source, target = new_topic(), new_topic()
    source.send_numbers(0, 3)
    copy(read_stream(source), target, tmp_path / "c", run_to_end, deliveryHeaders="false")
    assert [list(row["headers"]) for row in consume(target)] == [[], [], []]


def counted_by_parity(frame: DataFrame) -> DataFrame:
    return frame.groupBy((F.col("value").cast("int") % 2).cast("string").alias("key")).agg(
        F.count("*").cast("string").alias("value")
    )


def test_complete_mode_appends_the_whole_result_each_time(
    new_topic: MakeTopic, read_stream: Read, consume: Consume, tmp_path: Path, run_to_end: Any
) -> None:
    source, target = new_topic(), new_topic()
    source.send_numbers(0, 10)
    query = (
        counted_by_parity(read_stream(source, valueDecode="utf8", maxOffsetsPerTrigger="5"))
        .writeStream.format("odradek")
        .option("kafka.bootstrap.servers", target.servers)
        .option("topic", target.name)
        .option("checkpointLocation", str(tmp_path))
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    run_to_end(query)
    assert len(consume(target)) == 4
    assert {row["key"]: row["value"] for row in consume(target)} == {b"0": b"5", b"1": b"5"}


def test_update_mode_writes_through_foreach_batch_with_marks_when_asked_for(
    new_topic: MakeTopic, read_stream: Read, consume: Consume, tmp_path: Path, run_to_end: Any
) -> None:
    source, target = new_topic(), new_topic()
    source.send_numbers(0, 10)
    counted = counted_by_parity(read_stream(source, valueDecode="utf8"))

    def append(batch: DataFrame, _: int) -> None:
        write(batch, target.servers, topic=target.name, deliveryHeaders="true")

    query = (
        counted.writeStream.foreachBatch(append)
        .option("checkpointLocation", str(tmp_path))
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )
    run_to_end(query)
    rows = consume(target)
    assert {row["key"]: row["value"] for row in rows} == {b"0": b"5", b"1": b"5"}
    assert dict(rows[0]["headers"])["odradek.query"] == query.id.encode()


def test_a_batch_write_outside_a_stream_cannot_be_marked(spark: Any, topic: Any, servers: str) -> None:
    with pytest.raises(PySparkException, match="not part of a streaming query"):
        write(spark.range(1).selectExpr("'v' AS value"), servers, topic=topic.name, deliveryHeaders="true")


def test_deduplicating_needs_headers_and_a_stream_needs_a_bound(
    topic: Any, read: Read, read_stream: Read
) -> None:
    from odradek.model.errors import ConfigError

    with pytest.raises(ConfigError, match="needs the column headers"):
        deduplicate(read(topic))
    with pytest.raises(ConfigError, match="within"):
        deduplicate(read_stream(topic, includeHeaders="true"))
