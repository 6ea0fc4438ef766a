"""Rows of an Arrow batch: which go where, in which order, and what arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.errors import BufferFullError, DeliveryError
from odradek.client.producer.aio import AsyncProducer
from odradek.client.producer.arrow_rows import by_partition
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
