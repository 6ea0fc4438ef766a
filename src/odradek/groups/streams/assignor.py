"""The `sticky` task assignor of streams groups (Kafka's StickyTaskAssignor).

Active tasks first: each stays with its member, unless the member exceeds its share; then it goes to a member
that has a copy of its state; then to the process with the least load. Stateful tasks are spread before
stateless ones, so that both are even. Standby tasks follow in the same way: a process has no task twice.
Where the group has rack-aware tags, a standby task goes to another rack first (`racks.py`), whatever the
loads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from odradek.groups.streams.racks import Rack, Racks
from odradek.groups.streams.tasks import NOTHING, TaskAssignment, TaskId, TaskRole, grouped
from odradek.groups.streams.topology import SubtopologyTasks

NAME: Final = "sticky"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignableMember:
    """A member as the assignor sees it."""

    process_id: str
    standby_replicas: int = 0
    """The same for all members: the group's setting."""
    rack_aware_tags: tuple[str, ...] = ()
    """The same for all members: the group's setting. Keys of client tags, the most important one first."""
    client_tags: Mapping[str, str] = field(default_factory=dict)
    task_offsets: Mapping[TaskId, int] = field(default_factory=dict)
    """Positions in the changelogs of tasks whose state the member has on its disk."""


class _Quota:
    """The share of each member: a member with as many tasks is full, and the others share what is left."""

    __slots__ = ("_members", "_tasks", "share")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.share = _ceiling(tasks, members)

    def filled(self, task_count: int) -> None:
        """Counts a member that has as many tasks as its share."""
        if task_count == self.share:
            self._members -= 1
            self._tasks -= task_count
            self.share = _ceiling(self._tasks, self._members)


