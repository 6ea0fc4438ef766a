"""Records for a partition that the producer does not know: it may be new, or not there at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

from odradek.client.producer.aio import AsyncProducer
from odradek.model.errors import KafkaError

Within = Callable[[Awaitable[Any]], Awaitable[Any]]
QUICK: dict[str, Any] = {
    "linger_ms": 0,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 2,
    "reconnect_backoff_ms": 1,
}


async def test_a_partition_that_is_new_is_asked_for_once(broker: Any, within: Within) -> None:
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        await within(await producer.send("t", b"v", partition=0))
        broker.topics = {"t": 4}
        assert (await within(await producer.send("t", b"v", partition=3))).partition == 3
        asked = len(broker.requests("Metadata"))
        with pytest.raises(KafkaError, match="topic 't' has partitions 0 to 3, not 4"):
            await producer.send("t", b"v", partition=4)
        assert len(broker.requests("Metadata")) == asked + 1
        with pytest.raises(KafkaError, match="a partition is 0 or more, not -1"):
            await producer.send("t", b"v", partition=-1)
        assert len(broker.requests("Metadata")) == asked + 1


async def test_a_partition_that_does_not_exist_is_refused_at_once(broker: Any) -> None:
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        with pytest.raises(KafkaError, match="topic 't' has partitions 0 to 0, not 3"):
            await producer.send("t", b"", partition=3)


async def test_rows_for_a_partition_that_is_new_are_asked_for_once(broker: Any, within: Within) -> None:
    def rows(*partitions: int | None) -> pa.RecordBatch:
        values = [b"v"] * len(partitions)
        return pa.RecordBatch.from_pydict({"value": values, "partition": list(partitions)})

    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        await producer.send_arrow("t", rows(0, None))
        await within(producer.flush())
        asked = len(broker.requests("Metadata"))
        broker.topics = {"t": 4}
        await producer.send_arrow("t", rows(0, 3, None))
        await within(producer.flush())
        assert len(broker.requests("Metadata")) == asked + 1
        with pytest.raises(KafkaError, match="topic 't' has partitions 0 to 3, not 9"):
            await producer.send_arrow("t", rows(9))
    written = {
        partition.index
        for request in broker.requests("Produce")
        for topic in request.topic_data
        for partition in topic.partition_data
    }
    assert written >= {0, 3}
