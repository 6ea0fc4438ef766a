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

from odradek.client import Admin, ConfigResource
from odradek.spark import deduplicate
from odradek.spark.writing.duplicates import MARK_HEADERS

Read = Callable[..., DataFrame]
MakeTopic = Callable[..., Any]
Consume = Callable[..., list[dict[str, Any]]]


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


def copy(
    frame: DataFrame,
    target: Any,
    checkpoint: Path,
    run_to_end: Any,
    columns: tuple[str, ...] = ("key", "value"),
    **options: str,
) -> None:
    query = (
        frame.select(*columns)
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


def test_the_marks_of_the_last_write_count(
    new_topic: MakeTopic, read: Read, read_stream: Read, consume: Consume, tmp_path: Path, run_to_end: Any
) -> None:
    """A record that was copied twice had the marks of the first copy in front, and so may those of older versions."""
    source, first, second = new_topic(), new_topic(), new_topic()
    source.send_numbers(0, 3)
    copy(read_stream(source), first, tmp_path / "first", run_to_end)
    doubled = read_stream(first, includeHeaders="true").select(
        "headers", F.explode(F.array("value", "value")).alias("value")
    )
    copy(doubled, second, tmp_path / "second", run_to_end, columns=("value", "headers"))
    rows = consume(second)
    assert [[name for name, _ in row["headers"]] for row in rows] == [list(MARK_HEADERS)] * 6
    assert [dict(row["headers"])["odradek.sequence"] for row in rows] == [
        b"%d" % number for number in range(6)
    ]
    for row in rows[:2]:
        second.send(b"0", headers=[*consume(first)[0]["headers"], *row["headers"]])
    once = deduplicate(read(second, includeHeaders="true"))
    assert once.count() == 6


def records_of(rows: list[dict[str, Any]], *, without: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
    return [
        (
            row["partition"],
            row["key"],
            row["value"],
            row["timestamp_ms"],
            [tuple(header) for header in row["headers"] if header[0] not in without],
        )
        for row in rows
    ]


def test_both_deliveries_write_the_same_records(
    spark: Any,
    new_topic: MakeTopic,
    read_stream: Read,
    servers: str,
    consume: Consume,
    tmp_path: Path,
    run_to_end: Any,
) -> None:
    """Batches and streams, with and without marks: null keys and values, headers, times, partitions and large values."""
    topics = {name: new_topic(3) for name in ("at_least_once", "exactly_once", "marked", "once")}
    when = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=dt.UTC)
    headers: list[list[tuple[str, bytes | None]] | None] = [None, [], [("h", b"1"), ("h", None), ("", b"")]]
    rows = [
        (
            None if number % 5 == 0 else b"k%d" % (number % 7),
            None if number % 4 == 0 else "x" * (400_000 if number % 50 == 1 else number),
            number % 3 if number % 5 == 0 or number % 2 else None,
            headers[number % 3],
            when + dt.timedelta(milliseconds=number),
        )
        for number in range(200)
    ]
    kinds = "key BINARY, value STRING, partition INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    frame = spark.createDataFrame(rows, f"{kinds}, timestamp TIMESTAMP").coalesce(1)
    more = {"exactly_once": {"sinkId": topics["exactly_once"].name, "idempotenceKey": "1"}}
    for delivery in ("at_least_once", "exactly_once"):
        options = {"topic": topics[delivery].name, "delivery": delivery, **more.get(delivery, {})}
        write(frame, servers, **options)
    stream = read_stream(topics["at_least_once"], includeHeaders="true")
    columns = ("key", "value", "partition", "headers", "timestamp")
    copy(stream, topics["marked"], tmp_path / "m", run_to_end, columns=columns)
    exactly = {"delivery": "exactly_once", "sinkId": topics["once"].name}
    copy(stream, topics["once"], tmp_path / "o", run_to_end, columns=columns, **exactly)

    expected = records_of(consume(topics["at_least_once"]))
    assert len(expected) == 200
    for name in ("exactly_once", "once"):
        assert records_of(consume(topics[name], committed=True)) == expected, name
    marked = consume(topics["marked"])
    assert records_of(marked, without=MARK_HEADERS) == expected
    assert all([name for name, _ in row["headers"]][-4:] == list(MARK_HEADERS) for row in marked)


def test_a_batch_is_not_done_before_all_its_records_are_acknowledged(
    new_topic: MakeTopic, read: Read, read_stream: Read, tmp_path: Path, run_to_end: Any
) -> None:
    """A broker refuses one record behind the client's back, in the middle of a batch that it takes otherwise."""
    source, target = new_topic(), new_topic(**{"max.message.bytes": "3000"})
    source.send_numbers(0, 10)
    source.send(b"x" * 5_000)
    source.send_numbers(10, 20)
    with pytest.raises(PySparkException, match="MESSAGE_TOO_LARGE"):
        copy(read_stream(source), target, tmp_path, run_to_end)
    assert not any((tmp_path / "commits").glob("0"))
    with Admin(target.servers) as admin:
        admin.alter_configs({ConfigResource.topic(target.name): {"max.message.bytes": "1000000"}})
    copy(read_stream(source), target, tmp_path, run_to_end)
    assert any((tmp_path / "commits").glob("0"))
    once = deduplicate(read(target, includeHeaders="true")).collect()
    values = [bytes(row.value) for row in once]
    assert sorted(values) == sorted([b"x" * 5_000, *(b"%d" % number for number in range(20))])


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
