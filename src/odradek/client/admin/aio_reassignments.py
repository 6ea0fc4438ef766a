"""Moves of partitions between brokers, asynchronously (KIP-455)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from odradek.client.admin.calls import Exchange, Outcome
from odradek.client.admin.session import AdminSession
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentDescription:
    """A move under way: `replicas` are all that hold the partition meanwhile."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ReassignmentAdministration(AdminSession):
    """Which brokers hold a partition."""

    async def reassign_partitions(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Begin to move partitions to these brokers, the preferred leader first; None cancels a move.

        `list_reassignments` shows what is under way. INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS.
        """
        wanted = {TopicPartition(*tp): brokers for tp, brokers in replicas.items()}
        await self._each("reassign_partitions", wanted, timeout_s, _reassign)

    async def list_reassignments(
        self, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, ReassignmentDescription]:
        """All moves under way."""
        return dict((await self._one("list_reassignments", timeout_s, _list())).results)


def _reassign(wanted: Mapping[TopicPartition, Sequence[int] | None], timeout_s: float) -> Exchange:
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, index), brokers in wanted.items():
        topics.setdefault(topic, []).append(
            ReassignablePartition(partition_index=index, replicas=None if brokers is None else list(brokers))
        )
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=max(1, int(timeout_s * 1000)),
        topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )

    def read(told: AlterPartitionReassignmentsResponse) -> Outcome:
        _check(told.error_code, told.error_message)
        outcome = Outcome.none()
        for topic in told.responses:
            for each in topic.partitions:
                outcome.note(
                    TopicPartition(topic.name, each.partition_index), each.error_code, each.error_message
                )
        return outcome

    return Exchange(request=request, answer=AlterPartitionReassignmentsResponse, read=read)


def _list() -> Exchange:
    def read(told: ListPartitionReassignmentsResponse) -> Outcome:
        _check(told.error_code, told.error_message)
        outcome = Outcome.none()
        for topic in told.topics:
            for each in topic.partitions:
                outcome.results[TopicPartition(topic.name, each.partition_index)] = ReassignmentDescription(
                    replicas=tuple(each.replicas),
                    adding=tuple(each.adding_replicas),
                    removing=tuple(each.removing_replicas),
                )
        return outcome

    request = ListPartitionReassignmentsRequest()
    return Exchange(request=request, answer=ListPartitionReassignmentsResponse, read=read)


def _check(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(ErrorCode.of(code), message or "the moves cannot be told or changed")
