"""A member of a streams group: one thread of an application instance, and the tasks that it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from odradek.groups.streams import formats
from odradek.groups.streams.tasks import (
    NOTHING,
    TaskAssignment,
    TaskId,
    TaskMap,
    TaskRole,
    in_order,
    task_map,
)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_FOR_A_WHILE_EPOCH: Final = -2

ActiveEpochs = Mapping[str, Mapping[int, int]]
"""The active tasks of a member: subtopology, partition -> the member's epoch when the task was assigned."""


class StreamsMemberState(IntEnum):
    """The state of a member on its way to its target; the numbers come from its records."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127


_STATES: Final = {int(state): state for state in StreamsMemberState}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMemberMetadata:
    """The data that a member sends about itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = 0
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    """Host and port of the instance for interactive queries."""
    tags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: formats.StreamsMemberValue) -> StreamsMemberMetadata:
        endpoint = value.user_endpoint
        return cls(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
            tags={tag.key: tag.value for tag in value.client_tags},
        )

    def value(self) -> formats.StreamsMemberValue:
        endpoint = self.endpoint
        return formats.StreamsMemberValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id,
            user_endpoint=None
            if endpoint is None
            else formats.MemberEndpoint(host=endpoint[0], port=endpoint[1]),
            client_tags=[formats.ClientTag(key=key, value=self.tags[key]) for key in sorted(self.tags)],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsCurrentAssignment:
    """The tasks that a member has, and those that it is to give back."""

    epoch: int = 0
    previous_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    active: ActiveEpochs = field(default_factory=dict)
    standby: TaskMap = field(default_factory=dict)
    warmup: TaskMap = field(default_factory=dict)
    revoking: TaskAssignment = NOTHING
    revoking_epochs: ActiveEpochs = field(default_factory=dict)
    """The active tasks of `revoking`, with their epochs."""

    @property
    def assigned(self) -> TaskAssignment:
        """The tasks that the member has to use."""
        return TaskAssignment(
            active={subtopology: frozenset(epochs) for subtopology, epochs in self.active.items()},
            standby=self.standby,
            warmup=self.warmup,
        )

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is StreamsMemberState.STABLE and self.epoch == epoch

    @property
    def is_giving_back(self) -> bool:
        return self.state is StreamsMemberState.UNREVOKED_TASKS

    def epoch_of(self, task: TaskId) -> int | None:
        """Returns the epoch in which an active task was assigned; None for a task that the member does not process."""
        for epochs in (self.active, self.revoking_epochs):
            epoch = epochs.get(task.subtopology, {}).get(task.partition)
            if epoch is not None:
                return epoch
        return None

    def held(self, role: TaskRole) -> set[TaskId]:
        """Returns the tasks that the member may still use: those that it has, and those that it gives back."""
        return {*self.assigned.pairs(role), *self.revoking.pairs(role)}

    @classmethod
    def of(cls, value: formats.StreamsCurrentValue) -> StreamsCurrentAssignment:
        epoch = value.member_epoch
        return cls(
            epoch=epoch,
            previous_epoch=value.previous_member_epoch,
            state=_STATES.get(value.state, StreamsMemberState.UNKNOWN),
            active=_epochs(value.active_tasks, epoch),
            standby=task_map(value.standby_tasks),
            warmup=task_map(value.warmup_tasks),
            revoking=TaskAssignment(
                active=task_map(value.active_tasks_pending_revocation),
                standby=task_map(value.standby_tasks_pending_revocation),
                warmup=task_map(value.warmup_tasks_pending_revocation),
            ),
            revoking_epochs=_epochs(value.active_tasks_pending_revocation, epoch),
        )

    def value(self) -> formats.StreamsCurrentValue:
        return formats.StreamsCurrentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            active_tasks=_with_epochs(self.active),
            standby_tasks=_listed(self.standby),
            warmup_tasks=_listed(self.warmup),
            active_tasks_pending_revocation=_with_epochs(self.revoking_epochs),
            standby_tasks_pending_revocation=_listed(self.revoking.standby),
            warmup_tasks_pending_revocation=_listed(self.revoking.warmup),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMember:
    """A member, the state that its records define."""

    member_id: str
    profile: StreamsMemberMetadata = StreamsMemberMetadata()
    current: StreamsCurrentAssignment = StreamsCurrentAssignment()

    @property
    def epoch(self) -> int:
        return self.current.epoch

    @property
    def is_away(self) -> bool:
        """Whether it is a static member that left for a while."""
        return self.current.epoch == LEAVE_FOR_A_WHILE_EPOCH


def target_value(target: TaskAssignment) -> formats.StreamsTargetMemberValue:
    def listed(tasks: TaskMap) -> list[formats.TargetTaskIds]:
        return [
            formats.TargetTaskIds(subtopology_id=subtopology, partitions=partitions)
            for subtopology, partitions in in_order(tasks)
        ]

    return formats.StreamsTargetMemberValue(
        active_tasks=listed(target.active),
        standby_tasks=listed(target.standby),
        warmup_tasks=listed(target.warmup),
    )


def target_of(value: formats.StreamsTargetMemberValue) -> TaskAssignment:
    return TaskAssignment(
        active=task_map(value.active_tasks),
        standby=task_map(value.standby_tasks),
        warmup=task_map(value.warmup_tasks),
    )


def _listed(tasks: TaskMap) -> list[formats.CurrentTaskIds]:
    return [
        formats.CurrentTaskIds(subtopology_id=subtopology, partitions=partitions)
        for subtopology, partitions in in_order(tasks)
    ]


def _with_epochs(tasks: ActiveEpochs) -> list[formats.CurrentTaskIds]:
    return [
        formats.CurrentTaskIds(
            subtopology_id=subtopology,
            partitions=sorted(tasks[subtopology]),
            assignment_epochs=[tasks[subtopology][partition] for partition in sorted(tasks[subtopology])],
        )
        for subtopology in sorted(tasks)
    ]


def _epochs(entries: list[formats.CurrentTaskIds], member_epoch: int) -> ActiveEpochs:
    """Returns active tasks with their epochs; records without them count as of the member's epoch."""
    return {
        entry.subtopology_id: dict(
            zip(entry.partitions, entry.assignment_epochs, strict=False)
            if entry.assignment_epochs is not None and len(entry.assignment_epochs) == len(entry.partitions)
            else dict.fromkeys(entry.partitions, member_epoch)
        )
        for entry in entries
        if entry.partitions
    }
