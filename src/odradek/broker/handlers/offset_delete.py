"""OffsetDelete (47): forget what a group committed for some partitions (KIP-496). Version 0."""

from __future__ import annotations

from odradek.broker.context import Circumstances, Parts, Served
from odradek.broker.group_requests import has_partition
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(
    parts: Parts, circumstances: Circumstances, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    places = [
        (topic.name, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
        if has_partition(parts, topic.name, one.partition_index)
    ]
    try:
        verdicts = await parts.groups.delete_offsets(request.group_id, places)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=one.partition_index,
                        error_code=verdicts.get(
                            (topic.name, one.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


SERVED = Served(47, handle)
