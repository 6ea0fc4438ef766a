"""AlterPartitionReassignments (45). Versions 0-1: which brokers hold a partition (KIP-455), as one broker can answer it.

The only assignment there can be is this broker alone: to ask for it changes nothing, other brokers do not exist, and there is
never a reassignment under way that could be cancelled.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.broker.context import Circumstances, Parts, Served
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(
    parts: Parts, circumstances: Circumstances, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name, partitions=[_reassign(parts, topic.name, one) for one in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _reassign(parts: Parts, topic: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
    code, message = ErrorCode.NONE, None
    try:
        _check(parts, topic, wanted)
    except KafkaError as error:
        code, message = error.code, error.message
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_code=code, error_message=message
    )


def _check(parts: Parts, topic: str, wanted: ReassignablePartition) -> None:
    known = parts.image.topics.get(topic)
    if known is None or not 0 <= wanted.partition_index < len(known.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no partition {wanted.partition_index} of topic {topic!r}",
        )
    if wanted.replicas is None:
        raise KafkaError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            f"{topic}-{wanted.partition_index} is not being reassigned, so there is nothing to cancel",
        )
    _check_replicas(parts, wanted.replicas)


def _check_replicas(parts: Parts, replicas: Sequence[int]) -> None:
    if not replicas:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the assignment names no replica")
    brokers = {broker.broker_id for broker in parts.image.brokers}
    for number, broker in enumerate(replicas):
        if broker in replicas[:number]:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the assignment names broker {broker} twice"
            )
        if broker not in brokers:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the cluster has no broker {broker}")


SERVED = Served(45, handle)
