"""Moves of partitions between brokers (KIP-455): the messages of the calls, and how their answers are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from odradek.client.admin.calls import CallOutcome, Exchange
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.topics.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentDescription:
    """A move under way: `replicas` are all that hold the partition meanwhile."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def reassign(wanted: Mapping[TopicPartition, Sequence[int] | None], timeout_s: float) -> Exchange:
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, index), brokers in wanted.items():
        topics.setdefault(topic, []).append(
            ReassignablePartition(partition_index=index, replicas=None if brokers is None else list(brokers))
        )
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=max(1, int(timeout_s * 1000)),
        topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )

    def read(response: AlterPartitionReassignmentsResponse) -> CallOutcome:
        _check(response.error_code, response.error_message)
        outcome = CallOutcome.none()
        for topic in response.responses:
            for partition in topic.partitions:
                outcome.note(
                    TopicPartition(topic.name, partition.partition_index),
                    partition.error_code,
                    partition.error_message,
                )
        return outcome

    return Exchange(request=request, answer=AlterPartitionReassignmentsResponse, read=read)


def list_reassignments() -> Exchange:
    def read(response: ListPartitionReassignmentsResponse) -> CallOutcome:
        _check(response.error_code, response.error_message)
        outcome = CallOutcome.none()
        for topic in response.topics:
            for partition in topic.partitions:
                outcome.results[TopicPartition(topic.name, partition.partition_index)] = (
                    ReassignmentDescription(
                        replicas=tuple(partition.replicas),
                        adding=tuple(partition.adding_replicas),
                        removing=tuple(partition.removing_replicas),
                    )
                )
        return outcome

    request = ListPartitionReassignmentsRequest()
    return Exchange(request=request, answer=ListPartitionReassignmentsResponse, read=read)


def _check(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(ErrorCode.of(code), message or "the broker cannot list or change the moves")
