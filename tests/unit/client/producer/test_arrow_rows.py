"""Rows of an Arrow batch: which go where, in which order, and what arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.network.errors import BufferFullError, DeliveryError
from odradek.client.producer.aio import AsyncProducer
from odradek.client.producer.arrow_rows import by_partition, record_batches
from odradek.client.producer.producer import Producer
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import decode_batch, partition_of

Within = Callable[[Awaitable[Any]], Awaitable[Any]]
QUICK = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1}


def batch_of(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def groups(rows: Any, count: int = 4) -> dict[int | None, list[Any]]:
    partitions = by_partition("t", rows, count)
    return {partition.partition: partition.rows["value"].to_pylist() for partition in partitions}


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=4), st.none() | st.integers(0, 3)), min_size=1, max_size=40
    )
)
def test_each_row_goes_where_a_single_record_would_and_rows_keep_their_order(
    rows: list[tuple[bytes | None, int | None]],
) -> None:
    expected: dict[int | None, list[bytes]] = {}
    for number, (key, partition) in enumerate(rows):
        place = partition if partition is not None else None if key is None else partition_of(key, 4)
        expected.setdefault(place, []).append(b"%d" % number)
    made = pa.RecordBatch.from_arrays(
        [
            pa.array([b"%d" % number for number in range(len(rows))], pa.binary()),
            pa.array([key for key, _ in rows], pa.binary()),
            pa.array([partition for _, partition in rows], pa.int32()),
        ],
        ["value", "key", "partition"],
    )
    assert groups(made) == expected


def test_text_keys_are_their_utf8() -> None:
    assert groups(batch_of(value=[b"a"], key=["ключ"])) == {partition_of("ключ".encode(), 4): [b"a"]}


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_is_not_there_is_refused(partition: int) -> None:
    with pytest.raises(KafkaError, match=f"partitions 0 to 3, not {partition}"):
        groups(batch_of(value=[b"a", b"b"], partition=[1, partition]))


def test_a_rule_of_the_users_own_is_asked_for_every_row() -> None:
    turns = iter([2, None, 2, 3])
    rows = batch_of(value=[b"0", b"1", b"2", b"3"], key=[b"k", None, b"k", b"k"])
    partitions = by_partition("t", rows, 4, lambda _: next(turns))
    assert {partition.partition: partition.rows["value"].to_pylist() for partition in partitions} == {
        2: [b"0", b"2"],
        3: [b"3"],
        None: [b"1"],
    }


def sent(broker: Any) -> list[tuple[int, list[Any]]]:
    return [
        (partition.index, decode_batch(partition.records))
        for request in broker.requests("Produce")
        for topic in request.topic_data
        for partition in topic.partition_data
    ]


async def test_rows_arrive_as_records_with_all_that_they_have(broker: Any) -> None:
    broker.topics["t"] = 1
    headers = pa.array([[{"key": "h", "value": b"1"}], []])
    rows = pa.RecordBatch.from_arrays(
        [pa.array([b"v", None]), pa.array(["k", "l"]), headers, pa.array([7, 8])],
        ["value", "key", "headers", "timestamp"],
    )
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        await producer.send_arrow("t", rows)
        await producer.flush()
    records = [record for _, batch in sent(broker) for record in batch]
    assert [(r.key, r.value, r.headers, r.timestamp) for r in records] == [
        (b"k", b"v", (("h", b"1"),), 7),
        (b"l", None, (), 8),
    ]


async def test_rows_come_after_records_that_were_sent_before_and_fill_batches(broker: Any) -> None:
    numbers = [b"%03d" % number for number in range(1, 300)]
    async with AsyncProducer(broker.bootstrap, batch_size=500, **(QUICK | {"linger_ms": 1_000})) as producer:
        await producer.send("t", b"000", partition=0)
        await producer.send_arrow("t", batch_of(value=numbers, partition=[0] * len(numbers)))
        await producer.send("t", b"300", partition=0)
        await producer.flush()
    batches = [batch for _, batch in sent(broker)]
    assert [r.value for batch in batches for r in batch] == [b"%03d" % number for number in range(301)]
    assert len(batches) > 5


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"partitioner": lambda topic, key, count: count - 1}, {3}),
        ({"partitioner": lambda topic, key, count: None}, {partition_of(b"k", 4)}),
        ({}, {partition_of(b"k", 4)}),
    ],
)
async def test_rows_go_where_the_producers_partitioner_says(
    broker: Any, options: dict[str, Any], expected: set[int]
) -> None:
    broker.topics["t"] = 4
    async with AsyncProducer(broker.bootstrap, **options, **QUICK) as producer:
        await producer.send_arrow("t", batch_of(value=[b"a", b"b"], key=["k", "k"]))
        await producer.flush()
    assert {partition for partition, _ in sent(broker)} == expected


async def test_what_is_not_delivered_is_raised_by_flush(broker: Any) -> None:
    broker.on["Produce"] = lambda asked: broker.produced(asked, ErrorCode.INVALID_RECORD)
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        await producer.send_arrow("t", batch_of(value=[b"a", b"b"]))
        with pytest.raises(DeliveryError, match="2 records"):
            await producer.flush()


async def test_rows_wait_for_memory(broker: Any) -> None:
    options = QUICK | {"batch_size": 1_000, "buffer_memory": 2_000, "max_block_ms": 10_000}
    async with AsyncProducer(broker.bootstrap, **options) as producer:
        await producer.send_arrow("t", batch_of(value=[b"x" * 500] * 40, partition=[0] * 40))
        await producer.flush()
    assert sum(len(batch) for _, batch in sent(broker)) == 40


async def test_rows_wait_no_longer_than_max_block_ms(broker: Any, silence: object) -> None:
    broker.on["Produce"] = lambda _: silence
    options = QUICK | {"batch_size": 1_000, "buffer_memory": 1_000, "max_block_ms": 2_000}
    producer = AsyncProducer(broker.bootstrap, **options)
    with pytest.raises(BufferFullError):
        await producer.send_arrow("t", batch_of(value=[b"x" * 900] * 2))
    with pytest.raises(TimeoutError):
        await producer.close(timeout_s=0)


async def test_the_synchronous_producer_does_the_same(broker: Any) -> None:
    def send() -> None:
        options = QUICK | {"batch_size": 1_000, "buffer_memory": 2_000}
        with Producer(broker.bootstrap, **options) as producer:
            producer.send_arrow("t", batch_of(value=[b"x" * 500] * 40, key=["k"] * 40))
            producer.send_arrow("t", batch_of(value=pa.array([], pa.binary())))

    await asyncio.to_thread(send)
    assert sum(len(batch) for _, batch in sent(broker)) == 40


ROWS = {"key": ["a", None, "b", "a"], "value": [b"0", b"1" * 40, None, b"3"], "partition": [0, 1, 2, 0]}
EXPECTED = {0: [(b"a", b"0"), (b"a", b"3")], 1: [(None, b"1" * 40)], 2: [(b"b", None)]}


class OneArray:
    """An object that has one method of the C data interface, as other libraries have."""

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return pa.RecordBatch.from_pydict(ROWS).__arrow_c_array__(requested_schema)


def chunked() -> Any:
    return pa.Table.from_batches([pa.RecordBatch.from_pydict(ROWS).slice(row, 1) for row in range(4)])


@pytest.mark.parametrize(
    "frame",
    [
        pa.RecordBatch.from_pydict(ROWS),
        chunked(),
        pl.DataFrame(ROWS),
        pl.DataFrame(ROWS, schema_overrides={"key": pl.Categorical}),
        pd.DataFrame(ROWS, index=list("wxyz")),
        pd.DataFrame(ROWS | {"partition": pd.Series([0, 1, 2, 0], dtype="float")}),
        pd.DataFrame(ROWS | {"key": pd.Categorical(ROWS["key"])}),
        OneArray(),
    ],
    ids=[
        "batch",
        "table",
        "polars",
        "polars categories",
        "pandas",
        "pandas floats",
        "pandas categories",
        "array",
    ],
)
async def test_frames_of_any_library_become_the_same_records(broker: Any, frame: Any) -> None:
    broker.topics["t"] = 3
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        await producer.send_arrow("t", frame)
        await producer.flush()
    records: dict[int, list[Any]] = {}
    for partition, batch in sent(broker):
        records.setdefault(partition, []).extend((record.key, record.value) for record in batch)
    assert records == EXPECTED


async def test_headers_and_times_of_frames_arrive(broker: Any) -> None:
    broker.topics["t"] = 1
    moment = datetime(2026, 1, 2, 3, 4, 5, 6_000, tzinfo=UTC)
    columns = {
        "value": [b"v", b"w"],
        "headers": [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None],
        "timestamp": [moment, None],
    }
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        for frame in (pl.DataFrame(columns), pd.DataFrame(columns)):
            await producer.send_arrow("t", frame)
        await producer.flush()
    records = [record for _, batch in sent(broker) for record in batch]
    assert [record.headers for record in records] == [(("h", b"1"), ("h", None)), ()] * 2
    stamps = [record.timestamp for record in records]
    assert stamps[0] == stamps[2] == int(moment.timestamp() * 1000)
    assert min(stamps[1], stamps[3]) > stamps[0]


def test_small_batches_of_a_stream_are_joined_and_large_ones_stay_apart() -> None:
    small = pa.Table.from_batches([batch_of(value=[b"a"])] * 1_000)
    assert [rows.num_rows for rows in record_batches(small)] == [1_000]
    large = pa.Table.from_batches([batch_of(value=[b"a" * (5 << 20)])] * 3)
    assert [rows.num_rows for rows in record_batches(large)] == [1, 1, 1]


def test_a_stream_is_read_as_it_is_sent() -> None:
    read: list[int] = []

    def batches() -> Any:
        for number in range(3):
            read.append(number)
            yield batch_of(value=[b"a" * (5 << 20)])

    stream = pa.RecordBatchReader.from_batches(pa.schema([("value", pa.binary())]), batches())
    sending = record_batches(stream)
    assert next(sending).num_rows == 1
    assert read == [0]


@pytest.mark.parametrize(
    ("frame", "error", "text"),
    [
        ({"value": [1]}, TypeError, "not from dict"),
        (pl.LazyFrame(ROWS), TypeError, r"not from LazyFrame: collect\(\) it first"),
        (
            pl.DataFrame({"id": [1], "name": ["x"]}),
            ValueError,
            "neither a column 'value' nor a column 'key', but id, name",
        ),
        (pl.DataFrame({"value": [1]}), ValueError, "'value' is int64, and binary or text is needed"),
        (
            pl.DataFrame({"value": [{"id": 1}]}),
            ValueError,
            "'value' is struct<id: int64>, and binary or text",
        ),
        (
            pl.DataFrame({"value": ["a"], "headers": ["b"]}),
            ValueError,
            "'headers' is .*, and a list of structs",
        ),
        (
            pl.DataFrame({"value": ["a"], "partition": ["b"]}),
            ValueError,
            "'partition' is .*, and a whole number",
        ),
        (
            pl.DataFrame({"value": ["a"], "partition": [0.5]}),
            ValueError,
            "'partition' is double, .*truncated",
        ),
        (
            pl.DataFrame({"value": ["a"], "timestamp": ["b"]}),
            ValueError,
            "'timestamp' is .*, and milliseconds",
        ),
        (
            pa.RecordBatch.from_arrays([pa.array([b"a"])] * 2, ["value", "value"]),
            ValueError,
            "the column 'value' 2 times",
        ),
    ],
)
def test_a_frame_that_is_no_records_is_refused_in_one_sentence(
    frame: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        list(record_batches(frame))
