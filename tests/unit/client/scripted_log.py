"""One partition's records at a scripted broker, and consumers of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from odradek.client.consumer.aio import AsyncConsumer
from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.data.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.records import BatchBuilder, assign

Within = Callable[[Awaitable[Any]], Awaitable[Any]]
QUICK: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1}
A = TopicPartition("t", 0)


class Log:
    """One partition's records, and the answers to Fetch and ListOffsets about them. Offsets are values."""

    def __init__(self, broker: Any) -> None:
        self.start, self.end, self.epoch = 0, 0, 3
        self.batch_records = 3
        self.tombstones: set[int] = set()
        self._broker = broker
        self.sessions = False
        broker.on["Fetch"] = self.fetch
        broker.on["ListOffsets"] = self.list_offsets

    def fetch(self, asked: Any) -> FetchResponse:
        topics = [
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[self.partition(partition) for partition in topic.partitions],
            )
            for topic in asked.message.topics
        ]
        return FetchResponse(session_id=9 if self.sessions else 0, responses=topics)

    def partition(self, asked: Any) -> PartitionData:
        offset = asked.fetch_offset
        if asked.current_leader_epoch not in (-1, self._broker.leader_epoch):
            return self.refuse(asked, ErrorCode.FENCED_LEADER_EPOCH)
        if not self.start <= offset <= self.end:
            return self.refuse(asked, ErrorCode.OFFSET_OUT_OF_RANGE)
        return PartitionData(
            partition_index=asked.partition,
            high_watermark=self.end,
            log_start_offset=self.start,
            records=b"".join(self.batches_from(offset)),
        )

    def refuse(self, asked: Any, code: ErrorCode) -> PartitionData:
        return PartitionData(partition_index=asked.partition, error_code=code, high_watermark=-1, records=b"")

    def batches_from(self, offset: int) -> list[bytearray]:
        first = offset - offset % self.batch_records
        return [self.batch(number) for number in range(first, self.end, self.batch_records)][:2]

    def batch(self, first: int) -> bytearray:
        builder = BatchBuilder()
        for offset in range(first, min(first + self.batch_records, self.end)):
            value = None if offset in self.tombstones else b"%d" % offset
            builder.append(1_000 + offset, None, value)
        built = builder.build()
        assign(built, first, self.epoch)
        return built

    def list_offsets(self, asked: Any) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[self.offset(asked, partition) for partition in topic.partitions],
                )
                for topic in asked.message.topics
            ]
        )

    def offset(self, asked: Any, question: Any) -> ListOffsetsPartitionResponse:
        wanted = question.timestamp
        offset = {-1: self.end, -2: self.start}.get(wanted, max(wanted - 1_000, self.start))
        if wanted >= 0 and offset >= self.end:
            offset = -1
        epoch = {"leader_epoch": self.epoch} if asked.version >= 4 else {}
        return ListOffsetsPartitionResponse(partition_index=question.partition_index, offset=offset, **epoch)


async def read(consumer: AsyncConsumer, count: int, within: Within) -> list[int]:
    """Offsets of the next `count` records, whose values must agree."""
    results: list[int] = []
    while len(results) < count:
        for record in await within(consumer.poll(10)):
            assert record.value == b"%d" % record.offset
            results.append(record.offset)
    return results


def consumer_of(broker: Any, **more: Any) -> AsyncConsumer:
    return AsyncConsumer(
        broker.bootstrap, **{"auto_offset_reset": "earliest", "fetch_max_wait_ms": 1, **QUICK, **more}
    )
