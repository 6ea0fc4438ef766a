"""AlterShareGroupOffsets (91): a share group without members goes on from other offsets (KIP-932). Version 0.

A group that does not exist is made, as in Kafka. NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND for a group of another kind.
"""

from __future__ import annotations

from odradek.broker.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.coordinators.group_requests import has_partition
from odradek.groups.share.group import StateTopic
from odradek.groups.share.state_formats import SharePlace
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID
from odradek.protocol.messages.share.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    PartitionAnswer,
    PartitionAsked,
    TopicAnswer,
    TopicAsked,
)
from odradek.runtime.turns import Turn


async def handle(
    broker: BrokerContext, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    group_id = request.group_id
    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group's id may not be empty")
        await broker.groups.check_share_unused(group_id, may_be_new=True)
        begun = {
            image.topic_id: StateTopic(
                name=topic.topic_name,
                partitions=frozenset(
                    partition.partition_index
                    for partition in topic.partitions
                    if has_partition(broker, topic.topic_name, partition.partition_index)
                ),
            )
            for topic in request.topics
            if (image := broker.image.topics.get(topic.topic_name)) is not None
        }
        if begun:
            await broker.groups.begin_share_topics(group_id, begun)
    except KafkaError as error:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    turn = broker.turns.begin()
    responses = []
    for topic in request.topics:
        await turn.step()
        responses.append(await _topic(broker, turn, group_id, topic))
    return AlterShareGroupOffsetsResponse(responses=responses)


async def _topic(broker: BrokerContext, turn: Turn, group_id: str, topic: TopicAsked) -> TopicAnswer:
    image = broker.image.topics.get(topic.topic_name)
    topic_id = ZERO_UUID if image is None else image.topic_id
    partitions = []
    for partition in topic.partitions:
        await turn.step()
        place = SharePlace(group_id, topic_id, partition.partition_index)
        partitions.append(await _partition(broker, topic.topic_name, place, partition))
    return TopicAnswer(topic_name=topic.topic_name, topic_id=topic_id, partitions=partitions)


async def _partition(
    broker: BrokerContext, topic: str, place: SharePlace, asked: PartitionAsked
) -> PartitionAnswer:
    answer = PartitionAnswer(partition_index=asked.partition_index)
    try:
        if not has_partition(broker, topic, asked.partition_index):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{asked.partition_index}"
            )
        if asked.start_offset < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{asked.start_offset} is no offset to begin at")
        await broker.shares.begin_at(place, asked.start_offset)
    except KafkaError as error:
        return answer.replace(error_code=error.code, error_message=error.message)
    return answer


SERVED = ApiHandler(91, handle)
