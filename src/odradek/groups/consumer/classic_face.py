"""Members of the classic protocol in a consumer group: their four requests, translated to epochs (KIP-848's
migration).

A JoinGroup is a full heartbeat: it has the member's subscription and partitions, and is answered at once,
with the member's epoch for a generation and never with the leader's part. A SyncGroup asks for what the
member has now. A Heartbeat's answer is to join again when the member's epoch lags, or when it must revoke
partitions or can fetch some.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from odradek.groups.classic.answers import join_refused, sync_refused
from odradek.groups.consumer.consumer_protocol import (
    PROTOCOL_TYPE,
    assignment_bytes,
    by_topic_id,
    read_subscription,
)
from odradek.groups.consumer.draft import draft_of, finish
from odradek.groups.consumer.group import ConsumerGroup
from odradek.groups.consumer.group_context import GroupContext
from odradek.groups.consumer.heartbeats import enter, settle
from odradek.groups.consumer.member import (
    ClassicSide,
    ConsumerGroupMember,
    ConsumerMemberMetadata,
    MemberState,
)
from odradek.groups.consumer.membership import joining_member, member_of, remove
from odradek.groups.consumer.targets import retarget
from odradek.groups.consumer.timers import ConsumerTimer
from odradek.groups.modern.membership import check_room
from odradek.groups.shard.kinds import Caller
from odradek.groups.shard.machine import GroupMachine
from odradek.groups.shard.step import GroupStep
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import MalformedMessage
from odradek.protocol.messages.groups.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.messages.groups.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.shards import Ticket

_SINCE_MEMBER_ID_REQUIRED: Final = 4


def join(
    machine: GroupMachine,
    group: ConsumerGroup,
    group_context: GroupContext,
    request: JoinGroupRequest,
    caller: Caller,
    ticket: Ticket[JoinGroupResponse],
    step: GroupStep,
) -> None:
    """Answers through the ticket, refusals too."""
    stem = request.group_instance_id or caller.client_id
    member_id = request.member_id or f"{stem}-{machine.dependencies.new_uuid()}"
    try:
        response = _joined(
            machine, group, group_context, request.replace(member_id=member_id), request, caller, step
        )
    except KafkaError as error:
        refused_id = member_id if error.code is ErrorCode.MEMBER_ID_REQUIRED else request.member_id
        step.answer(ticket, join_refused(error.code, refused_id))
        return
    step.answer(ticket, response)


def _joined(
    machine: GroupMachine,
    group: ConsumerGroup,
    group_context: GroupContext,
    request: JoinGroupRequest,
    original: JoinGroupRequest,
    caller: Caller,
    step: GroupStep,
) -> JoinGroupResponse:
    member_id, instance_id = request.member_id, request.group_instance_id
    check_room(group, member_id, group_context.settings.max_size)
    _check_protocols(group, request)
    is_unknown = not original.member_id
    if is_unknown and instance_id is None and caller.api_version >= _SINCE_MEMBER_ID_REQUIRED:
        raise KafkaError(ErrorCode.MEMBER_ID_REQUIRED)
    draft = draft_of(group)
    if instance_id is not None and not is_unknown:
        member = member_of(group, member_id, instance_id)
    else:
        member = joining_member(draft, member_id, instance_id, group_context.timers, is_classic=True)
    subscription = _subscription(request)
    group_context = replace(group_context, may_describe=caller.may_describe)
    changed = enter(draft, member, _said(request, subscription, caller), group_context)
    retarget(machine, draft, group_context)
    owned = by_topic_id(
        {
            owned_partition.topic: owned_partition.partitions
            for owned_partition in subscription.owned_partitions
        },
        group_context.topics,
    )
    after = settle(draft, member_id, group_context, owned, subscription_changed=changed)
    timers = group_context.timers
    timers.heartbeat_received(after, group_context.settings)
    timers.end(ConsumerTimer.JOIN, member_id)
    timers.begin(ConsumerTimer.SYNC, after.profile.rebalance_timeout_ms, member_id)
    timers.check_downgrade(draft.group)
    finish(machine, draft, group_context, step)
    return JoinGroupResponse(
        generation_id=after.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=_protocol_name(after),
        member_id=member_id,
    )


def _check_protocols(group: ConsumerGroup, request: JoinGroupRequest) -> None:
    names = {protocol.name for protocol in request.protocols}
    known = [
        {name for name, _ in member.profile.classic.protocols}
        for member in group.members.values()
        if member.profile.classic is not None and member.member_id != request.member_id
    ]
    if request.protocol_type != PROTOCOL_TYPE or not names.intersection(*known):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.group_id!r} does not support the member's protocols",
        )


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """Returns the member's subscription: all protocols contain the same one."""
    try:
        return read_subscription(bytes(request.protocols[0].metadata))
    except MalformedMessage as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the member's subscription cannot be read: {error.message}",
        ) from error


