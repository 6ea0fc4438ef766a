"""AlterPartitionReassignments (45). Versions 0-1: which brokers hold a partition (KIP-455, 860).

The controller answers; others forward the request to it. The answer says that a move was begun or cancelled, not that it ended.
"""

from __future__ import annotations

from odradek.broker.context import Circumstances, Parts, Served
from odradek.cluster.reassignment import Reassignment
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    parts: Parts, circumstances: Circumstances, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    wanted = [
        Reassignment(
            topic=topic.name,
            partition=one.partition_index,
            replicas=None if one.replicas is None else tuple(map(BrokerId, one.replicas)),
        )
        for topic in request.topics
        for one in topic.partitions
    ]
    allows = request.allow_replication_factor_change
    try:
        outcomes = iter(await parts.controller.reassign(wanted, allow_factor_change=allows))
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=allows,
            error_code=error.code,
            error_message=error.message,
            responses=[],
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allows,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_result(one.partition_index, next(outcomes)) for one in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _result(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )


SERVED = Served(45, handle)
