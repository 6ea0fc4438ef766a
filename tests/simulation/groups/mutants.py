"""Planted bugs of groups: what coordinators are known to get wrong."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from tests.simulation.mutant import Patches, mutant

from odradek.broker.coordinators.partition_log import PartitionLog
from odradek.groups.classic import operations, syncing
from odradek.groups.classic.answers import assigned
from odradek.groups.classic.group import ClassicGroup
from odradek.groups.classic.states import ClassicGroupState
from odradek.groups.shard.kinds import Committer
from odradek.groups.shard.machine import GroupMachine
from odradek.groups.shard.offset_table import CommittedOffset, OffsetTable, PartitionName
from odradek.groups.shard.step import GroupStep
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.shards import Moment, Ticket

_SCENARIO = "groups"


@mutant("who commits, and in which generation, is not looked at", _SCENARIO)
def commit_of_any_generation() -> Patches:
    def check_commit(self: ClassicGroup, committer: Committer) -> None:
        return None

    yield patch.object(ClassicGroup, "check_commit", check_commit)


@mutant("an assignment is given to members of any generation", _SCENARIO)
def sync_of_any_generation() -> Patches:
    def check(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> None:
        group.check_member(member_id, instance_id)

    yield patch.object(syncing, "_check_generation", check)


@mutant("a follower that asks early is given what it had in the generation before", _SCENARIO)
def old_assignment_in_a_new_generation() -> Patches:
    real = syncing.sync

    def sync(
        machine: GroupMachine,
        group: ClassicGroup,
        request: SyncGroupRequest,
        ticket: Ticket[SyncGroupResponse],
        step: GroupStep,
    ) -> None:
        member = group.members.get(request.member_id)
        early = group.state is ClassicGroupState.COMPLETING and group.leader_id != request.member_id
        if early and member is not None and request.generation_id == group.generation:
            step.answer(ticket, assigned(group, member.assignment))
        else:
            real(machine, group, request, ticket, step)

    yield patch.object(operations, "sync_classic", sync)


@mutant("assignments and commits are answered before they are durable", _SCENARIO)
def answers_before_durable() -> Patches:
    def committed(self: PartitionLog, last_offset: int) -> asyncio.Future[None] | None:
        return None

    yield patch.object(PartitionLog, "committed", committed)


@mutant("a coordinator that starts begins its generations again", _SCENARIO)
def generation_forgotten() -> Patches:
    real = ClassicGroup.loaded

    def loaded(self: ClassicGroup, now: Moment) -> None:
        self.generation = min(self.generation, 1)
        real(self, now)

    yield patch.object(ClassicGroup, "loaded", loaded)


@mutant("a coordinator that starts waits for ever for members that are gone", _SCENARIO)
def classic_sessions_not_armed_again() -> Patches:
    def loaded(self: ClassicGroup, now: Moment) -> None:
        return None

    yield patch.object(ClassicGroup, "loaded", loaded)


@mutant("now and then a commit is acknowledged and dropped", _SCENARIO)
def commit_dropped() -> Patches:
    real = OffsetTable.put

    def put(self: OffsetTable, group_id: str, partition_name: PartitionName, offset: CommittedOffset) -> None:
        before = self.get(group_id, partition_name)
        if before is None or before.offset % 7:
            real(self, group_id, partition_name, offset)

    yield patch.object(OffsetTable, "put", put)