def _said(
    request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, caller: Caller
) -> ConsumerMemberMetadata:
    timeout_ms = request.rebalance_timeout_ms
    return ConsumerMemberMetadata(
        instance_id=request.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=request.session_timeout_ms if timeout_ms < 0 else timeout_ms,
        classic=ClassicSide(
            session_timeout_ms=request.session_timeout_ms,
            protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        ),
    )


def sync(
    group: ConsumerGroup,
    group_context: GroupContext,
    request: SyncGroupRequest,
    ticket: Ticket[SyncGroupResponse],
    step: GroupStep,
) -> None:
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        _check_names(member, request)
        if group.epoch > member.epoch and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
            _expect_join(group_context, member)
            group_context.timers.apply()
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    except KafkaError as error:
        step.answer(ticket, sync_refused(error.code))
        return
    assert member.profile.classic is not None
    group_context.timers.end(ConsumerTimer.SYNC, member.member_id)
    group_context.timers.heartbeat_received(member, group_context.settings)
    group_context.timers.apply()
    metadata = member.profile.classic.protocols[0][1]
    response = SyncGroupResponse(
        protocol_type=PROTOCOL_TYPE,
        protocol_name=_protocol_name(member),
        assignment=assignment_bytes(member.current.assigned, group_context.topics, metadata),
    )
    step.answer(ticket, response)


def heartbeat(group: ConsumerGroup, group_context: GroupContext, request: HeartbeatRequest) -> None:
    """Raises the error to respond with; with REBALANCE_IN_PROGRESS, too, the member stays alive."""
    member = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    group_context.timers.heartbeat_received(member, group_context.settings)
    must_rejoin = _must_rejoin(group, member)
    if must_rejoin:
        _expect_join(group_context, member)
    group_context.timers.apply()
    if must_rejoin:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id!r} rebalances: join again")


def leave(
    machine: GroupMachine,
    group: ConsumerGroup,
    group_context: GroupContext,
    request: LeaveGroupRequest,
    step: GroupStep,
) -> LeaveGroupResponse:
    """Removes each member by its id, or a static one by its instance id alone. Administrators remove members of both
    protocols in these ways (KAFKA-18188)."""
    leaving: dict[str, None] = {}
    responses = []
    for identity in request.members:
        response = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        try:
            leaving[_leaver(group, identity).member_id] = None
        except KafkaError as error:
            response = response.replace(error_code=error.code)
        responses.append(response)
    if leaving:
        draft = draft_of(group)
        remove(draft, list(leaving), group_context)
        finish(machine, draft, group_context, step)
    return LeaveGroupResponse(members=responses)


def _leaver(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerGroupMember:
    if identity.member_id:
        return member_of(group, identity.member_id, identity.group_instance_id)
    holder = group.statics.get(identity.group_instance_id or "")
    return member_of(group, holder or "", identity.group_instance_id)


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
    member = member_of(group, member_id, instance_id)
    if not member.is_classic:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id!r} does not use the classic protocol"
        )
    return member


def _check_generation(member: ConsumerGroupMember, generation: int) -> None:
    if generation != member.epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"member {member.member_id!r} is in generation {member.epoch}, the request says {generation}",
        )


def _check_names(member: ConsumerGroupMember, request: SyncGroupRequest) -> None:
    for requested, actual in (
        (request.protocol_type, PROTOCOL_TYPE),
        (request.protocol_name, _protocol_name(member)),
    ):
        if requested is not None and requested != actual:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the member got {actual!r}, and says {requested!r}"
            )


def _must_rejoin(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """Returns whether the member's epoch lags, or it must revoke partitions, or it can fetch partitions that
    others revoked."""
    state = member.current.state
    if member.epoch < group.epoch or state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member)


def _waits_for_others(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    mine = member.current.assigned
    return any(
        partition not in mine.get(topic, {}) and not group.is_free(topic, partition)
        for topic, partitions in group.target(member.member_id).items()
        for partition in partitions
    )


def _expect_join(group_context: GroupContext, member: ConsumerGroupMember) -> None:
    group_context.timers.begin_once(ConsumerTimer.JOIN, member.profile.rebalance_timeout_ms, member.member_id)


def _protocol_name(member: ConsumerGroupMember) -> str:
    assert member.profile.classic is not None
    return member.profile.classic.protocols[0][0]
