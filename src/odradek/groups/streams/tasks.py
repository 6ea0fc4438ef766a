"""TaskAssignment: one partition of one subtopology each, in the three roles that a member can have for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol


class TaskId(NamedTuple):
    subtopology: str
    partition: int


class TaskRole(Enum):
    """A member processes its active tasks, and keeps copies of the state of standby and warm-up tasks."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARMUP = "warmup"


TaskMap = Mapping[str, frozenset[int]]
"""Partitions by subtopology; subtopologies without any are absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAssignment:
    """The tasks of a member, by role."""

    active: TaskMap = field(default_factory=dict)
    standby: TaskMap = field(default_factory=dict)
    warmup: TaskMap = field(default_factory=dict)

    def of(self, role: TaskRole) -> TaskMap:
        tasks: TaskMap = getattr(self, role.value)
        return tasks

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def pairs(self, role: TaskRole) -> Iterator[TaskId]:
        """Yields the tasks of a role one by one."""
        for subtopology, partitions in self.of(role).items():
            for partition in partitions:
                yield TaskId(subtopology, partition)


NOTHING: Final = TaskAssignment()


class AnyTaskIds(Protocol):
    """The tasks of a subtopology in records and requests."""

    @property
    def subtopology_id(self) -> str: ...

    @property
    def partitions(self) -> list[int]: ...


def task_map(entries: Iterable[AnyTaskIds]) -> TaskMap:
    """Returns the tasks of records or requests. Entries of the same subtopology are joined."""
    partitions: dict[str, set[int]] = {}
    for entry in entries:
        if entry.partitions:
            partitions.setdefault(entry.subtopology_id, set()).update(entry.partitions)
    return {subtopology: frozenset(numbers) for subtopology, numbers in partitions.items()}


def grouped(tasks: Iterable[TaskId]) -> TaskMap:
    """Returns single tasks by subtopology."""
    partitions: dict[str, set[int]] = {}
    for task in tasks:
        partitions.setdefault(task.subtopology, set()).add(task.partition)
    return {subtopology: frozenset(numbers) for subtopology, numbers in partitions.items()}


def in_order(tasks: Mapping[str, AbstractSet[int]]) -> Iterator[tuple[str, list[int]]]:
    """Yields subtopologies and their partitions, both ascending: answers and records depend on no hash order."""
    for subtopology in sorted(tasks):
        yield subtopology, sorted(tasks[subtopology])
