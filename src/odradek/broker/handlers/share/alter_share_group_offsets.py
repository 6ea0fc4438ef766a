"""AlterShareGroupOffsets (91): sets the start offsets of a share group without members (KIP-932). Version 0.

A group that does not exist is made, as in Kafka. NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND for a group of another kind.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.broker.handlers.group_requests import has_partition
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.groups.share.group import StateTopic
from odradek.groups.share.state_formats import SharePartitionKey
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID
from odradek.protocol.messages.share.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from odradek.runtime.turns import Turn


async def handle(
    broker: BrokerContext, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    group_id = request.group_id
    turn = broker.turns.begin()
    wanted = await _wanted(turn, request.topics)
    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group's id may not be empty")
        await broker.groups.check_share_unused(group_id, may_be_new=True)
        begun = {}
        for name, offsets in wanted.items():
            await turn.step()
            image = broker.image.topics.get(name)
            if image is not None:
                partitions = frozenset(index for index in offsets if has_partition(broker, name, index))
                begun[image.topic_id] = StateTopic(name=name, partitions=partitions)
        if begun:
            await broker.groups.begin_share_topics(group_id, begun)
    except KafkaError as error:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    responses = [await _topic(broker, turn, group_id, name, offsets) for name, offsets in wanted.items()]
    return AlterShareGroupOffsetsResponse(responses=responses)


async def _wanted(
    turn: Turn, topics: Sequence[AlterShareGroupOffsetsRequestTopic]
) -> dict[str, dict[int, int]]:
    """Returns the offset of each partition of each topic. Of a partition that is named again, the last one holds: each is a
    write, and a request of 3 MB can name one partition 230,000 times.
    """
    wanted: dict[str, dict[int, int]] = {}
    for topic in topics:
        await turn.step()
        offsets = wanted.setdefault(topic.topic_name, {})
        for partition in topic.partitions:
            await turn.step()
            offsets[partition.partition_index] = partition.start_offset
    return wanted


async def _topic(
    broker: BrokerContext, turn: Turn, group_id: str, name: str, offsets: dict[int, int]
) -> AlterShareGroupOffsetsResponseTopic:
    await turn.step()
    image = broker.image.topics.get(name)
    topic_id = ZERO_UUID if image is None else image.topic_id

    async def begun(partition: tuple[int, int]) -> AlterShareGroupOffsetsResponsePartition:
        index, start_offset = partition
        return await _partition(broker, name, SharePartitionKey(group_id, topic_id, index), start_offset)

    partitions = await turn.gather(begun, list(offsets.items()))
    return AlterShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=partitions)


async def _partition(
    broker: BrokerContext, topic: str, partition_key: SharePartitionKey, start_offset: int
) -> AlterShareGroupOffsetsResponsePartition:
    response = AlterShareGroupOffsetsResponsePartition(partition_index=partition_key.partition)
    try:
        if not has_partition(broker, topic, partition_key.partition):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no partition {topic}-{partition_key.partition}",
            )
        if start_offset < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{start_offset} is no offset to begin at")
        await broker.shares.begin_at(partition_key, start_offset)
    except KafkaError as error:
        return response.replace(error_code=error.code, error_message=error.message)
    return response


SERVED = ApiHandler(91, handle)
