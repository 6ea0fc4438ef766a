"""The parts that consumer groups register with the machine, and the operations for handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final
from uuid import UUID

from odradek.groups.consumer import classic_face
from odradek.groups.consumer.conversion import downgrade_due, downgraded_due
from odradek.groups.consumer.draft import draft_of, finish
from odradek.groups.consumer.formats import RECORDS, GroupKey
from odradek.groups.consumer.group import ConsumerGroup
from odradek.groups.consumer.group_context import GroupContext
from odradek.groups.consumer.heartbeats import heartbeat as decide_heartbeat
from odradek.groups.consumer.member import ConsumerGroupMember
from odradek.groups.consumer.membership import remove
from odradek.groups.consumer.regex import TopicPatterns
from odradek.groups.consumer.settings import ConsumerGroupSettings
from odradek.groups.consumer.timers import MEMBER_TIMERS, ConsumerTimer, MemberTimers
from odradek.groups.modern.membership import group_not_found, replay_group
from odradek.groups.shard.deadlines import DeadlineKey
from odradek.groups.shard.kinds import Caller
from odradek.groups.shard.machine import ClusterTopics, Expire, GroupMachine, KindParts
from odradek.groups.shard.step import GroupStep
from odradek.protocol.messages.groups.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    TopicPartitions,
)
from odradek.protocol.messages.groups.consumer_group_describe import Member as MemberEntry
from odradek.protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.messages.groups.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.shards import Moment, Outcome, StoredRecord, Ticket
from odradek.telemetry import events

CLASSIC_TYPE = 0
CONSUMER_TYPE = 1

_log = events.caused_by_peers("groups")

_REASONS: Final = {
    ConsumerTimer.SESSION: "it was not heard of",
    ConsumerTimer.REBALANCE: "it did not give partitions back in time",
    ConsumerTimer.JOIN: "it did not join again in time",
    ConsumerTimer.SYNC: "it did not ask for its assignment in time",
}


class ConsumerGroups:
    """The operations on consumer groups. One object serves all shards of a broker: it has the settings of each group by its
    id, and the expressions that were compiled."""

    def __init__(self, settings: Callable[[str], ConsumerGroupSettings]) -> None:
        self._settings = settings
        self.patterns: Final = TopicPatterns()

    def parts(self) -> KindParts:
        expires: dict[Enum, Expire] = dict.fromkeys(MEMBER_TIMERS, self._member_due)
        return KindParts(
            replays=dict.fromkeys(RECORDS.key_versions, self._replay),
            expires={
                **expires,
                ConsumerTimer.DOWNGRADE: self._downgrade_due,
                ConsumerTimer.DOWNGRADED: downgraded_due,
            },
        )

    # -- operations on a machine

    def heartbeat(
        self, machine: GroupMachine, now: Moment, *, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        step = GroupStep(now)
        group_context = self.group_context(machine, request.group_id, now)
        group_context = replace(group_context, may_describe=caller.may_describe)
        return step.outcome(decide_heartbeat(machine, group_context, request, caller, step))

    def describe(self, machine: GroupMachine, now: Moment, *, group_id: str) -> Outcome[DescribedGroup]:
        """Raises GROUP_ID_NOT_FOUND, for groups of other kinds too."""
        group = machine.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise group_not_found(group_id, group, "consumer")
        default = self._settings(group_id).assignors[0]
        return Outcome(described(group, machine.dependencies.topics, default))

    def group_context(self, machine: GroupMachine, group_id: str, now: Moment) -> GroupContext:
        return GroupContext(
            topics=machine.dependencies.topics,
            patterns=self.patterns,
            settings=self._settings(group_id),
            now=now,
            timers=MemberTimers(machine.deadlines, group_id, now),
            large_targets=machine.dependencies.large_targets,
        )

    # -- the machine's side

    def _replay(self, machine: GroupMachine, stored: StoredRecord) -> None:
        record = RECORDS.read(stored.key, stored.value)
        group = replay_group(
            machine,
            record,
            ConsumerGroup,
            deletes_group=isinstance(record.key, GroupKey),
            make=lambda group_id: ConsumerGroup(group_id, _Bound(self, machine)),
        )
        if group is not None:
            group.note(record, stored)

    def _member_due(self, machine: GroupMachine, due: DeadlineKey, step: GroupStep) -> None:
        group = machine.groups.get(due.group_id)
        if not isinstance(group, ConsumerGroup) or due.member_id not in group.members:
            return
        if due.kind is ConsumerTimer.REBALANCE and not group.members[due.member_id].is_giving_back:
            return
        group_context = self.group_context(machine, due.group_id, step.now)
        draft = draft_of(group)
        remove(draft, [due.member_id], group_context)
        finish(machine, draft, group_context, step)
        assert isinstance(due.kind, ConsumerTimer)
        _log.info("member_lost", group=due.group_id, member=due.member_id, reason=_REASONS[due.kind])

    def _downgrade_due(self, machine: GroupMachine, due: DeadlineKey, step: GroupStep) -> None:
        group = machine.groups.get(due.group_id)
        if isinstance(group, ConsumerGroup):
            downgrade_due(machine, group, self.group_context(machine, due.group_id, step.now), step)


class _Bound:
    """The actions of consumer groups, for the groups of one machine."""

    __slots__ = ("_kind", "_machine")

    def __init__(self, kind: ConsumerGroups, machine: GroupMachine) -> None:
        self._kind = kind
        self._machine = machine

    def loaded(self, group: ConsumerGroup, now: Moment) -> None:
        group_context = self._context_of(group, now)
        group_context.timers.loaded(group, group_context.settings)
        group_context.timers.apply()

    def join(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        caller: Caller,
        ticket: Ticket[JoinGroupResponse],
        step: GroupStep,
    ) -> None:
        group_context = self._context_of(group, step.now)
        classic_face.join(self._machine, group, group_context, request, caller, ticket, step)

    def sync(
        self,
        group: ConsumerGroup,
        request: SyncGroupRequest,
        ticket: Ticket[SyncGroupResponse],
        step: GroupStep,
    ) -> None:
        classic_face.sync(group, self._context_of(group, step.now), request, ticket, step)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, step: GroupStep) -> None:
        classic_face.heartbeat(group, self._context_of(group, step.now), request)

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest, step: GroupStep) -> LeaveGroupResponse:
        return classic_face.leave(self._machine, group, self._context_of(group, step.now), request, step)

    def _context_of(self, group: ConsumerGroup, now: Moment) -> GroupContext:
        return self._kind.group_context(self._machine, group.group_id, now)


def described(group: ConsumerGroup, topics: ClusterTopics, default_assignor: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(default_assignor),
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerGroupMember, topics: ClusterTopics) -> MemberEntry:
    profile = member.profile
    return MemberEntry(
        member_id=member.member_id,
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        member_epoch=member.epoch,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.topics),
        subscribed_topic_regex=profile.regex,
        assignment=_assignment(member.current.assigned, topics),
        target_assignment=_assignment(group.target(member.member_id), topics),
        member_type=CLASSIC_TYPE if member.is_classic else CONSUMER_TYPE,
    )


def _assignment(partitions: Mapping[UUID, Iterable[int]], topics: ClusterTopics) -> Assignment:
    """Returns an assignment by topic name. Deleted topics have no name any more, and are left out."""
    named = [(name, topic) for topic in partitions if (name := topics.topic_name(topic)) is not None]
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, topic_name=name, partitions=sorted(partitions[topic]))
            for name, topic in sorted(named)
        ]
    )
