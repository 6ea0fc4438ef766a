"""Converts a group with members from one protocol to the other (KIP-848's migration).

A classic group becomes a consumer group when a member of the consumer protocol joins it: its members keep their
partitions, and still use the classic protocol. A consumer group becomes a classic one when its last member of the
consumer protocol has left, in three steps, each of which a crash may follow: the member is removed; the group's records
are replaced; the members must join again. `group.consumer.migration.policy` sets which direction is allowed.

A group without members changes with the first member that joins it, whatever the policy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from odradek.groups.classic.answers import join_refused, sync_refused
from odradek.groups.classic.group import ClassicGroup
from odradek.groups.classic.member import ClassicGroupMember as ClassicMember
from odradek.groups.classic.rebalance import prepare
from odradek.groups.classic.states import ClassicGroupState
from odradek.groups.consumer.consumer_protocol import (
    PROTOCOL_TYPE,
    assignment_bytes,
    by_topic_id,
    read_assignment,
    read_subscription,
)
from odradek.groups.consumer.draft import Draft, draft_of
from odradek.groups.consumer.group import ConsumerGroup
from odradek.groups.consumer.group_context import GroupContext
from odradek.groups.consumer.member import (
    ClassicSide,
    ConsumerGroupMember,
    ConsumerMemberMetadata,
    CurrentAssignment,
)
from odradek.groups.consumer.timers import ConsumerTimer
from odradek.groups.shard.deadlines import DeadlineKey
from odradek.groups.shard.formats import GroupMetadataValue, MemberMetadata, group_key, group_value
from odradek.groups.shard.kinds import Group
from odradek.groups.shard.machine import ClusterTopics, GroupMachine
from odradek.groups.shard.step import GroupStep
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import MalformedMessage
from odradek.shards import NewRecord
from odradek.telemetry import events

_log = events.caused_by_peers("groups")

_REJOIN: Final = ErrorCode.REBALANCE_IN_PROGRESS
_AGAIN_MS: Final = 1


def upgraded(group: Group, group_context: GroupContext, step: GroupStep) -> Draft:
    """Returns a consumer group made of a classic one, for a member that joins it. GROUP_ID_NOT_FOUND where that may not be."""
    assert isinstance(group, ClassicGroup)
    draft = draft_of(ConsumerGroup(group.group_id))
    draft.records += group.tombstones()
    if group.is_empty:
        return draft
    _check_upgrade(group, group_context)
    _send_away(group, step)
    # A client that waits for the answer to its first JoinGroup may not even know its id, and would stay as a
    # ghost.
    known = [member for member in group.members.values() if not member.is_new]
    if not known:
        return draft
    try:
        members = [_converted(group, member, group_context.topics) for member in known]
    except MalformedMessage as error:
        raise _cannot(group, f"the embedded consumer protocol is malformed: {error.message}") from error
    for member in members:
        draft.write_profile(member.member_id, member.profile)
    draft.write_epoch(group.generation, 0)
    for member in members:
        holding = member.current.assigned
        draft.write_target(member.member_id, {topic: frozenset(parts) for topic, parts in holding.items()})
    draft.write_target_epoch(group.generation, 0)
    for member in members:
        draft.write_current(member.member_id, member.current)
        group_context.timers.heartbeat_received(member, group_context.settings)
    return draft


def _check_upgrade(group: ClassicGroup, group_context: GroupContext) -> None:
    if not group_context.settings.migration.upgrades:
        raise _cannot(group, "online upgrade is disabled")
    if group.protocol_type != PROTOCOL_TYPE:
        raise _cannot(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > group_context.settings.max_size:
        raise _cannot(group, "the group size exceeds the consumer group maximum size")


def _converted(group: ClassicGroup, member: ClassicMember, topics: ClusterTopics) -> ConsumerGroupMember:
    metadata = member.metadata(group.protocol_name)
    if not metadata and member.protocols:  # before its first generation a group has no protocol
        metadata = member.protocols[0][1]
    subscription = read_subscription(metadata)
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise _cannot(group, "an unsupported custom assignor is in use")
    generation = group.generation
    assigned = by_topic_id(
        {topic.topic: topic.partitions for topic in assignment.assigned_partitions}, topics
    )
    return ConsumerGroupMember(
        member_id=member.member_id,
        profile=ConsumerMemberMetadata(
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=frozenset(subscription.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicSide(session_timeout_ms=member.session_timeout_ms, protocols=member.protocols),
        ),
        current=CurrentAssignment(
            epoch=generation,
            previous_epoch=generation,
            assigned={topic: dict.fromkeys(parts, generation) for topic, parts in assigned.items()},
        ),
    )


def _send_away(group: ClassicGroup, step: GroupStep) -> None:
    """Waiters of the classic rebalance under way join again, and take part in the new one."""
    for member in group.members.values():
        if member.joining is not None:
            step.answer(member.joining, join_refused(_REJOIN, member.member_id))
        if member.syncing is not None:
            step.answer(member.syncing, sync_refused(_REJOIN))


def _cannot(group: Group, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )


# -- the way back


def downgrade_due(
    machine: GroupMachine, group: ConsumerGroup, group_context: GroupContext, step: GroupStep
) -> None:
    """Replaces the group's records by a classic group's: only members of the classic protocol are left."""
    members = list(group.members.values())
    name = _common_protocol(members)
    if (
        not members
        or name is None
        or not group_context.settings.migration.downgrades
        or len(members) > machine.settings.max_size
    ):
        return
    if step.records:  # what others wrote leaves too little room, perhaps
        group_context.timers.begin(ConsumerTimer.DOWNGRADE, _AGAIN_MS)
        group_context.timers.apply()
        return
    records = [*group.tombstones(), _classic_record(group, members, name, group_context)]
    if not machine.fits(records):
        _log.warning(
            "group_not_downgraded", group=group.group_id, reason="its records do not fit into a batch"
        )
        return
    step.records += records
    for member in members:
        group_context.timers.forget(member.member_id)
    group_context.timers.begin(ConsumerTimer.DOWNGRADED, 0)
    group_context.timers.apply()
    _log.info("group_downgraded", group=group.group_id, members=len(members))


def _common_protocol(members: Iterable[ConsumerGroupMember]) -> str | None:
    """Returns the protocol that most members prefer of those that all of them know; None if one of them is no classic
    member."""
    sides = [member.profile.classic for member in members]
    known = [{name for name, _ in side.protocols} if side is not None else set() for side in sides]
    common = set.intersection(*known) if known else set()
    votes = Counter(
        next(name for name, _ in side.protocols if name in common) for side in sides if side and common
    )
    return max(votes, key=lambda name: (votes[name], name), default=None)


def _classic_record(
    group: ConsumerGroup, members: list[ConsumerGroupMember], protocol: str, group_context: GroupContext
) -> NewRecord:
    """Members that have come to the newest target stay in their generation; the others will have to join again."""
    stored = []
    for member in members:
        classic, profile = member.profile.classic, member.profile
        assert classic is not None
        metadata = dict(classic.protocols)[protocol]
        stored.append(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=profile.instance_id,
                client_id=profile.client_id,
                client_host=profile.client_host,
                rebalance_timeout=profile.rebalance_timeout_ms,
                session_timeout=classic.session_timeout_ms,
                subscription=metadata,
                assignment=assignment_bytes(member.current.assigned, group_context.topics, metadata),
            )
        )
    value = GroupMetadataValue(
        protocol_type=PROTOCOL_TYPE,
        generation=group.assignment_epoch,
        protocol=protocol,
        leader=members[0].member_id,
        current_state_timestamp=group_context.now.wall_ms,
        members=stored,
    )
    return NewRecord(group_key(group.group_id), group_value(value))


def downgraded_due(machine: GroupMachine, due: DeadlineKey, step: GroupStep) -> None:
    """Begins a rebalance of the new classic group, to share the last other member's partitions among its members."""
    group = machine.groups.get(due.group_id)
    if isinstance(group, ClassicGroup):
        group.loaded(step.now)
        if group.state is ClassicGroupState.STABLE:
            prepare(machine, group, "the group was downgraded from the consumer protocol", step)
