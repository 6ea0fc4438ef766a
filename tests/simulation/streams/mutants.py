"""Planted bugs of streams groups (KIP-1071): what such coordinators could get wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

from tests.simulation.mutant import Patches, mutant

from odradek.groups.shard.kinds import CheckPartition, Committer
from odradek.groups.shard.machine import GroupMachine
from odradek.groups.streams import formats
from odradek.groups.streams import group as group_module
from odradek.groups.streams import reconcile as reconcile_module
from odradek.groups.streams.group import StreamsGroup
from odradek.groups.streams.kind import StreamsGroups
from odradek.groups.streams.member import StreamsMember
from odradek.groups.streams.tasks import TaskAssignment, TaskId, TaskRole
from odradek.shards import Moment

_SCENARIO = "streams_groups"


@mutant("an active task is given on before its member has given it back", _SCENARIO)
def active_tasks_are_free() -> Patches:
    real = StreamsGroup.is_free

    def is_free(self: StreamsGroup, task: TaskId, role: TaskRole, process_id: str) -> bool:
        return role is TaskRole.ACTIVE or real(self, task, role, process_id)

    yield patch.object(StreamsGroup, "is_free", is_free)


@mutant("two members of a process have the same task, in different roles", _SCENARIO)
def tasks_of_a_process_are_free() -> Patches:
    def is_free(self: StreamsGroup, task: TaskId, role: TaskRole, process_id: str) -> bool:
        return role is not TaskRole.ACTIVE or task not in self.owners

    yield patch.object(StreamsGroup, "is_free", is_free)


@mutant("a member is believed to have given back the tasks that it only should give back", _SCENARIO)
def revoked_tasks_are_not_awaited() -> Patches:
    def overlap(owned: TaskAssignment, tasks: TaskAssignment) -> bool:
        return False

    yield patch.object(reconcile_module, "overlap", overlap)


@mutant("commits in any epoch are accepted from members of a streams group", _SCENARIO)
def streams_commit_in_any_epoch() -> Patches:
    def check(
        group_id: str,
        members: Mapping[str, StreamsMember],
        subtopologies: Mapping[str, str],
        committer: Committer,
    ) -> CheckPartition | None:
        return None

    yield patch.object(group_module, "check_commit", check)


@mutant("a coordinator that starts waits for ever for members of streams groups that are gone", _SCENARIO)
def streams_sessions_not_armed_again() -> Patches:
    def loaded(self: StreamsGroups, machine: GroupMachine, group: StreamsGroup, now: Moment) -> None:
        return None

    yield patch.object(StreamsGroups, "_loaded", loaded)


@mutant("a restart forgets the target that the members of a streams group are brought to", _SCENARIO)
def streams_targets_not_replayed() -> Patches:
    real = StreamsGroup.replay

    def replay(self: StreamsGroup, record: Any) -> None:
        is_target = isinstance(record.key, formats.StreamsTargetMemberKey)
        if not is_target or self.soft.configured is not None:
            real(self, record)

    yield patch.object(StreamsGroup, "replay", replay)


@mutant("a restart begins the epochs of a streams group again", _SCENARIO)
def streams_epochs_begin_again() -> Patches:
    real = StreamsGroup.replay

    def replay(self: StreamsGroup, record: Any) -> None:
        is_epoch = isinstance(record.key, formats.StreamsGroupKey | formats.StreamsTargetKey)
        if not is_epoch or self.soft.configured is not None:
            real(self, record)

    yield patch.object(StreamsGroup, "replay", replay)
