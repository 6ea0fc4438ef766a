"""Members of a consumer group: joining, fencing, static members that come back under another id, and leaving."""

from __future__ import annotations

from dataclasses import replace

from odradek.groups.consumer import formats
from odradek.groups.consumer.draft import Draft, bump_epoch
from odradek.groups.consumer.group import ConsumerGroup
from odradek.groups.consumer.group_context import GroupContext
from odradek.groups.consumer.member import (
    EMPTY,
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    ConsumerGroupMember,
    Holding,
)
from odradek.groups.consumer.reconcile import Owned
from odradek.groups.consumer.timers import MemberTimers
from odradek.groups.modern.membership import unknown_member
from odradek.model.errors import ErrorCode, KafkaError


def member_of(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
    """Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when the instance id belongs to another member."""
    if instance_id is not None:
        holder = group.statics.get(instance_id)
        if holder is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {group.group_id!r} has no member with instance id {instance_id!r}",
            )
        if holder != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"instance id {instance_id!r} of group {group.group_id!r} belongs to member {holder!r}",
            )
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(group.group_id, member_id)
    return member


def joining_member(
    draft: Draft, member_id: str, instance_id: str | None, timers: MemberTimers, *, is_classic: bool = False
) -> ConsumerGroupMember:
    """Returns the member that joins: new, or known already (it was fenced, or lost an answer), or the successor of a static
    one.

    UNRELEASED_INSTANCE_ID while the member that holds the instance id has not left, unless one of the two speaks the
    classic protocol, which knows no leaving for a while: there the newcomer takes over.
    """
    group = draft.group
    holder = group.members.get(group.statics.get(instance_id, "")) if instance_id is not None else None
    if holder is None:
        return group.members.get(member_id) or ConsumerGroupMember(member_id=member_id)
    if not (holder.is_away or is_classic or holder.is_classic):
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"instance id {instance_id!r} of group {group.group_id!r} is held by member {holder.member_id!r}",
        )
    return _replaced(draft, holder, member_id, timers)


def _replaced(
    draft: Draft, holder: ConsumerGroupMember, member_id: str, timers: MemberTimers
) -> ConsumerGroupMember:
    """Passes everything that the holder of an instance id had to the member that takes its place."""
    target = draft.group.targets.get(holder.member_id)
    current = replace(holder.current, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    draft.delete_member(holder.member_id)
    timers.forget(holder.member_id)
    draft.write_profile(member_id, holder.profile)
    if target is not None:
        draft.write_target(member_id, target)
    draft.write_current(member_id, current)
    return draft.group.members[member_id]


def check_epoch(member: ConsumerGroupMember, epoch: int, owned: Owned | None) -> None:
    """Raises FENCED_MEMBER_EPOCH. The epoch before is accepted when the answer with the new one may have been lost: a member
    that uses nothing but what it has now can go on from there."""
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    if (
        epoch == member.current.previous_epoch
        and epoch < member.epoch
        and _is_within(owned, member.current.assigned)
    ):
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member {member.member_id!r} has a {relation} epoch ({epoch}) than the one known here ({member.epoch}): "
        "it must give up all partitions and join again",
    )


def _is_within(owned: Owned | None, assigned: Holding) -> bool:
    if owned is None:
        return False
    return all(partitions <= assigned.get(topic, {}).keys() for topic, partitions in owned.items())


def leave_temporarily(draft: Draft, member: ConsumerGroupMember) -> None:
    """Lets a static member go that will be back: its partitions stay its own until its session ends."""
    current = replace(member.current, epoch=LEAVE_FOR_A_WHILE_EPOCH, revoking=EMPTY)
    draft.write_current(member.member_id, current)


def remove(draft: Draft, member_ids: list[str], group_context: GroupContext) -> None:
    """Removes members: what they had is free, and the next heartbeat of any other works out who gets it."""
    for member_id in member_ids:
        regex = draft.group.members[member_id].profile.regex
        draft.delete_member(member_id)
        group_context.timers.forget(member_id)
        if regex in draft.group.regexes and not draft.group.regex_is_used(regex):
            draft.write(formats.RegexKey(group_id=draft.group.group_id, regular_expression=regex), None)
    bump_epoch(draft, group_context.topics, always=True)
    draft.catch_up_if_empty()
    group_context.timers.check_downgrade(draft.group)
