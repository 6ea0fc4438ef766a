"""Records for a partition that the producer does not know: it may be new, or not there at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

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
