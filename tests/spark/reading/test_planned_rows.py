"""A small batch comes with its plan, and has the rows that a worker would read: compared over generated records.

The read by workers has two tasks (`minPartitions`), as only a batch of one comes with its plan.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import python_streaming_source_runner
from pyspark.sql.streaming.datasource import ReadMaxRows

from odradek.client import Producer
from odradek.spark.source import OdradekDataSource, StreamReader
from odradek.values.formats import record_format
from odradek.values.formats.format_info import FormatInfo
from odradek.values.types import parse_type

Stream = Callable[..., DataFrame]
BY_WORKERS = {"minPartitions": "2"}
VALUES = (
    "n INT, big BIGINT, price DECIMAL(12, 3), name STRING, at TIMESTAMP, flag BOOLEAN, tags ARRAY<STRING>,"
    " inner STRUCT<x: DOUBLE, list: ARRAY<STRUCT<y: STRING, z: ARRAY<ARRAY<STRING>>, w: BIGINT>>>"
)
JSON_VALUES = {"valueDecode": "json", "valueSchema": VALUES}
SQL_VALUES = record_format(
    FormatInfo(name="JSON"),
    [
        (name.upper(), f"value_{place}", parse_type(kind))
        for place, (name, kind) in enumerate(
            {
                "n": "INT",
                "big": "BIGINT",
                "price": "DECIMAL(12, 3)",
                "name": "STRING",
                "at": "STRING",
                "flag": "BOOLEAN",
                "tags": "ARRAY<STRING>",
                "day": "DATE",
                "moment": "TIMESTAMP",
                "inner": "STRUCT<X DOUBLE, LIST ARRAY<STRUCT<Y STRING, Z ARRAY<ARRAY<STRING>>, W BIGINT>>>",
            }.items()
        )
    ],
    is_key=False,
)
READS = {
    "formats of SQL": {"valueFormat": SQL_VALUES.text or ""},
    "plain": {},
    "all columns": {
        "columns": "timestampMs,headers,record,offset,key,partition,value,topic,timestamp,timestampType"
    },
    "text": {"keyDecode": "utf8", "valueDecode": "utf8", "decodeErrors": "null"},
    "json": {**JSON_VALUES, "decodeErrors": "null", "includeHeaders": "true"},
    "dead letters": {**JSON_VALUES, "decodeErrors": "dead-letter", "includeHeaders": "true"},
    "keys, too": {
        **JSON_VALUES,
        "keyDecode": "json",
        "keySchema": "id STRING, parts ARRAY<STRING>",
        "decodeErrors": "dead-letter",
    },
}


def generated(random: Random) -> dict[str, Any]:
    """One record: keys and values that fit the schemas, and such as do not."""
    fitting: dict[str, Any] = {
        "n": random.choice([None, 0, -(2**31), 2**31 - 1]),
        "big": random.choice([None, 2**63 - 1, -1]),
        "price": random.choice([None, 0, 12.5, -999999999.125]),
        "name": random.choice([None, "", "ü\u0000z", "x" * 300]),
        "at": random.choice([None, "1969-12-31T23:59:59Z", "2026-11-30T01:02:03.000004Z"]),
        "flag": random.choice([None, True, False]),
        "tags": random.choice([None, [], ["a", None, ""]]),
        "day": random.choice([None, 0, -1, 19_000]),
        "moment": random.choice([None, 0, -1, 1_764_464_523_004]),
        "numbers": random.choice([None, [], [1, None, -3]]),
        "inner": random.choice(
            [
                None,
                {},
                {"x": 1e300, "list": [None, {"y": "", "z": [["1", None], None], "w": 7}, {}]},
                {"list": []},
            ]
        ),
    }
    present = {name: field for name, field in fitting.items() if random.random() < 0.8}
    values = [
        json.dumps(present).encode(),
        None,
        b"",
        b"\xff\xfe",
        b"{",
        b"[1]",
        b'{"n": 99999999999}',
        b"null",
    ]
    keys = [None, b"", b"k", b"\xff", b'{"id": "a", "parts": ["1", null]}', b"{}"]
    headers = [("a", b"1"), ("a", None), ("\u00fc", b"\x00\xff")]
    return {
        "value": random.choices(values, [12, 1, 1, 1, 1, 1, 1, 1])[0],
        "key": random.choice(keys),
        "headers": headers[: random.randrange(4)],
        "timestamp_ms": random.choice([0, 1, 1_764_464_523_004]),
    }


@contextmanager
def running(frame: DataFrame, name: str) -> Iterator[Callable[[], list[Any]]]:
    """A query into memory; yields what it has read so far, in order."""
    query = frame.writeStream.format("memory").queryName(name).start()
    spark = frame.sparkSession

    def rows() -> list[Any]:
        query.processAllAvailable()
        return spark.table(name).collect()

    try:
        yield rows
    finally:
        query.stop()


@pytest.mark.parametrize("read", READS)
def test_rows_that_come_with_a_plan_are_those_of_a_worker(
    topic: Any, servers: str, read_stream: Stream, read: str
) -> None:
    random = Random(read)
    name = read.replace(" ", "_").replace(",", "")
    planned, by_workers = (read_stream(topic, **READS[read], **more) for more in ({}, BY_WORKERS))
    assert planned.schema == by_workers.schema
    with running(planned, f"planned_{name}") as mine, running(by_workers, f"workers_{name}") as theirs:
        count = 0
        for size in (2, 40, 3):
            with Producer(servers) as producer:
                for _ in range(size):
                    producer.send(topic.name, partition=0, **generated(random))
            count += size
            rows, expected = mine(), theirs()
            assert len(rows) == count
            assert sorted(map(repr, rows)) == sorted(map(repr, expected))


@pytest.mark.parametrize("read", READS)
def test_a_reader_plans_the_very_batches_that_it_reads(
    spark: SparkSession, topic: Any, servers: str, read: str
) -> None:
    random = Random(f"reader {read}")
    with Producer(servers) as producer:
        for _ in range(60):
            producer.send(topic.name, partition=0, **generated(random))
    reader = reader_of(spark, topic, **READS[read])
    start = reader.initialOffset()
    for limit in (1, 30, 100):
        end = reader.latestOffset(start, ReadMaxRows(limit))
        (partition,) = reader.partitions(start, end)
        planned = reader.planned_rows([partition])
        assert planned is not None
        assert pa.Table.from_batches(planned).equals(pa.Table.from_batches(reader.read(partition)))
        start = end
    assert start[topic.name] == {"0": 60}


def reader_of(spark: SparkSession, topic: Any, **options: str) -> StreamReader:
    """The reader of a stream, in this process."""
    source = OdradekDataSource(
        {
            "kafka.bootstrap.servers": topic.servers,
            "subscribe": topic.name,
            "startingOffsets": "earliest",
            **options,
        }
    )
    schema = spark.createDataFrame([], source.schema()).schema
    reader = source.streamReader(schema)
    assert isinstance(reader, StreamReader)
    return reader


def test_the_reader_of_a_stream_has_the_process_that_spark_made_for_it_plan_rows(
    spark: SparkSession, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = ModuleType("process")
    vars(process).update(vars(python_streaming_source_runner))
    monkeypatch.setitem(sys.modules, "__main__", process)
    before = process.partitions_func
    reader_of(spark, topic)
    assert process.partitions_func is not before


@pytest.mark.parametrize("fields", ["numbers ARRAY<INT>", "n INT COMMENT 'a number'"])
def test_a_schema_that_spark_would_take_in_another_way_is_left_to_workers(
    spark: SparkSession, topic: Any, read_stream: Stream, fields: str
) -> None:
    topic.send(b'{"n": 1, "numbers": [1, null]}')
    options = {"valueDecode": "json", "valueSchema": fields}
    reader = reader_of(spark, topic, **options)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(9))
    assert reader.planned_rows(reader.partitions(start, end)) is None
    with running(read_stream(topic, **options), f"left_to_workers_{len(fields)}") as rows:
        assert [tuple(row.value) for row in rows()] in ([(1,)], [([1, None],)])


def test_a_batch_can_be_read_again_when_its_records_are_gone_as_it_came_with_its_plan(
    topic: Any, read_stream: Stream
) -> None:
    """It shows where the rows come from, too: those that workers read are read again, and lost."""
    for more, is_planned in (({}, True), (BY_WORKERS, False)):
        topic.send(b"1", b"2")
        seen: list[int] = []

        def read_twice(batch: DataFrame, _: int, seen: list[int] = seen) -> None:
            seen.append(len(batch.collect()))
            topic.cut(-1)
            seen.append(len(batch.collect()))

        query = read_stream(topic, **more).writeStream.foreachBatch(read_twice).start()
        try:
            if is_planned:
                query.processAllAvailable()
                assert seen == [2, 2]
            else:
                with pytest.raises(PySparkException, match="no longer holds offsets"):
                    query.processAllAvailable()
                assert seen == [2]
        finally:
            query.stop()


def test_a_value_that_cannot_be_decoded_fails_the_query_with_the_workers_error(
    topic: Any, read_stream: Stream
) -> None:
    topic.send(b'{"n": 1}', b"{")
    with (
        pytest.raises(PySparkException, match=f"the value at {topic.name}-0 offset 1 is not JSON"),
        running(read_stream(topic, valueDecode="json", valueSchema="n INT"), "undecodable") as rows,
    ):
        rows()


def test_a_transaction_that_was_aborted_leaves_a_batch_without_rows(
    spark: SparkSession, topic: Any, servers: str, read_stream: Stream
) -> None:
    with Producer(servers, transactional_id=f"aborting-{topic.name}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic.name, b"aborted")
        producer.flush()
        producer.abort_transaction()
        frame = read_stream(topic, **{"kafka.isolation.level": "read_committed"})
        with running(frame, "aborted_rows") as rows:
            assert rows() == []
            producer.begin_transaction()
            producer.send(topic.name, b"committed")
            producer.commit_transaction()
            assert [bytes(row.value) for row in rows()] == [b"committed"]


def test_records_that_were_deleted_before_their_batch_are_a_loss_as_ever(
    topic: Any, read_stream: Stream, tmp_path: Any
) -> None:
    topic.send_numbers(0, 4)
    topic.cut(2)
    frame = read_stream(topic, startingOffsets=json.dumps({topic.name: {"0": 0}}), failOnDataLoss="false")
    with running(frame, "cut_rows") as rows:
        assert [bytes(row.value) for row in rows()] == [b"2", b"3"]


@pytest.mark.parametrize(("size_bytes", "is_planned"), [(1_000, True), (100_000, False)])
def test_records_that_take_long_to_decode_are_left_to_workers(
    spark: SparkSession, topic: Any, read_stream: Stream, size_bytes: int, *, is_planned: bool
) -> None:
    topic.send(b'{"A": "%s"}' % (b"x" * size_bytes))
    text = record_format(FormatInfo(name="JSON"), [("A", "A", parse_type("STRING"))], is_key=False).text
    assert text is not None
    reader = reader_of(spark, topic, valueFormat=text)
    start = reader.initialOffset()
    partitions = reader.partitions(start, reader.latestOffset(start, ReadMaxRows(9)))
    assert (reader.planned_rows(partitions) is not None) == is_planned
    with running(read_stream(topic, valueFormat=text), f"costly_{size_bytes}") as rows:
        assert [len(row.value.value.A) for row in rows()] == [size_bytes]
