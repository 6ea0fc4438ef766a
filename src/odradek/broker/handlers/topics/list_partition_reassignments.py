"""ListPartitionReassignments (46). Version 0: the moves under way, all of them or those that are asked for (KIP-455).

A partition that is not being moved is left out, whether or not it exists, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.image import ClusterImage, PartitionImage
from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.topics.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(
    broker: BrokerContext, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    image = broker.controller.latest
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for name, partition in _moves(image, _requested(image, request)):
        topics.setdefault(name.topic, []).append(_ongoing(name.partition, partition))
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=[
            OngoingTopicReassignment(name=name, partitions=partitions) for name, partitions in topics.items()
        ],
    )


def _requested(image: ClusterImage, request: ListPartitionReassignmentsRequest) -> Iterator[TopicPartition]:
    if request.topics is None:
        for topic in image.topics.values():
            for index in range(len(topic.partitions)):
                yield TopicPartition(topic.name, index)
        return
    for wanted in request.topics:
        for index in wanted.partition_indexes:
            yield TopicPartition(wanted.name, index)


def _moves(
    image: ClusterImage, names: Iterable[TopicPartition]
) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    for name in dict.fromkeys(names):
        topic = image.topics.get(name.topic)
        if topic is not None and 0 <= name.partition < len(topic.partitions):
            partition = topic.partitions[name.partition]
            if partition.is_reassigned:
                yield name, partition


def _ongoing(index: int, partition: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )


SERVED = ApiHandler(46, handle)
