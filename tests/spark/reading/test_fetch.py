"""A task's range, without Spark: it begins and ends at its very offset, whatever the batches look like."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options
from odradek.spark.reading.fetch import read_ranges
from odradek.spark.reading.offsets import OffsetRange

SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.binary())])


def fetched(topic: Any, start: int, end: int, **options: str) -> list[int]:
    given = {
        "kafka.bootstrap.servers": topic.servers,
        "subscribe": topic.name,
        "columns": "offset,value",
        **options,
    }
    extent = OffsetRange(partition=TopicPartition(topic.name, 0), start=start, end=end)
    batches = list(read_ranges([extent], read_options(given, Use.BATCH_READ), SCHEMA))
    assert all(batch.schema == SCHEMA for batch in batches)
    assert all(int(row["value"]) == row["offset"] for batch in batches for row in batch.to_pylist())
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def test_ranges_cut_batches_where_they_like(topic: Any) -> None:
    topic.send_numbers(0, 3_000)
    borders = [0, 1, 999, 1_000, 2_500, 3_000]
    pieces = [fetched(topic, start, end) for start, end in pairwise(borders)]
    assert [offset for piece in pieces for offset in piece] == list(range(3_000))


def test_small_fetches_and_large_ones_give_the_same(topic: Any) -> None:
    topic.send_numbers(0, 20_000)
    assert fetched(topic, 10, 19_990) == list(range(10, 19_990))
    small = {"kafka.max.partition.fetch.bytes": "2000", "kafka.prefetch.max.bytes": "1000"}
    assert fetched(topic, 10, 400, **small) == list(range(10, 400))


def test_records_that_never_come_are_an_error_that_says_where(topic: Any) -> None:
    topic.send_numbers(0, 10)
    with pytest.raises(
        KafkaError, match=rf"{topic.name}-0: no record came from offset 10 on for 1 ms"
    ) as caught:
        fetched(topic, 10, 12, **{"kafkaConsumer.pollTimeoutMs": "1"})
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_records_lost_before_the_task_ran_are_skipped_only_when_asked_to(topic: Any) -> None:
    topic.send_numbers(0, 10)
    topic.cut(6)
    with pytest.raises(KafkaError, match="no longer holds offsets 2 to 5"):
        fetched(topic, 2, 8)
    assert fetched(topic, 2, 8, failOnDataLoss="false") == [6, 7]
    assert fetched(topic, 2, 5, failOnDataLoss="false") == []


def test_one_task_reads_ranges_of_several_partitions(new_topic: Any) -> None:
    topic = new_topic(3)
    for partition in range(3):
        topic.send_numbers(0, 1_000, partition=partition)
    wanted = {0: (10, 990), 1: (0, 1_000), 2: (500, 501)}
    extents = [
        OffsetRange(partition=TopicPartition(topic.name, number), start=start, end=end)
        for number, (start, end) in wanted.items()
    ]
    options = {"kafka.bootstrap.servers": topic.servers, "subscribe": topic.name}
    schema = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])
    seen: dict[int, list[int]] = {number: [] for number in wanted}
    for batch in read_ranges(
        extents, read_options(options | {"columns": "partition,offset"}, Use.BATCH_READ), schema
    ):
        for row in batch.to_pylist():
            seen[row["partition"]].append(row["offset"])
    assert seen == {number: list(range(*span)) for number, span in wanted.items()}


def test_a_loss_in_one_of_several_partitions_is_reported_and_the_others_are_read(new_topic: Any) -> None:
    topic = new_topic(2)
    for partition in range(2):
        topic.send_numbers(0, 10, partition=partition)
    topic.cut(6, partition=1)
    extents = [
        OffsetRange(partition=TopicPartition(topic.name, number), start=2, end=8) for number in range(2)
    ]
    given = {"kafka.bootstrap.servers": topic.servers, "subscribe": topic.name, "columns": "partition,offset"}
    schema = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])
    with pytest.raises(KafkaError, match=f"{topic.name}-1 no longer holds offsets 2 to 5"):
        list(read_ranges(extents, read_options(given, Use.BATCH_READ), schema))
    options = read_options(given | {"failOnDataLoss": "false"}, Use.BATCH_READ)
    rows = [row for batch in read_ranges(extents, options, schema) for row in batch.to_pylist()]
    assert sorted((row["partition"], row["offset"]) for row in rows) == [
        *((0, offset) for offset in range(2, 8)),
        (1, 6),
        (1, 7),
    ]
