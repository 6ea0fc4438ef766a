"""Produce (0): append batches to partitions.

Versions 3-13 (0-2 are listed for librdkafka's sake and refused); topic ids from v13. acks=0 has no response: an error there
can only be told by closing the connection. acks=1 answers once the batch is in the log. acks=all answers once it is below
the high watermark: on disk, unless `flush.before.ack` is off. Not here yet: transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from odradek.broker.context import Circumstances, Parts, Served
from odradek.broker.dispatch import closing_error, with_timeout
from odradek.broker.intake import Terms, checked_batches
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.replication.partition import Partition

_SINCE_TOPIC_IDS = 13
_OLDEST_SERVED = 3
_ALL = -1


def handle(
    parts: Parts, circumstances: Circumstances, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    refusal = _refusal(circumstances, request)
    work = _Work(parts, circumstances, request.acks)
    topics = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                _failed(data.index, refusal) if refusal else work.append(topic, data)
                for data in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    if request.acks == 0:
        if work.first_error or refusal:
            raise closing_error(work.first_error or refusal)  # type: ignore[arg-type]
        return None
    if work.waiting:
        return work.acknowledged(topics, request.timeout_ms)
    return ProduceResponse(responses=topics)


def _refusal(circumstances: Circumstances, request: ProduceRequest) -> KafkaError | None:
    if circumstances.api_version < _OLDEST_SERVED:
        return KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "Produce before version 3 carries old message formats"
        )
    if request.acks not in (0, 1, _ALL):
        return KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it must be 0, 1 or -1 (all)"
        )
    if request.transactional_id is not None:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "this broker does not serve transactions yet")
    return None


class _Work:
    """One request's appends, and the acknowledgements that they wait for."""

    def __init__(self, parts: Parts, circumstances: Circumstances, acks: int) -> None:
        self._parts = parts
        self._circumstances = circumstances
        self._acks = acks
        self._now_ms = parts.runtime.clock.wall_ms()
        self.waiting: dict[int, tuple[Partition, asyncio.Future[None]]] = {}
        """By the identity of the response that waits, which is alive for as long as this is."""
        self.first_error: KafkaError | None = None

    def append(self, topic: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse:
        try:
            return self._append(topic, data)
        except KafkaError as error:
            self.first_error = self.first_error or error
            return _failed(data.index, error)

    def _append(self, topic: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse:
        by_id = self._circumstances.api_version >= _SINCE_TOPIC_IDS
        replicas = self._parts.replicas
        partition = (
            replicas.leader_by_id(topic.topic_id, data.index)
            if by_id
            else replicas.leader(topic.name, data.index)
        )
        replicas.check_writable_by_clients(partition)
        if self._acks == _ALL:
            partition.check_in_sync()
        config = partition.config
        terms = Terms(config=config, api_version=self._circumstances.api_version, now_ms=self._now_ms)
        batches = checked_batches(data.records, terms)
        result = partition.append(batches, now_ms=self._now_ms)
        response = PartitionProduceResponse(
            index=data.index,
            error_code=ErrorCode.NONE,
            base_offset=result.first_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=partition.start_offset,
        )
        if self._acks == _ALL:
            future = partition.acknowledgement(result.last_offset)
            if future is not None:
                self.waiting[id(response)] = (partition, future)
        return response

    async def acknowledged(self, topics: list[TopicProduceResponse], timeout_ms: int) -> ProduceResponse:
        """The response, once every append is durable, failed, or out of time."""
        futures = [future for _, future in self.waiting.values()]
        if len(futures) == 1:
            await _settled(futures[0], timeout_ms)
        else:
            await with_timeout(_all_settled(futures), timeout_ms)
        for topic in topics:
            topic.partition_responses[:] = [self._outcome(response) for response in topic.partition_responses]
        return ProduceResponse(responses=topics)

    def _outcome(self, response: PartitionProduceResponse) -> PartitionProduceResponse:
        waiting = self.waiting.get(id(response))
        if waiting is None:
            return response
        partition, future = waiting
        if not future.done() or future.cancelled():
            message = f"{partition.name}: not yet durable when the request's time was up"
            return _failed(response.index, KafkaError(ErrorCode.REQUEST_TIMED_OUT, message))
        error = future.exception()
        return _failed(response.index, error) if isinstance(error, KafkaError) else response


async def _settled(future: asyncio.Future[None], timeout_ms: int) -> None:
    """Wait for one future without raising what it holds; cheaper than the general case."""
    if not future.done():
        loop = asyncio.get_running_loop()
        timer = loop.call_later(max(timeout_ms, 0) / 1000, future.cancel)
        try:
            await future
        except (KafkaError, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        finally:
            timer.cancel()


async def _all_settled(futures: list[asyncio.Future[None]]) -> None:
    await asyncio.gather(*futures, return_exceptions=True)


def _failed(index: int, error: KafkaError) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, log_start_offset=-1, error_message=error.message
    )


SERVED = Served(0, handle)
