"""DeleteShareGroupState (86): forget how far a share group is in partitions (KIP-932). Between brokers. Version 0."""

from __future__ import annotations

from functools import partial

from odradek.broker.context import Circumstances, Parts, Served
from odradek.broker.share_state_answers import kept
from odradek.groups.share.state import ShareStates
from odradek.groups.share.state_formats import SharePlace
from odradek.model.errors import KafkaError
from odradek.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)


async def handle(
    parts: Parts, circumstances: Circumstances, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    outcomes = await kept(
        parts,
        [
            (
                place := SharePlace(request.group_id, topic.topic_id, one.partition),
                partial(ShareStates.delete, place=place),
            )
            for topic in request.topics
            for one in topic.partitions
        ],
    )
    return DeleteShareGroupStateResponse(
        results=[
            DeleteStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    _result(
                        one.partition, outcomes[SharePlace(request.group_id, topic.topic_id, one.partition)]
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _result(partition: int, outcome: KafkaError | None) -> PartitionResult:
    if outcome is None:
        return PartitionResult(partition=partition)
    return PartitionResult(partition=partition, error_code=outcome.code, error_message=outcome.message)


SERVED = Served(86, handle)
