"""Brings a member of a streams group from its present tasks to its target (KIP-1071), one heartbeat at a time.

An active task is free for its next owner only when the previous owner has reported that it does not use it
any more. And one process keeps the state of a task in one directory, so it never has a task twice, whatever
the role. So a member first gives back (UNREVOKED_TASKS, still in its old epoch), then moves to the target's
epoch, takes what is free, and waits for what others still have (UNRELEASED_TASKS).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from odradek.groups.streams.member import ActiveEpochs, StreamsCurrentAssignment, StreamsMemberState
from odradek.groups.streams.tasks import NOTHING, TaskAssignment, TaskId, TaskMap, TaskRole, grouped
from odradek.model.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGoal:
    """The state to which a member is brought."""

    target_epoch: int
    target: TaskAssignment
    is_free: Callable[[TaskId, TaskRole], bool]
    """Whether the member's process may take the task in this role now."""


def reconcile(
    current: StreamsCurrentAssignment, goal: StreamsGoal, owned: TaskAssignment | None
) -> StreamsCurrentAssignment:
    """Returns the member's next state; the very same object when nothing changes.

    `owned` is what the member reports; None when its heartbeat omitted them. FENCED_MEMBER_EPOCH for a member
    in a state that only a newer broker knows, unless it reports to own nothing.
    """
    state = current.state
    if current.is_reconciled_to(goal.target_epoch):
        return current
    if state is StreamsMemberState.UNKNOWN and (owned is None or owned):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
        )
    if state is StreamsMemberState.UNREVOKED_TASKS and (owned is None or overlap(owned, current.revoking)):
        return current
    after = _next(current, goal, owned)
    return current if after == current else after


def overlap(owned: TaskAssignment, tasks: TaskAssignment) -> bool:
    """Returns whether any task is in both, in the same role."""
    return any(
        partitions & tasks.of(role).get(subtopology, frozenset())
        for role in TaskRole
        for subtopology, partitions in owned.of(role).items()
    )


def _next(
    current: StreamsCurrentAssignment, goal: StreamsGoal, owned: TaskAssignment | None
) -> StreamsCurrentAssignment:
    has, target = current.assigned, goal.target
    retained = {role: common(has.of(role), target.of(role)) for role in TaskRole}
    revoking = TaskAssignment(**{role.value: without(has.of(role), retained[role]) for role in TaskRole})
    if revoking and (owned is None or overlap(owned, revoking)):
        epoch = current.epoch
        if current.state is StreamsMemberState.UNREVOKED_TASKS:
            epoch = min(epoch + 1, goal.target_epoch)  # it gave back what it was asked for before
        return _moved(
            current,
            epoch,
            state=StreamsMemberState.UNREVOKED_TASKS,
            active=_epochs_of(retained[TaskRole.ACTIVE], current.active),
            standby=retained[TaskRole.STANDBY],
            warmup=retained[TaskRole.WARMUP],
            revoking=revoking,
            revoking_epochs=_epochs_of(revoking.active, current.active),
        )
    added, waits = {}, False
    for role in TaskRole:
        wanted = [
            TaskId(subtopology, partition)
            for subtopology, partitions in without(target.of(role), retained[role]).items()
            for partition in partitions
        ]
        free = [task for task in wanted if goal.is_free(task, role)]
        waits = waits or len(free) < len(wanted)
        added[role] = grouped(free)
    active = {
        subtopology: dict(epochs)
        for subtopology, epochs in _epochs_of(retained[TaskRole.ACTIVE], current.active).items()
    }
    for subtopology, partitions in added[TaskRole.ACTIVE].items():
        active.setdefault(subtopology, {}).update(dict.fromkeys(partitions, goal.target_epoch))
    return _moved(
        current,
        goal.target_epoch,
        state=StreamsMemberState.UNRELEASED_TASKS if waits else StreamsMemberState.STABLE,
        active=active,
        standby=joined(retained[TaskRole.STANDBY], added[TaskRole.STANDBY]),
        warmup=joined(retained[TaskRole.WARMUP], added[TaskRole.WARMUP]),
        revoking=NOTHING,
        revoking_epochs={},
    )


def _moved(
    current: StreamsCurrentAssignment,
    epoch: int,
    *,
    state: StreamsMemberState,
    active: ActiveEpochs,
    standby: TaskMap,
    warmup: TaskMap,
    revoking: TaskAssignment,
    revoking_epochs: ActiveEpochs,
) -> StreamsCurrentAssignment:
    return replace(
        current,
        epoch=epoch,
        previous_epoch=current.epoch if epoch != current.epoch else current.previous_epoch,
        state=state,
        active=active,
        standby=standby,
        warmup=warmup,
        revoking=revoking,
        revoking_epochs=revoking_epochs,
    )


def _epochs_of(tasks: TaskMap, epochs: ActiveEpochs) -> ActiveEpochs:
    return {
        subtopology: {partition: epochs[subtopology][partition] for partition in partitions}
        for subtopology, partitions in tasks.items()
    }


def common(first: TaskMap, second: TaskMap) -> TaskMap:
    """Returns the tasks that are in both."""
    return _filled({name: numbers & second.get(name, frozenset()) for name, numbers in first.items()})


def without(first: TaskMap, second: TaskMap) -> TaskMap:
    """Returns the tasks of the first that are not in the second."""
    return _filled({name: numbers - second.get(name, frozenset()) for name, numbers in first.items()})


def joined(first: TaskMap, second: TaskMap) -> TaskMap:
    """Returns the tasks of both."""
    return {
        name: first.get(name, frozenset()) | second.get(name, frozenset()) for name in {**first, **second}
    }


def _filled(tasks: Mapping[str, frozenset[int]]) -> TaskMap:
    return {name: numbers for name, numbers in tasks.items() if numbers}
