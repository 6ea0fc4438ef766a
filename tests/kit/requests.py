"""Batches, and requests about one partition, that tests of all folders send."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack
from uuid import UUID

from odradek.protocol.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.records import BatchBuilder, Codec


class ProducerFields(TypedDict, total=False):
    """The fields of a batch that an idempotent or transactional producer fills in."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool


def batch_of(
    values: list[bytes],
    *,
    codec: Codec = Codec.NONE,
    timestamp: int = 1_700_000_000_000,
    **producer: Unpack[ProducerFields],
) -> bytearray:
    """Returns a batch of records with the key `k`, one millisecond apart."""
    builder = BatchBuilder(codec)
    for number, value in enumerate(values):
        builder.append(timestamp + number, b"k", value)
    return builder.build(**producer)


def produce_request(
    topic: str | UUID,
    records: Any,
    *,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 5000,
    **fields: Any,
) -> ProduceRequest:
    """Writes to one partition of a topic, by its name or its id. `fields`: other fields of the request."""
    data = [PartitionProduceData(index=partition, records=records)]
    if isinstance(topic, UUID):
        topic_data = TopicProduceData(topic_id=topic, partition_data=data)
    else:
        topic_data = TopicProduceData(name=topic, partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic_data], **fields)


def fetch_request(
    topic: str | UUID,
    offset: int,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    **fields: Any,
) -> FetchRequest:
    """Reads one partition of a topic, by its name or its id. `fields`: other fields of the request, which has no session."""
    wanted = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=current_leader_epoch,
    )
    if isinstance(topic, UUID):
        fetch_topic = FetchTopic(topic_id=topic, partitions=[wanted])
    else:
        fetch_topic = FetchTopic(topic=topic, partitions=[wanted])
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=[fetch_topic], **fields
    )
