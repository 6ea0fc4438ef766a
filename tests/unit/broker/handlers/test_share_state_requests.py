"""Requests for the state of many partitions: as many as may share a flush are begun before the first is waited for."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from odradek.broker.handlers.share_state_requests import for_each_partition
from odradek.broker.requests.context import BrokerContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.share.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from odradek.runtime.prompt import PromptFuture
from odradek.runtime.turns import Turns

TOPIC = UUID(int=7)
AT_ONCE = 500


class FlushedTogether:
    """Shards whose records are durable only when `AT_ONCE` operations wait, or none is begun any more."""

    def __init__(self) -> None:
        self.waiting: list[PromptFuture[None]] = []
        self.flushes = 0

    def for_key(self, key: str) -> FlushedTogether:
        return self

    def execute(self, operation: Any) -> PromptFuture[None]:
        reply: PromptFuture[None] = PromptFuture()
        self.waiting.append(reply)
        if len(self.waiting) == AT_ONCE:
            self.flush()
        return reply

    def flush(self) -> None:
        self.flushes += 1
        for reply in self.waiting:
            reply.set_result(None)
        self.waiting.clear()


def broker(shards: FlushedTogether) -> BrokerContext:
    return cast(
        BrokerContext,
        SimpleNamespace(
            kinds=SimpleNamespace(shares=SimpleNamespace(shards=shards)), turns=Turns(time.monotonic)
        ),
    )


def request(count: int) -> InitializeShareGroupStateRequest:
    partitions = [PartitionData(partition=number) for number in range(count)]
    return InitializeShareGroupStateRequest(
        group_id="g", topics=[InitializeStateData(topic_id=TOPIC, partitions=partitions)]
    )


def of_topic(*, topic_id: UUID, partitions: list[Any]) -> tuple[UUID, list[Any]]:
    return topic_id, partitions


async def test_operations_share_flushes() -> None:
    shards = FlushedTogether()
    entries = for_each_partition(
        broker(shards),
        request(4 * AT_ONCE),
        lambda store, place, asked: store.initialize(place, 0, 0),
        lambda partition, outcome: (partition, outcome),
        of_topic,
    )
    outcomes = await asyncio.wait_for(entries, timeout=60)
    assert outcomes == [(TOPIC, [(number, None) for number in range(4 * AT_ONCE)])]
    assert shards.flushes == 4


async def test_what_is_refused_is_reported_in_its_place() -> None:
    shards = FlushedTogether()
    asyncio.get_running_loop().call_later(0.01, shards.flush)

    def odd_is_refused(store: Any, place: Any, asked: PartitionData) -> Any:
        if asked.partition % 2:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, "odd")
        return store.initialize(place, 0, 0)

    ((_, results),) = await for_each_partition(
        broker(shards),
        request(5),
        odd_is_refused,
        lambda partition, outcome: (partition, outcome and outcome.code),
        of_topic,
    )
    fenced = ErrorCode.FENCED_STATE_EPOCH
    assert results == [(0, None), (1, fenced), (2, None), (3, fenced), (4, None)]
