"""Requests that are small to send and large to serve. One name each; `attack(name)` gives the bytes, size prefixes included.

`filled` makes such a request for any API from its declaration alone: a new API does not need to add a frame.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import count
from typing import Any, Final
from uuid import UUID

from tests.kit.wire import request_frame

from odradek.protocol import Message, Struct
from odradek.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.topics.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.schema import ArrayKind, Field, Kind, StructKind
from odradek.records import BatchBuilder, Codec

TOPIC: Final = "t"
"""The topic that attacks name: `PARTITION_COUNT` partitions."""
PARTITION_COUNT: Final = 20
_BROKER: Final = 4


def describe_configs(resource_count: int, broker_id: int = 1) -> bytes:
    """One resource, named again and again."""
    resource = DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(broker_id), configuration_keys=None
    )
    return request_frame(DescribeConfigsRequest(resources=[resource] * resource_count), 4)


def write_txn_markers(marker_count: int) -> bytes:
    markers = [
        WritableTxnMarker(
            producer_id=number,
            producer_epoch=0,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
            coordinator_epoch=0,
        )
        for number in range(marker_count)
    ]
    return request_frame(WriteTxnMarkersRequest(markers=markers), 1)


def elect_leaders(partition_count: int) -> bytes:
    wanted = [TopicPartitions(topic=TOPIC, partitions=list(range(partition_count)))]
    request = ElectLeadersRequest(election_type=0, topic_partitions=wanted, timeout_ms=1000)
    return request_frame(request, 2)


def alter_partition_reassignments(partition_count: int) -> bytes:
    partitions = [
        ReassignablePartition(partition_index=index, replicas=[1]) for index in range(partition_count)
    ]
    topics = [ReassignableTopic(name=TOPIC, partitions=partitions)]
    request = AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=topics)
    return request_frame(request, 0)


def create_topics(topic_count: int) -> bytes:
    """Returns a request that only asks whether the topics could be made: no topic is left."""
    topics = [
        CreatableTopic(name=f"n{number:06}", num_partitions=1, replication_factor=1)
        for number in range(topic_count)
    ]
    return request_frame(CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True), 5)


def metadata(topic_count: int) -> bytes:
    topics = [MetadataRequestTopic(name=f"m{number:06}") for number in range(topic_count)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return request_frame(request, 9)


def pipelined(request_count: int) -> bytes:
    """Many small requests at once on one connection."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    return request_frame(request, 9) * request_count


def gzip_produce(expanded_bytes: int = 14 << 20, partition_count: int = PARTITION_COUNT) -> bytes:
    """A batch for each partition, each small on the wire and large inside."""
    builder = BatchBuilder(Codec.GZIP)
    for _ in range(expanded_bytes // 140):
        builder.append(1_000_000, None, b"x" * 128, [])
    batch = bytes(builder.build())
    data = [PartitionProduceData(index=index, records=batch) for index in range(partition_count)]
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )
    return request_frame(request, 9)


ATTACKS: Final[dict[str, Callable[[], bytes]]] = {
    "describe_configs_20_kB": lambda: describe_configs(2500),
    "describe_configs_5_MB": lambda: describe_configs(600_000),
    "write_txn_markers_3_MB": lambda: write_txn_markers(85_000),
    "elect_leaders_3_MB": lambda: elect_leaders(750_000),
    "alter_partition_reassignments_3_MB": lambda: alter_partition_reassignments(230_000),
    "create_topics_3_MB": lambda: create_topics(130_000),
    "metadata_3_MB": lambda: metadata(350_000),
    "pipelined_100_000": lambda: pipelined(100_000),
    "gzip_produce": gzip_produce,
}
"""By the names of the tables that are printed about them."""


class Shape(Enum):
    """How the arrays of a generated request are filled."""

    EQUAL = "equal"
    """The outermost array with one element, again and again."""
    DIFFERENT = "different"
    """The outermost array with elements that differ in every number and name."""
    DEEP = "deep"
    """One element outside, and the array inside it full of elements that differ."""


def arrays_of(cls: type[Struct], version: int) -> list[Field]:
    """The arrays of a struct in one version."""
    return [field for field in cls.FIELDS if version in field.versions and isinstance(field.kind, ArrayKind)]


def depth_of(cls: type[Struct], version: int) -> int:
    """How many arrays lie within one another."""
    return max(
        (
            1 + (depth_of(element.cls, version) if isinstance(element, StructKind) else 0)
            for element in (_element(field) for field in arrays_of(cls, version))
        ),
        default=0,
    )


def filled(cls: type[Message], version: int, element_count: int, shape: Shape) -> Message:
    """A request whose arrays hold `element_count` elements altogether, or a little more."""
    return _filled(cls, version, element_count, shape, count())


def _filled(cls: Any, version: int, element_count: int, shape: Shape, numbers: Iterator[int]) -> Any:
    values: dict[str, Any] = {}
    for field in cls.FIELDS:
        if version not in field.versions or (version in field.tagged and not _is_array(field)):
            continue
        if isinstance(field.kind, ArrayKind):
            values[field.name] = _array(_element(field), version, element_count, shape, numbers)
        elif isinstance(field.kind, StructKind):
            values[field.name] = _filled(field.kind.cls, version, 1, shape, numbers)
        elif version not in field.nullable:
            values[field.name] = _plain(field.kind, next(numbers))
    return cls(**values)


def _array(
    element: Kind[Any], version: int, element_count: int, shape: Shape, numbers: Iterator[int]
) -> list[Any]:
    def made(inner_count: int) -> Any:
        if isinstance(element, StructKind):
            return _filled(element.cls, version, inner_count, shape, numbers)
        return _plain(element, next(numbers))

    if shape is Shape.EQUAL:
        return [made(1)] * element_count
    holds_arrays = isinstance(element, StructKind) and arrays_of(element.cls, version)
    if shape is Shape.DEEP and holds_arrays:
        return [made(element_count)]
    return [made(1) for _ in range(element_count)]


def _plain(kind: Kind[Any], number: int) -> Any:
    match kind.name:
        case "string":
            return f"n{number}"
        case "uuid":
            return UUID(int=number + 1)
        case "bytes" | "records":
            return b"%d" % number
        case "bool":
            return bool(number % 2)
        case "float64":
            return float(number)
        case "int8":
            return number % 8
        case "int16" | "uint16":
            return number % 1000
    return number


def _element(field: Field) -> Kind[Any]:
    assert isinstance(field.kind, ArrayKind)
    element: Kind[Any] = field.kind.element
    return element


def _is_array(field: Field) -> bool:
    return isinstance(field.kind, ArrayKind)


def bomb(expanded_bytes: int) -> bytes:
    """Zeros, compressed a thousandfold."""
    return gzip.compress(bytes(expanded_bytes))
