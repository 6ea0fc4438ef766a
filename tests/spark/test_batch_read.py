"""Batch reads: the columns, what is read, and what happens when it cannot be."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

Read = Callable[..., DataFrame]
MakeTopic = Callable[..., Any]
EARLY = dt.datetime(2013, 1, 1, 10, 0, 0, 123_000, tzinfo=dt.UTC)
EARLY_MS = 1_357_034_400_123


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def offsets(topic: Any, **of: int) -> str:
    return json.dumps({topic.name: {name[1:]: offset for name, offset in of.items()}})


def test_columns_and_types_are_those_of_sparks_kafka_connector(topic: Any, read: Read) -> None:
    assert read(topic, includeHeaders="true").schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )


def test_every_part_of_a_record_arrives(topic: Any, read: Read) -> None:
    topic.send(b"v", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp_ms=EARLY_MS)
    topic.send(None)
    frame = read(topic, includeHeaders="true").orderBy("offset")
    first, second = frame.selectExpr("*", "unix_millis(timestamp) AS ms").collect()
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition) == (b"k", b"v", topic.name, 0)
    assert (first.offset, first.ms, first.timestampType) == (0, EARLY_MS, 0)
    assert [(header.key, header.value) for header in first.headers] == [("h", bytearray(b"1")), ("h", None)]
    assert (second.key, second.value, second.offset, second.headers) == (None, None, 1, [])


def test_timestamps_are_instants_whatever_the_sessions_time_zone(topic: Any, read: Read) -> None:
    topic.send(b"v", timestamp_ms=EARLY_MS)
    (row,) = (
        read(topic, columns="timestamp")
        .selectExpr("timestamp", "cast(timestamp AS string) AS shown")
        .collect()
    )
    assert row.timestamp.timestamp() == EARLY.timestamp()
    assert row.shown == "2013-01-01 19:00:00.123"  # the session is in Tokyo


def test_only_the_columns_asked_for_come_and_in_that_order(topic: Any, read: Read) -> None:
    topic.send(b"v", key=b"k")
    frame = read(topic, columns="timestampType,offset,headers,key")
    assert frame.columns == ["timestampType", "offset", "headers", "key"]
    assert [tuple(row) for row in frame.collect()] == [(0, 0, [], bytearray(b"k"))]


def test_an_empty_topic_is_an_empty_frame(topic: Any, read: Read) -> None:
    assert read(topic).count() == 0


def test_ranges_begin_and_end_at_the_very_offset(new_topic: MakeTopic, read: Read) -> None:
    topic = new_topic(2)
    topic.send_numbers(0, 100)
    topic.send_numbers(1000, 1100, partition=1)
    frame = read(
        topic, startingOffsets=offsets(topic, p0=17, p1=-2), endingOffsets=offsets(topic, p0=23, p1=5)
    )
    assert numbers(frame) == [*range(17, 23), *range(1000, 1005)]


def test_timestamps_choose_the_first_record_at_or_after_them(topic: Any, read: Read) -> None:
    topic.send_numbers(100, 200)
    assert numbers(read(topic, startingTimestamp="150", endingTimestamp="160")) == list(range(150, 160))
    ends_json = json.dumps({topic.name: {"0": 190}})
    assert numbers(read(topic, startingOffsetsByTimestamp=ends_json, endingTimestamp="9999")) == list(
        range(190, 200)
    )


def test_a_start_after_the_last_record_says_so(topic: Any, read: Read) -> None:
    topic.send_numbers(0, 3)
    with pytest.raises(PySparkException, match="holds no record at or after 99 ms"):
        read(topic, startingTimestamp="99").count()
    given = {"startingTimestamp": "99", "startingOffsetsByTimestampStrategy": "latest"}
    assert read(topic, **given).count() == 0


def test_patterns_and_assignments_choose_topics_and_partitions(new_topic: MakeTopic, read: Read) -> None:
    first, second = new_topic(), new_topic(2)
    first.send_numbers(0, 3)
    second.send_numbers(10, 13)
    second.send_numbers(20, 23, partition=1)
    assert numbers(read(subscribePattern=first.name[:-1] + "[01]")) == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    assert numbers(read(subscribePattern=first.name[:-2])) == []
    assert numbers(read(assign=json.dumps({second.name: [1], first.name: [0]}))) == [0, 1, 2, 20, 21, 22]


def test_a_partition_is_cut_into_as_many_tasks_as_asked_for(topic: Any, read: Read) -> None:
    topic.send_numbers(0, 100)
    frame = read(topic, minPartitions="4")
    assert frame.rdd.getNumPartitions() == 4
    assert numbers(frame) == list(range(100))
    assert read(topic, maxRecordsPerPartition="40").rdd.getNumPartitions() == 3


def test_a_read_that_stops_early_does_not_disturb_the_next(topic: Any, read: Read) -> None:
    topic.send_numbers(0, 50_000)
    for _ in range(3):
        assert len(read(topic).limit(2).collect()) == 2
        assert read(topic).count() == 50_000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read(topic: Any, read: Read, servers: str, codec: str) -> None:
    from odradek.client import Producer

    with Producer(servers, compression_type=codec) as producer:
        for number in range(500):
            producer.send(topic.name, b"%d" % number)
    assert numbers(read(topic)) == list(range(500))


def test_text_and_json_are_decoded(topic: Any, read: Read) -> None:
    topic.send(b'{"a": 1, "at": "2013-01-01T10:00:00.123Z", "more": [1, 2]}', key="schlüssel".encode())
    frame = read(
        topic, keyDecode="utf8", valueDecode="json", valueSchema="a INT, at TIMESTAMP, more ARRAY<BIGINT>"
    )
    (row,) = frame.select("key", "value.*").collect()
    assert (row.key, row.a, row.at.timestamp(), row.more) == ("schlüssel", 1, EARLY.timestamp(), [1, 2])


def test_what_cannot_be_decoded_fails_with_its_place_or_is_null(topic: Any, read: Read) -> None:
    topic.send(b'{"a": 1}', b"{broken", b'{"a": 3}')
    json_values = {"valueDecode": "json", "valueSchema": "a INT"}
    with pytest.raises(PySparkException, match=rf"the value at {topic.name}-0 offset 1 is not JSON"):
        read(topic, **json_values).collect()
    frame = read(topic, decodeErrors="null", **json_values)
    assert [row.a for row in frame.orderBy("offset").select("value.a").collect()] == [1, None, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"delivery": "at_least_once"}, "option delivery does not apply"),
        ({"startingOffsets": "latest"}, "there would be nothing to read"),
        ({"valueDecode": "json", "valueSchema": "a DATE"}, "JSON decoding does not support date"),
        ({"kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
        ({"kafka.no.such.setting": "1"}, "no.such.setting"),
    ],
)
def test_wrong_options_are_reported_in_the_exception(
    topic: Any, read: Read, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        read(topic, **options).collect()


def test_a_topic_that_does_not_exist_is_named(read: Read) -> None:
    with pytest.raises(PySparkException, match="there is no topic no-such-topic"):
        read(subscribe="no-such-topic").collect()


def test_a_schema_of_ones_own_is_refused(topic: Any, spark: Any, servers: str) -> None:
    reader = (
        spark.read.format("odradek")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic.name)
    )
    with pytest.raises(PySparkException, match="has its own schema"):
        reader.schema("value STRING").load().collect()


def test_lost_records_fail_the_read_unless_asked_otherwise(topic: Any, read: Read) -> None:
    topic.send_numbers(0, 10)
    topic.cut(4)
    assert numbers(read(topic)) == list(range(4, 10))
    asked = {"startingOffsets": offsets(topic, p0=2)}
    with pytest.raises(PySparkException, match="now begins at offset 4, after offset 2"):
        read(topic, **asked).collect()
    assert numbers(read(topic, failOnDataLoss="false", **asked)) == list(range(4, 10))
