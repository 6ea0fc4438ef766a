"""OffsetDelete (47): forget what a group committed for some partitions (KIP-496). Version 0."""

from __future__ import annotations

from functools import partial

from odradek.broker.handlers.group_requests import OFFSETS_AT_ONCE, has_partition
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.groups.shard.offset_table import PartitionName
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.runtime.turns import slices


async def handle(
    broker: BrokerContext, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    turn = broker.turns.begin()
    partition_names: list[PartitionName] = []
    for topic in request.topics:
        for part in slices(topic.partitions, OFFSETS_AT_ONCE):
            await turn.step()
            partition_names += [
                (topic.name, partition.partition_index)
                for partition in part
                if has_partition(broker, topic.name, partition.partition_index)
            ]
    verdicts: dict[PartitionName, ErrorCode] = {}
    try:
        for some in slices(partition_names, OFFSETS_AT_ONCE):
            await turn.step()
            verdicts |= await broker.groups.delete_offsets(request.group_id, some)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    topics = []
    for topic in request.topics:
        partitions = await turn.map(partial(_answer, verdicts, topic.name), topic.partitions)
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    return OffsetDeleteResponse(topics=topics)


def _answer(
    verdicts: dict[PartitionName, ErrorCode], topic: str, requested: OffsetDeleteRequestPartition
) -> OffsetDeleteResponsePartition:
    code = verdicts.get((topic, requested.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return OffsetDeleteResponsePartition(partition_index=requested.partition_index, error_code=code)


SERVED = ApiHandler(47, handle)
