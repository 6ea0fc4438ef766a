"""WriteShareGroupState (85): a partition's leader has a share group's progress kept (KIP-932). Between brokers. Versions 0-1.

FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH. How much is done with above the start (v1) is counted here, from the batches.
"""

from __future__ import annotations

from functools import partial

from odradek.broker.context import Circumstances, Parts, Served
from odradek.broker.share_state_answers import kept
from odradek.groups.share.state import ShareStates, StateChange
from odradek.groups.share.state_formats import SharePlace, unlisted
from odradek.model.errors import KafkaError
from odradek.protocol.messages.write_share_group_state import (
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)


async def handle(
    parts: Parts, circumstances: Circumstances, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    outcomes = await kept(
        parts,
        [
            (
                place := SharePlace(request.group_id, topic.topic_id, one.partition),
                partial(
                    ShareStates.write,
                    place=place,
                    change=StateChange(
                        one.state_epoch,
                        one.leader_epoch,
                        one.start_offset,
                        unlisted(one.state_batches),
                    ),
                ),
            )
            for topic in request.topics
            for one in topic.partitions
        ],
    )
    return WriteShareGroupStateResponse(
        results=[
            WriteStateResult(
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


SERVED = Served(85, handle)
