"""SyncGroup, Heartbeat and LeaveGroup of a classic group."""

from __future__ import annotations

from odradek.groups.classic.answers import assigned, sync_refused
from odradek.groups.classic.group import ClassicGroup
from odradek.groups.classic.rebalance import (
    complete_if_possible,
    prepare,
    refuse_syncs,
    remove_member,
)
from odradek.groups.classic.states import ClassicGroupState
from odradek.groups.classic.timers import sync_of
from odradek.groups.shard.machine import GroupMachine
from odradek.groups.shard.step import GroupStep
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest
from odradek.protocol.messages.groups.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.shards import Ticket


def sync(
    machine: GroupMachine,
    group: ClassicGroup,
    request: SyncGroupRequest,
    ticket: Ticket[SyncGroupResponse],
    step: GroupStep,
) -> None:
    """Answers through the ticket: the leader, and the waiters, once the assignment is durable."""
    try:
        _check_sync(group, request)
    except KafkaError as error:
        step.answer(ticket, sync_refused(error.code))
        return
    member = group.members[request.member_id]
    if group.state is ClassicGroupState.STABLE:
        _has_synced(machine, group, member.member_id)
        step.answer(ticket, assigned(group, member.assignment))
        return
    if member.syncing is not None:  # an earlier request of the same member, whose sender gave up
        step.answer(member.syncing, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
    member.syncing = ticket
    _has_synced(machine, group, member.member_id)
    if group.leader_id == member.member_id:
        _assign(
            machine,
            group,
            {assignment.member_id: assignment.assignment for assignment in request.assignments},
            step,
        )


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> None:
    _check_generation(group, request.member_id, request.group_instance_id, request.generation_id)
    for requested, actual in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if requested is not None and actual is not None and requested != actual:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group.group_id!r} uses {actual!r}, the request says {requested!r}",
            )
    if group.state is ClassicGroupState.PREPARING:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def _check_generation(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> None:
    group.check_member(member_id, instance_id)
    if generation != group.generation:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"group {group.group_id!r} is in generation {group.generation}, the request says {generation}",
        )


def _assign(
    machine: GroupMachine, group: ClassicGroup, assignments: dict[str, bytes], step: GroupStep
) -> None:
    """Writes the record that makes the generation stable; members without an assignment get an empty one."""
    value = group.value(step.now, assignments=assignments)
    record = group.record_of(value)
    if not machine.fits([record]):
        refuse_syncs(group, ErrorCode.UNKNOWN_SERVER_ERROR, step)
        prepare(machine, group, "the assignment is larger than max.message.bytes", step)
        return
    group.will_replay(record, value)
    step.records.append(record)
    for member in group.members.values():
        if member.syncing is not None:
            step.answer(member.syncing, assigned(group, assignments.get(member.member_id, b"")))
            member.syncing = None
            group.keep_alive(member, step.now)


def _has_synced(machine: GroupMachine, group: ClassicGroup, member_id: str) -> None:
    group.pending_syncs.pop(member_id, None)
    if not group.pending_syncs:
        machine.deadlines.cancel(sync_of(group.group_id))


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, step: GroupStep) -> None:
    """Raises the error to respond with; with REBALANCE_IN_PROGRESS, too, the member stays alive."""
    _check_generation(group, request.member_id, request.group_instance_id, request.generation_id)
    group.keep_alive(group.members[request.member_id], step.now)
    if group.state is ClassicGroupState.PREPARING:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id!r} rebalances: join again")


def leave(
    machine: GroupMachine, group: ClassicGroup, request: LeaveGroupRequest, step: GroupStep
) -> LeaveGroupResponse:
    """Removes each member by its id, or (an administrator's way) a static one by its instance id alone."""
    responses = [_leave_one(group, identity, step) for identity in request.members]
    if any(response.error_code == ErrorCode.NONE for response in responses):
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING):
            prepare(machine, group, "members left", step)
        else:
            complete_if_possible(machine, group, step)
    return LeaveGroupResponse(members=responses)


def _leave_one(group: ClassicGroup, identity: MemberIdentity, step: GroupStep) -> MemberResponse:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    response = MemberResponse(member_id=member_id, group_instance_id=instance_id)
    if member_id in group.pending_joins:
        group.remove(member_id)
        return response
    try:
        if not member_id:
            member_id = group.statics.get(instance_id or "", "")
        group.check_member(member_id, instance_id)
    except KafkaError as error:
        return response.replace(error_code=error.code)
    remove_member(group, group.members[member_id], step)
    return response
