"""DeleteRecords (21). Versions 0-2. Moves a partition's start up to an offset (-1: the high watermark).

Records that were acknowledged with acks=1, and are on their way to this broker's disk, are waited for first.

Answered once no replica has the records any more: live followers learn the new start offset with their next
fetch, and confirm it with the fetch after that. A partition that is not done when time is up gets
REQUEST_TIMED_OUT; the leader has deleted its records in any case.
"""

from __future__ import annotations

import asyncio
from functools import partial

from odradek.broker.fetch.end_offsets import FLUSH_MS_MAX, readable, unreadable
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.requests.dispatch import with_timeout
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.data.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.replication.leader_role import LeaderRole
from odradek.replication.partition import Partition
from odradek.runtime.turns import Turn

_TO_HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


async def handle(
    broker: BrokerContext, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    now = broker.runtime.clock.monotonic
    deadline = now() + request.timeout_ms / 1000
    turn = broker.turns.begin()
    waits = unreadable(await _led_here(broker, turn, request))
    if waits:
        await readable(waits, min(request.timeout_ms, FLUSH_MS_MAX))
    work = _Work()
    for topic in request.topics:
        results = await turn.map(partial(work.delete, broker, topic.name), topic.partitions)
        work.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    left_ms = int((deadline - now()) * 1000)
    return await work.finished(left_ms) if work.waiting else work.response()


async def _led_here(broker: BrokerContext, turn: Turn, request: DeleteRecordsRequest) -> list[Partition]:
    led = []
    for topic in request.topics:
        for wanted in topic.partitions:
            await turn.step()
            try:
                led.append(broker.replicas.leader(topic.name, wanted.partition_index))
            except KafkaError:
                continue  # the response reports it
    return led


class _Work:
    """The deletions of one request, and the futures that they wait for."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[LeaderRole, asyncio.Future[None]]] = {}
        """What results wait for, by the `id()` of the result, which lives as long as this object."""
        self.topics: list[DeleteRecordsTopicResult] = []

    def delete(
        self, broker: BrokerContext, topic: str, wanted: DeleteRecordsPartition
    ) -> DeleteRecordsPartitionResult:
        index = wanted.partition_index
        try:
            partition = broker.replicas.leader(topic, index)
            broker.replicas.check_writable_by_clients(partition)
            if "delete" not in partition.config.cleanup_policy:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION, f"topic {topic!r} does not have cleanup.policy=delete"
                )
            offset = partition.high_watermark if wanted.offset == _TO_HIGH_WATERMARK else wanted.offset
            leader = partition.leader()
            done = leader.delete_records(offset)
        except KafkaError as error:
            return _failed(index, error.code)
        deletion = _deleted(index, leader)
        if done is not None:
            self.waiting[id(deletion)] = (leader, done)
        return deletion

    async def finished(self, timeout_ms: int) -> DeleteRecordsResponse:
        futures = [future for _, future in self.waiting.values()]
        await with_timeout(_all_settled(futures), timeout_ms)
        for topic in self.topics:
            topic.partitions[:] = [self._outcome(partition) for partition in topic.partitions]
        return self.response()

    def _outcome(self, partition: DeleteRecordsPartitionResult) -> DeleteRecordsPartitionResult:
        waiting = self.waiting.get(id(partition))
        if waiting is None:
            return partition
        leader, future = waiting
        if not future.done() or future.cancelled():
            return _failed(partition.partition_index, ErrorCode.REQUEST_TIMED_OUT)
        error = future.exception()
        if isinstance(error, KafkaError):
            return _failed(partition.partition_index, error.code)
        return _deleted(partition.partition_index, leader)

    def response(self) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(topics=self.topics)


async def _all_settled(futures: list[asyncio.Future[None]]) -> None:
    await asyncio.gather(*futures, return_exceptions=True)


def _deleted(index: int, leader: LeaderRole) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=leader.low_watermark, error_code=ErrorCode.NONE
    )


def _failed(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=_NO_LOW_WATERMARK, error_code=code
    )


SERVED = ApiHandler(21, handle)
