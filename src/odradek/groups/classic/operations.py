"""The classic protocol as operations on the machine, whatever kind of group it turns out to be about.

Groups of the consumer protocol whose members may speak the classic one have a `ClassicFace`; one without members becomes a
classic group when a classic member joins it. To everything else the group is unknown, or of an inconsistent protocol.
"""

from __future__ import annotations

from typing import Protocol, cast

from odradek.groups.classic.answers import join_refused, sync_refused
from odradek.groups.classic.group import ClassicGroup
from odradek.groups.classic.joining import join as join_classic
from odradek.groups.classic.rebalance import forget_if_unstored
from odradek.groups.classic.syncing import heartbeat as heartbeat_classic
from odradek.groups.classic.syncing import leave as leave_classic
from odradek.groups.classic.syncing import sync as sync_classic
from odradek.groups.shard.kinds import (
    NAME_BYTES_MAX,
    Caller,
    Group,
    GroupKind,
    check_group_id,
)
from odradek.groups.shard.machine import GroupMachine
from odradek.groups.shard.step import GroupStep
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.messages.groups.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.shards import Moment, Outcome, Ticket


class ClassicFace(Protocol):
    """A group of another kind whose members may speak the classic protocol too (KIP-848's migration)."""

    def join(
        self,
        machine: GroupMachine,
        request: JoinGroupRequest,
        caller: Caller,
        ticket: Ticket[JoinGroupResponse],
        step: GroupStep,
    ) -> None: ...

    def sync(
        self,
        machine: GroupMachine,
        request: SyncGroupRequest,
        caller: Caller,
        ticket: Ticket[SyncGroupResponse],
        step: GroupStep,
    ) -> None: ...

    def heartbeat(self, machine: GroupMachine, request: HeartbeatRequest, step: GroupStep) -> None:
        """Raises the error to answer, REBALANCE_IN_PROGRESS among them."""

    def leave(
        self, machine: GroupMachine, request: LeaveGroupRequest, step: GroupStep
    ) -> LeaveGroupResponse: ...


def join(
    machine: GroupMachine,
    now: Moment,
    *,
    request: JoinGroupRequest,
    caller: Caller,
    ticket: Ticket[JoinGroupResponse],
) -> Outcome[None]:
    check_group_id(request.group_id)
    settings, step = machine.settings, GroupStep(now)
    least, most = settings.min_session_timeout_ms, settings.max_session_timeout_ms
    if not least <= request.session_timeout_ms <= most:
        raise KafkaError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session.timeout.ms is {request.session_timeout_ms}, this broker allows {least} to {most}",
        )
    _check_size(machine, request)
    group = machine.groups.get(request.group_id)
    if group is not None and group.kind is GroupKind.CONSUMER and not group.is_empty:
        cast(ClassicFace, group).join(machine, request, caller, ticket, step)
    elif group is not None and not _gives_way(group):
        step.answer(ticket, join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    elif not isinstance(group, ClassicGroup) and request.member_id:
        step.answer(ticket, join_refused(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
    else:
        _join_classic(machine, group, request, caller, ticket, step)
    return step.outcome(None)


def _gives_way(group: Group) -> bool:
    """Returns whether members of the classic protocol may join: share groups stay, and streams groups with members."""
    if group.kind is GroupKind.STREAMS:
        return group.is_empty
    return group.kind in (GroupKind.CLASSIC, GroupKind.CONSUMER)


def _check_size(machine: GroupMachine, request: JoinGroupRequest) -> None:
    """Raises MESSAGE_TOO_LARGE for what no record of the group could hold."""
    length = len(request.group_instance_id or "") + len(request.protocol_type)
    weight = 0
    for protocol in request.protocols:
        length += len(protocol.name)
        weight += len(protocol.metadata)
    # A character has at most four bytes.
    too_long = length * 4 > NAME_BYTES_MAX and _has_long_name(request)
    if too_long or weight > machine.dependencies.batch_bytes_max():
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"what the member says of itself ({weight} bytes) fits no record"
        )


def _has_long_name(request: JoinGroupRequest) -> bool:
    names = [request.group_instance_id or "", request.protocol_type]
    names += [protocol.name for protocol in request.protocols]
    return any(len(name.encode()) > NAME_BYTES_MAX for name in names)


def _join_classic(
    machine: GroupMachine,
    known: Group | None,
    request: JoinGroupRequest,
    caller: Caller,
    ticket: Ticket[JoinGroupResponse],
    step: GroupStep,
) -> None:
    """Joins the group, or a new one; an empty one of the other protocol gives way to it."""
    group = known if isinstance(known, ClassicGroup) else ClassicGroup(request.group_id, machine.deadlines)
    join_classic(machine, group, request, caller, ticket, step)
    if group is not known and not group.is_unstored:
        if known is not None:
            step.records[:0] = known.tombstones()
        machine.groups[group.group_id] = group


def sync(
    machine: GroupMachine,
    now: Moment,
    *,
    request: SyncGroupRequest,
    caller: Caller,
    ticket: Ticket[SyncGroupResponse],
) -> Outcome[None]:
    check_group_id(request.group_id)
    step = GroupStep(now)
    group = machine.groups.get(request.group_id)
    if isinstance(group, ClassicGroup):
        sync_classic(machine, group, request, ticket, step)
    elif group is not None and group.kind is GroupKind.CONSUMER and not group.is_empty:
        cast(ClassicFace, group).sync(machine, request, caller, ticket, step)
    else:
        step.answer(ticket, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    return step.outcome(None)


def heartbeat(machine: GroupMachine, now: Moment, *, request: HeartbeatRequest) -> Outcome[HeartbeatResponse]:
    check_group_id(request.group_id)
    step = GroupStep(now)
    group = machine.groups.get(request.group_id)
    try:
        if isinstance(group, ClassicGroup):
            heartbeat_classic(group, request, step)
        elif group is not None and group.kind is GroupKind.CONSUMER:
            cast(ClassicFace, group).heartbeat(machine, request, step)
        else:
            raise _unknown(request.group_id)
    except KafkaError as error:
        return step.outcome(HeartbeatResponse(error_code=error.code))
    return step.outcome(HeartbeatResponse())


def leave(machine: GroupMachine, now: Moment, *, request: LeaveGroupRequest) -> Outcome[LeaveGroupResponse]:
    check_group_id(request.group_id)
    step = GroupStep(now)
    group = machine.groups.get(request.group_id)
    if isinstance(group, ClassicGroup):
        response = leave_classic(machine, group, request, step)
        forget_if_unstored(machine, group, step)
    elif group is not None and group.kind is GroupKind.CONSUMER:
        response = cast(ClassicFace, group).leave(machine, request, step)
    else:
        code = ErrorCode.UNKNOWN_MEMBER_ID
        response = LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
                )
                for member in request.members
            ]
        )
    return step.outcome(response)


def _unknown(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}: join it first")
