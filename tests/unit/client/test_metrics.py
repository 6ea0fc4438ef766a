"""What `metrics()` says, beside what was sent and read."""

from __future__ import annotations

import asyncio
import math
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.conftest import StillClock
from tests.unit.client.scripted_log import QUICK, A, Log, Within, consumer_of, read

from odradek.client.consumer.consumer import Consumer
from odradek.client.network.errors import DeliveryError
from odradek.client.network.metrics import Measure, MetricName
from odradek.client.producer.aio import AsyncProducer
from odradek.client.producer.producer import Producer
from odradek.client.share.aio import AsyncShareConsumer
from odradek.model.errors import ErrorCode


@pytest.fixture
def log(broker: Any) -> Log:
    return Log(broker)


SENDING = {**QUICK, "linger_ms": 0}
DOCUMENT = Path(__file__).parents[3] / "docs" / "client.md"


def figures(client: Any) -> dict[str, float]:
    return {metric.name: value for metric, value in client.metrics().items()}


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1_000)), max_size=30))
def test_a_measure_counts_all_and_averages_what_is_not_older_than_a_minute(
    values: list[tuple[float, int]],
) -> None:
    clock = StillClock()
    measure = Measure(clock)
    times = []
    for pause, value in values:
        clock.now += pause
        times.append(clock.now)
        measure.add(value)
    assert (measure.count, measure.total) == (len(values), sum(value for _, value in values))
    numbers = [value for _, value in values]
    fresh = [number for at, number in zip(times, numbers, strict=True) if clock.now - at < 30]
    counted = [number for at, number in zip(times, numbers, strict=True) if clock.now - at < 60]
    if fresh:
        assert max(fresh) <= measure.maximum <= max(counted)
        assert sum(fresh) / 60 - 1e-9 <= measure.rate <= sum(counted) / 30 + 1e-9
        assert min(counted) <= measure.average <= max(counted)
    clock.now += 61
    assert math.isnan(measure.average)
    assert math.isnan(measure.maximum)
    assert measure.rate == measure.count_rate == 0


@pytest.mark.parametrize("refusals", [0, 2])
async def test_a_producer_counts_records_each_time_they_are_sent(
    broker: Any, within: Within, refusals: int
) -> None:
    broker.once["Produce"] = [
        lambda asked: broker.produced(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    ] * refusals
    async with AsyncProducer(broker.bootstrap, client_id="me", **(SENDING | {"linger_ms": 5})) as producer:
        before = figures(producer)
        assert math.isnan(before["request-latency-avg"])
        deliveries = [await producer.send("t", b"v") for _ in range(5)]
        assert figures(producer)["buffer-available-bytes"] < before["buffer-available-bytes"]
        for delivery in deliveries:
            await within(delivery)
        after = figures(producer)
        tags = (("client-id", "me"),)
        assert producer.metrics()[MetricName("producer-metrics", "record-error-total", tags)] == 0
    assert after["record-send-total"] == 5 * (1 + refusals)
    assert after["record-retry-total"] == 5 * refusals
    assert after["request-total"] == 1 + refusals == len(broker.requests("Produce"))
    assert after["records-per-request-avg"] == 5
    assert after["request-latency-max"] >= after["request-latency-avg"] > 0
    assert after["batch-size-max"] == max(
        len(partition.records)
        for request in broker.requests("Produce")
        for topic in request.topic_data
        for partition in topic.partition_data
    )
    assert after["buffer-available-bytes"] == after["buffer-total-bytes"] == before["buffer-total-bytes"]
    assert after["connection-count"] == 1


async def test_a_producer_counts_records_that_were_given_up(broker: Any, within: Within) -> None:
    broker.once["Produce"] = [lambda asked: broker.produced(asked, ErrorCode.INVALID_RECORD)]
    producer = AsyncProducer(broker.bootstrap, **SENDING)
    await producer.send("t", b"v")
    with pytest.raises(DeliveryError):
        await within(producer.flush())
    assert figures(producer)["record-error-total"] == 1
    await within(producer.close())


async def test_a_consumer_counts_records_in_each_way_of_reading(
    broker: Any, log: Log, within: Within
) -> None:
    log.end = 20
    async with consumer_of(broker) as consumer:
        assert math.isnan(figures(consumer)["records-lag-max"])
        await consumer.assign([A])
        records = await within(consumer.poll(10, 2))
        first = figures(consumer)
        assert first["records-consumed-total"] == len(records) == 2
        assert first["records-lag"] == first["records-lag-max"] == 18
        count = 2
        async for record in consumer:
            count += 1
            assert figures(consumer)["records-lag"] == 20 - record.offset - 1
            if count == 5:
                break
        consumer.seek(A, 0)
        taken = figures(consumer)["records-consumed-total"]
        rows = await within(consumer.poll_arrow(10))
        assert figures(consumer)["records-consumed-total"] == taken + rows.num_rows
        consumer.seek(A, 0)
        taken = figures(consumer)["records-consumed-total"]
        assert await read(consumer, 20, within) == list(range(20))
        after = figures(consumer)
        assert after["records-consumed-total"] == taken + 20
        assert after["records-lag-max"] == 0
        assert after["fetch-total"] <= len(broker.requests("Fetch"))
        assert after["fetch-latency-max"] >= after["fetch-latency-avg"] > 0
        assert after["fetch-size-max"] == max(sum(map(len, log.batches_from(first))) for first in range(20))


async def test_bytes_count_once_when_all_of_them_were_returned(broker: Any, log: Log, within: Within) -> None:
    log.end, log.batch_records = 6, 6
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        for _ in range(6):
            assert figures(consumer)["bytes-consumed-total"] == 0
            assert len(await within(consumer.poll(10, 1))) == 1
        assert figures(consumer)["bytes-consumed-total"] == len(log.batch(0))


async def test_the_synchronous_clients_answer_from_any_thread(broker: Any, log: Log) -> None:
    """While another thread reads: it is refused everything else."""
    log.end = 20

    def use() -> list[dict[str, float]]:
        seen = []
        with Producer(broker.bootstrap, **SENDING) as producer:
            producer.send("t", b"v").result()
            seen.append(figures(producer))
        with Consumer(broker.bootstrap, auto_offset_reset="earliest", **QUICK) as consumer:
            consumer.assign([A])
            for record in consumer:
                if record.offset == 9:
                    break
            consumer.pause([A])
            polling = threading.Thread(target=consumer.poll, args=(0.2,))
            polling.start()
            seen.append(figures(consumer))
            polling.join()
        return seen

    sent, consumed = await asyncio.to_thread(use)
    assert sent["record-send-total"] == 1
    assert consumed["records-lag"] == 10


async def test_every_metric_is_in_the_document_and_no_other(broker: Any, log: Log, within: Within) -> None:
    log.end = 1
    async with (
        AsyncProducer(broker.bootstrap, **SENDING) as producer,
        consumer_of(broker, group_id="g") as consumer,
    ):
        await consumer.assign([A])
        consumer.seek(A, 0)
        await read(consumer, 1, within)
        queue = AsyncShareConsumer(broker.bootstrap, group_id="g")
        there = {
            (metric.group, metric.name)
            for client in (producer, consumer, queue)
            for metric in client.metrics()
        }
    table = re.findall(r"^\| `([a-z-]+-metrics)` \| (.+) \|$", DOCUMENT.read_text(encoding="utf-8"), re.M)
    assert {(group, name) for group, names in table for name in re.findall(r"`([a-z-]+)`", names)} == there
