"""Requests and batches that scripts make, short enough to read what is particular about each."""

from __future__ import annotations

import struct
from typing import Any

from tests.differential.asker import Asker
from tests.kit.requests import produce_request

from odradek.protocol.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.data.produce import ProduceRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.topics.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.records import BatchBuilder, Codec

A_TIME = 1_600_000_000_000
"""In the past, so that answers show it as it is."""

FETCH_BY_NAME = 12
LIST_OFFSETS_ALWAYS = 4


def topic(name: str, partitions: int = 1, copies: int = 1, **settings: str | None) -> CreatableTopic:
    """A topic to create; settings with underscores for dots."""
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()
    ]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=copies, configs=configs)


def create(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)


def make_topic(peer: Asker, name: str, partitions: int = 1, **settings: str) -> str:
    """Create a topic quietly, and wait until each of its partitions is led."""
    response = peer.quietly(create(topic(name, partitions, **settings)))
    assert response.topics[0].error_code == 0, response
    wait_until_led(peer, name, partitions)
    return name


def wait_until_led(peer: Asker, name: str, partitions: int = 1) -> None:
    request = list_offsets(name, *((partition, -1) for partition in range(partitions)))
    peer.until(
        lambda response: not any(partition.error_code for partition in response.topics[0].partitions), request
    )


def wait_until_gone(peer: Asker, name: str) -> None:
    peer.until(lambda response: response.topics[0].error_code == 3, metadata(name))


def metadata(*names: str | None, creating: bool = False, **more: Any) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=creating, **more)


def list_offsets(
    name: str, *wanted: tuple[int, int], epoch: int = -1, isolation: int = 0
) -> ListOffsetsRequest:
    """`wanted`: pairs of partition and timestamp."""
    partitions = [
        ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
        for partition, timestamp in wanted
    ]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name=name, partitions=partitions)]
    )


def produce(
    name: str, records: Any, *, partition: int = 0, acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    return produce_request(
        name, records, partition=partition, acks=acks, timeout_ms=10_000, transactional_id=transactional_id
    )


def batch(
    *values: str | None, codec: Codec = Codec.NONE, timestamp: int = A_TIME, key: str = "k", **producer: Any
) -> bytearray:
    """Records with times from `timestamp` on, a millisecond apart."""
    builder = BatchBuilder(codec)
    for number, value in enumerate(values):
        builder.append(timestamp + number, key.encode(), None if value is None else value.encode())
    return builder.build(**producer)


def with_field(data: bytearray, position: int, layout: str, value: int, *, crc: bool = True) -> bytearray:
    """A batch with one field of its header overwritten; with a checksum that fits unless `crc` is False."""
    from odradek.records.batch import crc_of

    changed = bytearray(data)
    struct.pack_into(f">{layout}", changed, position, value)
    if crc:
        struct.pack_into(">I", changed, 17, crc_of(changed))
    return changed


def fetch(
    name: str, offset: int, *, partition: int = 0, epoch: int = -1, last_epoch: int = -1, **more: Any
) -> FetchRequest:
    """Makes a fetch without a session, by the topic's name (version 12 and below)."""
    wanted = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=more.pop("partition_max_bytes", 1 << 20),
        current_leader_epoch=epoch,
        last_fetched_epoch=last_epoch,
    )
    options = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20} | more
    return FetchRequest(topics=[FetchTopic(topic=name, partitions=[wanted])], **options)
