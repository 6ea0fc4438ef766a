"""DescribeShareGroupOffsets (90): where share groups are in partitions (KIP-932). Versions 0-1; with the lag from v1.

A partition that the group has not read has start offset -1, as has one that does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.broker.fetch.end_offsets import high_watermark_of
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.image import SHARE_GROUP_STATE
from odradek.groups.share.state import UNKNOWN_OFFSET
from odradek.groups.share.state_formats import SharePartitionKey
from odradek.model.errors import KafkaError
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.protocol.messages.share.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from odradek.runtime.turns import Turn

_SINCE_LAG = 1


async def handle(
    broker: BrokerContext, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    with_lag = context.api_version >= _SINCE_LAG
    turn = broker.turns.begin()
    groups = []
    for requested in request.groups:
        await turn.step()
        groups.append(await _group(broker, turn, requested, with_lag=with_lag))
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _group(
    broker: BrokerContext, turn: Turn, requested: DescribeShareGroupOffsetsRequestGroup, *, with_lag: bool
) -> DescribeShareGroupOffsetsResponseGroup:
    try:
        if requested.topics is None:
            wanted: list[tuple[str, Sequence[int]]] = [
                (topic.name, sorted(topic.partitions))
                for topic in (await broker.groups.share_topics(requested.group_id)).values()
            ]
        else:
            wanted = [(topic.topic_name, topic.partitions) for topic in requested.topics]
        topics = []
        for name, partitions in wanted:
            await turn.step()
            topics.append(await _topic(broker, turn, requested.group_id, name, partitions, with_lag=with_lag))
    except KafkaError as error:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=requested.group_id, error_code=error.code, error_message=error.message
        )
    return DescribeShareGroupOffsetsResponseGroup(group_id=requested.group_id, topics=topics)


async def _topic(
    broker: BrokerContext, turn: Turn, group_id: str, name: str, partitions: Sequence[int], *, with_lag: bool
) -> DescribeShareGroupOffsetsResponseTopic:
    image = broker.image.topics.get(name)
    topic_id = ZERO_UUID if image is None else image.topic_id
    answers = []
    for index in partitions:
        await turn.step()
        answers.append(
            await _partition(broker, name, SharePartitionKey(group_id, topic_id, index), with_lag=with_lag)
        )
    return DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=answers)


async def _partition(
    broker: BrokerContext, topic: str, partition_key: SharePartitionKey, *, with_lag: bool
) -> DescribeShareGroupOffsetsResponsePartition:
    unread = DescribeShareGroupOffsetsResponsePartition(
        partition_index=partition_key.partition, start_offset=UNKNOWN_OFFSET
    )
    if partition_key.topic_id == ZERO_UUID or not _is_kept(broker):
        return unread
    try:
        state = await broker.shares.keeper.summary(partition_key)
        if state.start_offset == UNKNOWN_OFFSET:
            return unread
        response = unread.replace(start_offset=state.start_offset, leader_epoch=state.leader_epoch)
        if not with_lag:
            return response
        end_offset = await high_watermark_of(broker, TopicPartition(topic, partition_key.partition))
        lag = end_offset - state.start_offset - state.complete_count
        return response.replace(lag=max(lag, 0))
    except KafkaError as error:
        return unread.replace(error_code=error.code, error_message=error.message)


def _is_kept(broker: BrokerContext) -> bool:
    """Tells whether any share group has ever read: without the topic there is nothing, and no reason to make it."""
    return SHARE_GROUP_STATE in broker.image.topics


SERVED = ApiHandler(90, handle)
