"""ConsumerGroupHeartbeat: one request that joins, keeps alive, subscribes, reconciles and leaves (KIP-848).

A heartbeat of a member does three things, each seeing what the one before wrote: it stores the member's
metadata, which may begin a new group epoch; it computes a target for that epoch; and it brings this member
one step closer to its target.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from odradek.groups.consumer.conversion import upgraded
from odradek.groups.consumer.draft import Draft, bump_epoch, draft_of, finish
from odradek.groups.consumer.group import ConsumerGroup
from odradek.groups.consumer.group_context import GroupContext
from odradek.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    ConsumerGroupMember,
    ConsumerMemberMetadata,
    listed,
)
from odradek.groups.consumer.membership import (
    check_epoch,
    joining_member,
    leave_temporarily,
    member_of,
    remove,
)
from odradek.groups.consumer.reconcile import Goal, Owned, reconcile
from odradek.groups.consumer.targets import (
    change_regex,
    refresh_regexes,
    retarget,
    subscribed_ids,
)
from odradek.groups.consumer.timers import ConsumerTimer
from odradek.groups.modern.membership import check_room, group_not_found, invalid_request
from odradek.groups.shard.kinds import Caller, GroupKind
from odradek.groups.shard.machine import GroupMachine
from odradek.groups.shard.step import GroupStep
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_MEMBER_CHOOSES_ID_SINCE_VERSION = 1

_INTERVAL_UNTOLD: Final = 0
"""A member that leaves sends no more heartbeats."""


def heartbeat(
    machine: GroupMachine,
    group_context: GroupContext,
    request: ConsumerGroupHeartbeatRequest,
    caller: Caller,
    step: GroupStep,
) -> ConsumerGroupHeartbeatResponse:
    """Returns the response; records go into `step`. On an error raises the one to respond with, and changes
    nothing."""
    check_request(request, caller.api_version, group_context.settings.assignors)
    if request.member_epoch < JOIN_EPOCH:
        return _leave(machine, group_context, request, step)
    is_joining = request.member_epoch == JOIN_EPOCH
    draft = _opened(machine, group_context, request.group_id, step, is_joining=is_joining)
    member_id = request.member_id or str(machine.dependencies.new_uuid())
    check_room(draft.group, member_id, group_context.settings.max_size)
    owned = owned_of(request)
    if is_joining:
        member = joining_member(draft, member_id, request.instance_id, group_context.timers)
    else:
        member = member_of(draft.group, member_id, request.instance_id)
        check_epoch(member, request.member_epoch, owned)
    changed = enter(draft, member, _said(member.profile, request, caller), group_context)
    retarget(machine, draft, group_context)
    after = settle(draft, member_id, group_context, owned, subscription_changed=changed)
    group_context.timers.heartbeat_received(after, group_context.settings)
    if after.current is member.current:
        _note_sign_of_life(draft, after, group_context)
    finish(machine, draft, group_context, step)
    tell = is_joining or is_full(request) or _has_other_partitions(member, after)
    return ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=group_context.settings.heartbeat_interval_ms,
        assignment=Assignment(topic_partitions=listed(after.current.assigned)) if tell else None,
    )


def _note_sign_of_life(draft: Draft, member: ConsumerGroupMember, group_context: GroupContext) -> None:
    """Writes a member's record once more if the last one is old: see `MemberTimers.loaded`."""
    noted = draft.group.noted.get(member.member_id)
    if noted is None:  # it is new: its first records are in this draft
        return
    if not 0 <= group_context.now.wall_ms - noted.timestamp < group_context.settings.note_interval_ms:
        draft.write_current(member.member_id, member.current)


def _has_other_partitions(before: ConsumerGroupMember, after: ConsumerGroupMember) -> bool:
    if after.current is before.current:
        return False
    return listed(after.current.assigned) != listed(before.current.assigned)


def _opened(
    machine: GroupMachine, group_context: GroupContext, group_id: str, step: GroupStep, *, is_joining: bool
) -> Draft:
    """Returns the group to decide about: a member that joins may create it, or convert a classic group."""
    group = machine.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return draft_of(group)
    if is_joining and group is None:
        return draft_of(ConsumerGroup(group_id))
    if is_joining and group is not None and group.kind is GroupKind.CLASSIC:
        return upgraded(group, group_context, step)
    raise group_not_found(group_id, group, "consumer")


