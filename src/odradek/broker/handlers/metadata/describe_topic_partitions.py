"""DescribeTopicPartitions (75). Version 0: topics in order of name, page by page, with a cursor (KIP-966)."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

from odradek.broker.handlers.metadata.metadata import alive_brokers, is_valid_name, leader_and_offline
from odradek.broker.requests.authorization import TOPIC_OPERATIONS
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.image import NO_LEADER, TopicImage
from odradek.model.errors import ErrorCode
from odradek.model.ids import BrokerId
from odradek.protocol.messages.metadata.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    turn = broker.turns.begin()
    asked = await turn.unique(await turn.map(attrgetter("name"), request.topics))
    names = await turn.sort(asked or list(broker.image.topics))
    cursor = request.cursor
    first_partition = 0
    if cursor is not None:
        first = bisect_left(names, cursor.topic_name)
        is_named = first < len(names) and names[first] == cursor.topic_name
        if cursor.partition_index < 0 or (request.topics and not is_named):
            refused = await turn.map(lambda topic: _refused(topic.name), request.topics)
            return DescribeTopicPartitionsResponse(topics=refused)
        names = names[first:]
        if names and names[0] == cursor.topic_name:
            first_partition = cursor.partition_index
    room = min(
        max(request.response_partition_limit, 1), broker.config.server.max_request_partition_size_limit
    )
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        await turn.step()
        if room == 0:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=0)
            )
        topic = broker.image.topics.get(name)
        if topic is None:
            topics.append(_missing(name))
            continue
        first_partition = min(first_partition, len(topic.partitions))
        end = min(first_partition + room, len(topic.partitions))
        topics.append(_found(broker, topic, range(first_partition, end)))
        room -= end - first_partition
        if end < len(topic.partitions):
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=end)
            )
        first_partition = 0
    return DescribeTopicPartitionsResponse(topics=topics)


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _refused(name: str) -> DescribeTopicPartitionsResponseTopic:
    """A cursor names a topic that is asked for, and a partition that can be."""
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name)


def _found(broker: BrokerContext, topic: TopicImage, indexes: range) -> DescribeTopicPartitionsResponseTopic:
    alive = alive_brokers(broker)
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[_partition(broker, topic, index, alive) for index in indexes],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    broker: BrokerContext, topic: TopicImage, index: int, alive: frozenset[BrokerId]
) -> DescribeTopicPartitionsResponsePartition:
    image = topic.partitions[index]
    leader, offline = leader_and_offline(broker, topic, index, alive)
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE,
        partition_index=index,
        leader_id=leader,
        leader_epoch=image.leader_epoch,
        replica_nodes=list(image.replicas),
        isr_nodes=list(image.isr),
        eligible_leader_replicas=list(image.eligible),
        last_known_elr=[],
        offline_replicas=offline,
    )


SERVED = ApiHandler(75, handle)
