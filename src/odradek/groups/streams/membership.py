"""Members of a streams group: joining, fencing, static members that come back under another id, and leaving."""

from __future__ import annotations

from dataclasses import replace

from odradek.groups.modern.membership import unknown_member
from odradek.groups.streams.draft import StreamsDraft, write_epoch
from odradek.groups.streams.group import StreamsGroup
from odradek.groups.streams.member import (
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    StreamsCurrentAssignment,
    StreamsMember,
    StreamsMemberState,
)
from odradek.groups.streams.tasks import NOTHING, TaskAssignment, TaskRole
from odradek.model.errors import ErrorCode, KafkaError


def member_of(group: StreamsGroup, member_id: str, instance_id: str | None) -> StreamsMember:
    """Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when the instance id belongs to another member."""
    if instance_id is not None:
        holder = group.statics.get(instance_id)
        if holder is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if holder != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {holder}.",
            )
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(group.group_id, member_id)
    return member


def joining_member(
    draft: StreamsDraft, member_id: str, process_id: str, instance_id: str | None
) -> tuple[StreamsMember, str | None]:
    """Returns the member that joins: new, known already (it was fenced, or lost an answer), or the successor of a static one;
    and the id of the member that it replaces.

    In another process than before it has no tasks: that process may have copies of them already. UNRELEASED_INSTANCE_ID while
    the member that holds the instance id has not left.
    """
    group = draft.group
    holder = group.members.get(group.statics.get(instance_id, "")) if instance_id is not None else None
    if holder is None:
        known = group.members.get(member_id)
        if known is not None and known.profile.process_id != process_id:
            draft.write_current(member_id, StreamsCurrentAssignment())
            known = draft.group.members[member_id]
        return known or StreamsMember(member_id=member_id), None
    if not holder.is_away:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id is "
            f"owned by {holder.member_id} member.",
        )
    target = group.targets.get(holder.member_id)
    current = StreamsCurrentAssignment()
    if holder.profile.process_id == process_id:
        current = replace(holder.current, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    draft.delete_member(holder.member_id)
    draft.write_profile(member_id, holder.profile)
    if target is not None:
        draft.write_target(member_id, target)
    draft.write_current(member_id, current)
    return draft.group.members[member_id], holder.member_id


def check_epoch(member: StreamsMember, epoch: int, owned: TaskAssignment | None) -> None:
    """Raises FENCED_MEMBER_EPOCH. The epoch before is accepted when the answer with the new one may have been lost: a member
    that uses nothing but what it has now can go on from there."""
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    if epoch == member.current.previous_epoch and epoch < member.epoch and _is_within(owned, member):
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {relation} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its tasks and rejoin.",
    )


def _is_within(owned: TaskAssignment | None, member: StreamsMember) -> bool:
    if owned is None:
        return False
    assigned = member.current.assigned
    return all(
        partitions <= assigned.of(role).get(subtopology, frozenset())
        for role in TaskRole
        for subtopology, partitions in owned.of(role).items()
    )


def leave_for_a_while(draft: StreamsDraft, member: StreamsMember) -> None:
    """Lets a static member go that will be back: its tasks stay its own until its session ends."""
    state = member.current.state
    if state is StreamsMemberState.UNREVOKED_TASKS:
        state = StreamsMemberState.UNRELEASED_TASKS
    current = replace(
        member.current,
        epoch=LEAVE_FOR_A_WHILE_EPOCH,
        previous_epoch=LEAVE_FOR_A_WHILE_EPOCH,
        state=state,
        revoking=NOTHING,
        revoking_epochs={},
    )
    draft.write_current(member.member_id, current)


def remove(draft: StreamsDraft, member_id: str) -> None:
    """Removes a member. Its tasks are free; the next heartbeat of any other works out who gets them."""
    draft.delete_member(member_id)
    group = draft.group
    write_epoch(draft, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs)
    draft.catch_up_if_empty()