def _said(
    profile: ConsumerMemberMetadata, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerMemberMetadata:
    """Returns the member's metadata after a heartbeat: fields that it omits have not changed."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return ConsumerMemberMetadata(
        instance_id=profile.instance_id if request.instance_id is None else request.instance_id,
        rack_id=profile.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=profile.topics if names is None else frozenset(names),
        regex=profile.regex if regex is None else regex,
        rebalance_timeout_ms=profile.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=profile.assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def enter(
    draft: Draft, member: ConsumerGroupMember, profile: ConsumerMemberMetadata, group_context: GroupContext
) -> bool:
    """Writes a member's metadata, and a new group epoch if that, or the cluster, changed the subscribed topics.

    Returns whether the member's subscription changed. INVALID_REGULAR_EXPRESSION.
    """
    member_id, before, topics = member.member_id, member.profile, group_context.topics
    if member_id not in draft.group.members or profile != before:
        draft.write_profile(member_id, profile)
    if profile.regex != before.regex:
        change_regex(draft, before.regex, profile.regex, group_context)
    changed = profile.topics != before.topics or profile.regex != before.regex
    group = draft.group
    is_checked = group.checked_version == topics.version
    if not is_checked:
        is_checked = refresh_regexes(draft, group_context)
    elif not (changed or group.epoch == 0):
        return False
    bump_epoch(draft, topics, always=changed)
    if is_checked:
        draft.group.checked_version = topics.version
    return changed


def settle(
    draft: Draft,
    member_id: str,
    group_context: GroupContext,
    owned: Owned | None,
    *,
    subscription_changed: bool,
) -> ConsumerGroupMember:
    """Takes the member one step towards its target. Raises FENCED_MEMBER_EPOCH for one that has to begin again."""
    group = draft.group
    member = group.members[member_id]
    if not subscription_changed and member.current.is_reconciled_to(group.assignment_epoch):
        return member
    goal = Goal(
        target_epoch=group.assignment_epoch,
        target=group.target(member_id),
        subscribed=subscribed_ids(group, member.profile, group_context.topics),
        subscription_changed=subscription_changed,
        is_free=group.is_free,
    )
    current = reconcile(member.current, goal, owned)
    if current == member.current:
        return member
    draft.write_current(member_id, current)
    after = draft.group.members[member_id]
    group_context.timers.moved(after)
    return after


def _leave(
    machine: GroupMachine,
    group_context: GroupContext,
    request: ConsumerGroupHeartbeatRequest,
    step: GroupStep,
) -> ConsumerGroupHeartbeatResponse:
    group = machine.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        raise group_not_found(request.group_id, None, "consumer")
    member = member_of(group, request.member_id, request.instance_id)
    draft = draft_of(group)
    if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
        leave_temporarily(draft, member)
        group_context.timers.end(ConsumerTimer.REBALANCE, member.member_id)
    else:
        remove(draft, [member.member_id], group_context)
    finish(machine, draft, group_context, step)
    return ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=_INTERVAL_UNTOLD,
    )


def check_request(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: tuple[str, ...]
) -> None:
    """Raises INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    needs_id = api_version >= _MEMBER_CHOOSES_ID_SINCE_VERSION or epoch > 0 or epoch == LEAVE_EPOCH
    if needs_id and not request.member_id:
        raise invalid_request("MemberId can't be empty.")
    if not request.group_id:
        raise invalid_request("GroupId can't be empty.")
    if request.instance_id == "":
        raise invalid_request("InstanceId can't be empty.")
    if request.rack_id == "":
        raise invalid_request("RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_FOR_A_WHILE_EPOCH:
        if request.instance_id is None:
            raise invalid_request("InstanceId can't be null.")
    elif epoch < LEAVE_FOR_A_WHILE_EPOCH:
        raise invalid_request(f"MemberEpoch {epoch} is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid_request("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise invalid_request("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise invalid_request(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Returns whether the heartbeat is complete, as when a member joins and after errors: then the answer is, too."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None


def owned_of(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    """Returns the partitions that the member reports; None when it omits them, because nothing changed."""
    if request.topic_partitions is None:
        return None
    owned: dict[UUID, set[int]] = {}
    for partition in request.topic_partitions:
        owned.setdefault(partition.topic_id, set()).update(partition.partitions)
    return owned