def _ceiling(tasks: int, members: int) -> int:
    return -(-tasks // members) if members else 0


class _Process:
    """The tasks of one application instance, whose members are its threads."""

    __slots__ = ("_by_load", "counts", "has", "stateless", "total")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """TaskAssignment of each member."""
        self.has: set[TaskId] = set()
        self.total = 0
        self.stateless = 0
        self._by_load: list[tuple[int, str]] = []

    def add_member(self, member_id: str) -> None:
        self.counts[member_id] = 0
        self._by_load.append((0, member_id))

    @property
    def load(self) -> tuple[float, float]:
        return self.total / len(self.counts), self.stateless / len(self.counts)

    def add(self, member_id: str, task: TaskId, *, is_stateless: bool = False) -> int:
        """Returns how many tasks the member has now."""
        self.has.add(task)
        self.total += 1
        self.stateless += is_stateless
        count = self.counts[member_id] = self.counts[member_id] + 1
        heappush(self._by_load, (count, member_id))
        return count

    def least_loaded(self) -> str:
        """Returns the member with the fewest tasks. Entries of the heap that are out of date are dropped."""
        while True:
            count, member_id = self._by_load[0]
            if self.counts[member_id] == count:
                return member_id
            heappop(self._by_load)

    def begin(self) -> None:
        self._by_load.sort()


class _ByLoad:
    """Processes by load. An entry that is out of date is put back with its present load."""

    def __init__(self, processes: Mapping[str, _Process]) -> None:
        self._processes = processes
        self._heap = [(*process.load, process_id) for process_id, process in processes.items()]
        heapify(self._heap)

    def least_without(self, task: TaskId | None) -> str | None:
        """Returns the least loaded process that does not have the task; None if all have it."""
        passed = []
        chosen = None
        while self._heap and chosen is None:
            *load, process_id = entry = heappop(self._heap)
            process = self._processes[process_id]
            if tuple(load) != process.load:
                heappush(self._heap, (*process.load, process_id))
                continue
            passed.append(entry)
            if task is None or task not in process.has:
                chosen = process_id
        for entry in passed:
            heappush(self._heap, entry)
        return chosen


class _Assignment:
    """The state of one computation."""

    def __init__(
        self,
        members: Mapping[str, AssignableMember],
        subtopologies: Mapping[str, SubtopologyTasks],
        before: Mapping[str, TaskAssignment],
    ) -> None:
        self.members = members
        self.replicas = max((member.standby_replicas for member in members.values()), default=0)
        self.stateful = _all_tasks(subtopologies, is_stateful=True)
        self.stateless = _all_tasks(subtopologies, is_stateful=False)
        self.processes: dict[str, _Process] = {}
        for member_id in sorted(members):
            process_id = members[member_id].process_id
            self.processes.setdefault(process_id, _Process()).add_member(member_id)
        for process in self.processes.values():
            process.begin()
        self.active_before = {
            task: member_id
            for member_id in members
            for task in before.get(member_id, NOTHING).pairs(TaskRole.ACTIVE)
        }
        self.copies_before = _copies(members, before)
        count, active = len(members), len(self.stateful) + len(self.stateless)
        self.stateful_quota = _Quota(len(self.stateful), count)
        self.active_quota = _Quota(active, count)
        self.racks = Racks(
            next((member.rack_aware_tags for member in members.values()), ()),
            {member.process_id: member.client_tags for member in members.values()},
        )
        self.holders: dict[TaskId, list[str]] = {}
        """The processes that have a stateful task."""
        self.total_quota = _Quota(active + len(self.stateful) * self.replicas, count)
        self.active: dict[str, list[TaskId]] = {member_id: [] for member_id in members}
        self.standby: dict[str, list[TaskId]] = {member_id: [] for member_id in members}

    def process_of(self, member_id: str) -> _Process:
        return self.processes[self.members[member_id].process_id]

    def assign_active(self, tasks: list[TaskId], *, is_stateful: bool) -> None:
        left = []
        for task in sorted(tasks, key=lambda task: (task.partition, task.subtopology)):
            holder = self.active_before.get(task)
            if holder is None or not self._has_room(holder, is_stateful=is_stateful):
                left.append(task)
                continue
            self._add_active(holder, task, is_stateful=is_stateful)
        rest = []
        for task in left:
            copy = self._least_loaded(self.copies_before.get(task, ()))
            if copy is None or not self._has_room(copy, is_stateful=is_stateful):
                rest.append(task)
                continue
            self._add_active(copy, task, is_stateful=is_stateful)
        by_load = _ByLoad(self.processes)
        for task in sorted(rest):
            process_id = by_load.least_without(None)
            assert process_id is not None, "there is a member, so there is a process"
            member_id = self.processes[process_id].least_loaded()
            self._add_active(member_id, task, is_stateful=is_stateful)

    def _has_room(self, member_id: str, *, is_stateful: bool) -> bool:
        quota = self.stateful_quota if is_stateful else self.active_quota
        return self.process_of(member_id).counts[member_id] < quota.share

    def _add_active(self, member_id: str, task: TaskId, *, is_stateful: bool) -> None:
        count = self.process_of(member_id).add(member_id, task, is_stateless=not is_stateful)
        self.active[member_id].append(task)
        if is_stateful:
            self.holders[task] = [self.members[member_id].process_id]
            self.stateful_quota.filled(count)
        self.active_quota.filled(count)
        self.total_quota.filled(count)

    def assign_standby(self) -> None:
        left: list[tuple[TaskId, int]] = []
        in_racks = {
            rack: _ByLoad({process_id: self.processes[process_id] for process_id in process_ids})
            for rack, process_ids in self.racks.processes.items()
        }
        for task in sorted(self.stateful, key=lambda task: (task.partition, task.subtopology), reverse=True):
            for placed in range(self.replicas):
                racks = self.racks.most_different(self.holders[task])
                member_id = self._standby_in(racks, in_racks, task) if racks else self._sticky_standby(task)
                if member_id is None:
                    left.append((task, self.replicas - placed))
                    break
                self._add_standby(member_id, task)
        by_load = _ByLoad(self.processes)
        for task, count in sorted(left, reverse=True):
            for _ in range(count):
                process_id = by_load.least_without(task)
                if process_id is None:  # there are fewer processes than replicas
                    break
                self._add_standby(self.processes[process_id].least_loaded(), task)

    def _standby_in(
        self, racks: Collection[Rack], in_racks: Mapping[Rack, _ByLoad], task: TaskId
    ) -> str | None:
        """Returns the member that had the task, or a copy of it, if it is in one of the racks and has room; or else the one
        that is loaded least in them."""
        member_id = self._sticky_standby(task, racks)
        if member_id is not None:
            return member_id
        processes = {in_racks[rack].least_without(task) for rack in racks} - {None}
        process = min(
            (self.processes[process_id] for process_id in sorted(filter(None, processes))),
            key=lambda process: process.load,
            default=None,
        )
        return None if process is None else process.least_loaded()

    def _sticky_standby(self, task: TaskId, racks: Collection[Rack] | None = None) -> str | None:
        """Returns the member that had the task, or a copy of it, if it has room for it and is in one of the racks."""
        holder = self.active_before.get(task)
        copies = [
            member_id
            for member_id in self.copies_before.get(task, ())
            if task not in self.process_of(member_id).has
            and (racks is None or self.racks.rack_of(self.members[member_id].process_id) in racks)
        ]
        for member_id in (holder, self._least_loaded(copies)):
            if member_id is None or (
                racks is not None and self.racks.rack_of(self.members[member_id].process_id) not in racks
            ):
                continue
            process = self.process_of(member_id)
            if task not in process.has and process.counts[member_id] < self.total_quota.share:
                return member_id
        return None

    def _add_standby(self, member_id: str, task: TaskId) -> None:
        self.standby[member_id].append(task)
        self.holders[task].append(self.members[member_id].process_id)
        self.total_quota.filled(self.process_of(member_id).add(member_id, task))

    def _least_loaded(self, member_ids: Iterable[str]) -> str | None:
        """Returns the member of the least loaded process; of equals, the first: it has the most of the state."""
        return min(
            member_ids,
            key=lambda member_id: (
                self.process_of(member_id).load[0],
                self.process_of(member_id).counts[member_id],
            ),
            default=None,
        )


def assign(
    members: Mapping[str, AssignableMember],
    subtopologies: Mapping[str, SubtopologyTasks],
    before: Mapping[str, TaskAssignment],
) -> dict[str, TaskAssignment]:
    """Returns the tasks of each member: every task is active exactly once, if there is a member."""
    if not members:
        return {}
    assignment = _Assignment(members, subtopologies, before)
    assignment.assign_active(assignment.stateful, is_stateful=True)
    assignment.assign_active(assignment.stateless, is_stateful=False)
    if assignment.replicas:
        assignment.assign_standby()
    return {
        member_id: TaskAssignment(
            active=grouped(assignment.active[member_id]), standby=grouped(assignment.standby[member_id])
        )
        for member_id in members
    }


def _all_tasks(subtopologies: Mapping[str, SubtopologyTasks], *, is_stateful: bool) -> list[TaskId]:
    return [
        TaskId(subtopology, partition)
        for subtopology, tasks in subtopologies.items()
        if tasks.is_stateful is is_stateful
        for partition in range(tasks.task_count)
    ]


def _copies(
    members: Mapping[str, AssignableMember], before: Mapping[str, TaskAssignment]
) -> dict[TaskId, list[str]]:
    """Returns the members with a copy of each task's state: standby and warm-up tasks first, then what is on their disks;
    of these, the one with the most of the state first."""
    ranked: dict[TaskId, list[tuple[int, int, str]]] = {}
    for member_id in sorted(members):
        tasks, offsets = before.get(member_id, NOTHING), members[member_id].task_offsets
        assigned = {*tasks.pairs(TaskRole.STANDBY), *tasks.pairs(TaskRole.WARMUP)}
        for task in assigned:
            ranked.setdefault(task, []).append((0, -offsets.get(task, 0), member_id))
        for task, offset in offsets.items():
            if task not in assigned:
                ranked.setdefault(task, []).append((1, -offset, member_id))
    return {task: [member_id for *_, member_id in sorted(entries)] for task, entries in ranked.items()}
