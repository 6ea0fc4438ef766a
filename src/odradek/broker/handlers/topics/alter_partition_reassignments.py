"""AlterPartitionReassignments (45). Versions 0-1: which brokers hold a partition (KIP-455, 860).

The controller answers; others forward the request to it. The response means that a move was begun or
cancelled, not that it ended.
"""

from __future__ import annotations

from functools import partial

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.reassignment import Reassignment
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.protocol.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from odradek.runtime.turns import slices


async def handle(
    broker: BrokerContext, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    turn = broker.turns.begin()
    wanted: list[Reassignment] = []
    for topic in request.topics:
        wanted += await turn.map(partial(_reassignment, topic.name), topic.partitions)
    allows = request.allow_replication_factor_change
    errors: list[KafkaError | None] = []
    try:
        for some in slices(wanted):
            await turn.step()
            errors += await broker.controller.reassign(some, allow_factor_change=allows)
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=allows,
            error_code=error.code,
            error_message=error.message,
            responses=[],
        )
    outcomes = iter(errors)
    responses = []
    for topic in request.topics:
        results = await turn.map(lambda partition: _result(partition, next(outcomes)), topic.partitions)
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=results))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allows,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=responses,
    )


def _reassignment(topic: str, requested: ReassignablePartition) -> Reassignment:
    return Reassignment(
        topic=topic,
        partition=requested.partition_index,
        replicas=None if requested.replicas is None else tuple(map(BrokerId, requested.replicas)),
    )


def _result(requested: ReassignablePartition, error: KafkaError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=requested.partition_index,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )


SERVED = ApiHandler(45, handle)
