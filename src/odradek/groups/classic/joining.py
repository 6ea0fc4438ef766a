"""JoinGroup: who may enter, under which id, and what that means for the group's generation."""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.groups.classic.answers import join_refused, joined, sync_refused
from odradek.groups.classic.group import ClassicGroup
from odradek.groups.classic.member import ClassicGroupMember, Protocols
from odradek.groups.classic.rebalance import (
    answer_join,
    complete_if_possible,
    prepare,
    rebalance_or_go_on,
)
from odradek.groups.classic.states import ClassicGroupState
from odradek.groups.classic.timers import session_of
from odradek.groups.shard.kinds import Caller
from odradek.groups.shard.machine import GroupMachine
from odradek.groups.shard.step import GroupStep
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.shards import Ticket

_SINCE_MEMBER_ID_REQUIRED: Final = 4
_SINCE_SKIP_ASSIGNMENT: Final = 9
_STEM_LENGTH_MAX: Final = 255
"""The longest part of a client id in a member id: member ids must fit into records, and unused ones take little memory."""
_BATCHES_HELD_MAX: Final = 16
"""How many batches a group's metadata may fill; clients offer fewer protocols than that."""
_ISSUED_IDS_MAX: Final = 2_000
"""How many unused member ids a shard keeps."""
_GIVEN_MS_MAX: Final = 300_000
"""How long a member id may be unused; a client comes back with it at once."""


class Join(NamedTuple):
    """One JoinGroup request under way."""

    machine: GroupMachine
    group: ClassicGroup
    request: JoinGroupRequest
    caller: Caller
    ticket: Ticket[JoinGroupResponse]
    step: GroupStep
    protocols: Protocols

    @property
    def rebalance_timeout_ms(self) -> int:
        """The rebalance timeout; before version 1 the session timeout, the only one there."""
        timeout_ms = self.request.rebalance_timeout_ms
        return self.request.session_timeout_ms if timeout_ms < 0 else timeout_ms

    def refuse(self, code: ErrorCode, member_id: str = "") -> None:
        self.step.answer(self.ticket, join_refused(code, member_id))


def join(
    machine: GroupMachine,
    group: ClassicGroup,
    request: JoinGroupRequest,
    caller: Caller,
    ticket: Ticket[JoinGroupResponse],
    step: GroupStep,
) -> None:
    """Answers through the ticket, now or when the generation is formed."""
    protocols = tuple({protocol.name: protocol.metadata for protocol in request.protocols}.items())
    # A third of the price of `Join(...)`, which is a function of Python.
    joining = tuple.__new__(Join, (machine, group, request, caller, ticket, step, protocols))
    member_id = request.member_id
    if not _has_room(machine, group, member_id) or not _can_hold(machine, group, protocols):
        group.remove(member_id)
        joining.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
        complete_if_possible(machine, group, step)
    elif not group.supports(request.protocol_type, [name for name, _ in protocols]):
        joining.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    elif member_id:
        _join_known(joining)
    else:
        _join_unknown(joining)


def _has_room(machine: GroupMachine, group: ClassicGroup, member_id: str) -> bool:
    size_max = machine.settings.max_size
    if group.state is ClassicGroupState.EMPTY:
        return True
    if group.state is ClassicGroupState.PREPARING:
        member = group.members.get(member_id)
        is_waiting = member is not None and member.joining is not None
        return is_waiting or len(group.members) < size_max or group.joining_count < size_max
    return member_id in group.members or len(group.members) < size_max


def _can_hold(machine: GroupMachine, group: ClassicGroup, protocols: Protocols) -> bool:
    """Returns whether the metadata of all members may fit a batch for the chosen protocol. Far beyond that the group can
    never be formed, and would only fill the memory."""
    weight_bytes = sum(len(metadata) for _, metadata in protocols)
    return group.metadata_bytes + weight_bytes <= _BATCHES_HELD_MAX * machine.dependencies.batch_bytes_max()


# -- newcomers


def _join_unknown(joining: Join) -> None:
    group, request = joining.group, joining.request
    instance_id = request.group_instance_id
    stem = joining.caller.client_id if instance_id is None else instance_id
    member_id = f"{stem[:_STEM_LENGTH_MAX]}-{joining.machine.dependencies.new_uuid()}"
    if instance_id is not None:
        holder = group.members.get(group.statics.get(instance_id, ""))
        if holder is None:
            _add(joining, member_id)
        else:
            _replace_static_member(joining, holder, member_id)
    elif joining.caller.api_version >= _SINCE_MEMBER_ID_REQUIRED:
        _give_id(joining, member_id)
    else:
        _add(joining, member_id)


def _give_id(joining: Join, member_id: str) -> None:
    """Gives the client a member id until the session timeout or `_GIVEN_MS_MAX`; for a shorter time when too many ids are
    unused."""
    group, machine = joining.group, joining.machine
    group.pending_joins[member_id] = None
    expiry_ms = joining.step.now.monotonic_ms + min(joining.request.session_timeout_ms, _GIVEN_MS_MAX)
    machine.deadlines.set(session_of(group.group_id, member_id), expiry_ms)
    joining.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    issued = machine.issued_ids
    issued[group.group_id, member_id] = None
    if len(issued) > _ISSUED_IDS_MAX:
        for key in [key for key in issued if not _is_unused(machine, *key)]:
            del issued[key]
        for key in list(issued)[: max(0, len(issued) - _ISSUED_IDS_MAX // 2)]:
            del issued[key]
            machine.deadlines.set(session_of(*key), joining.step.now.monotonic_ms)


def _is_unused(machine: GroupMachine, group_id: str, member_id: str) -> bool:
    group = machine.groups.get(group_id)
    return isinstance(group, ClassicGroup) and member_id in group.pending_joins


def _add(joining: Join, member_id: str) -> None:
    group, request = joining.group, joining.request
    member = ClassicGroupMember(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=joining.caller.client_id,
        client_host=joining.caller.client_host,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=joining.protocols,
        joining=joining.ticket,
        is_new=True,
    )
    if group.state is ClassicGroupState.PREPARING and group.rebalances_first:
        group.newcomers = True
    group.add(member, request.protocol_type)
    # It cannot send heartbeats before it is answered. The group must not wait without end for a client that
    # left and returned under another id.
    group.keep_alive(member, joining.step.now, timeout_ms=joining.machine.settings.new_member_join_timeout_ms)
    rebalance_or_go_on(
        joining.machine, group, f"member {member_id} joins: {request.reason or ''}", joining.step
    )


def _replace_static_member(joining: Join, holder: ClassicGroupMember, member_id: str) -> None:
    """Gives the place of a static member to a new one that came back (or a second process with its instance id: KIP-345)."""
    group, step = joining.group, joining.step
    leader_before = group.leader_id
    answer_join(holder, join_refused(ErrorCode.FENCED_INSTANCE_ID, holder.member_id), step)
    if holder.syncing is not None:
        step.answer(holder.syncing, sync_refused(ErrorCode.FENCED_INSTANCE_ID))
        holder.syncing = None
    group.rename(holder, member_id)
    group.keep_alive(holder, step.now)
    group.update(holder, joining.protocols, joining.rebalance_timeout_ms, joining.request.session_timeout_ms)
    holder.joining = joining.ticket
    holder.is_new = False  # it has got an id before: while it waits, it is alive
    if group.state is ClassicGroupState.STABLE and group.choose_protocol() == group.protocol_name:
        _stay_stable(joining, holder, leader_before)
    elif group.state is ClassicGroupState.PREPARING:
        complete_if_possible(joining.machine, group, step)
    else:
        # In CompletingRebalance too: the leader may be assigning partitions to the old id.
        prepare(joining.machine, group, f"static member {member_id} replaces another", step)


def _stay_stable(joining: Join, member: ClassicGroupMember, leader_before: str | None) -> None:
    """Keeps the group stable: the same instance with the same protocol keeps its assignment, and the others never notice."""
    group, step = joining.group, joining.step
    record = group.record(step.now)
    if not joining.machine.fits([record]):
        prepare(joining.machine, group, "the group's record is too large to be changed", step)
        return
    step.records.append(record)
    group.keep_alive(member, step.now)
    if joining.caller.api_version >= _SINCE_SKIP_ASSIGNMENT:
        is_leader = group.leader_id == member.member_id
        response = joined(group, member, tell_members=True, skip_assignment=is_leader)
    else:
        # No response makes older clients skip the assignment (KIP-814): a leader that finds another's id takes itself for a
        # follower, and asks for the assignment it had.
        response = joined(group, member, tell_members=False, leader_id=leader_before)
    answer_join(member, response, step)


# -- members that are known


def _join_known(joining: Join) -> None:
    group, request, member_id = joining.group, joining.request, joining.request.member_id
    if member_id in group.pending_joins:
        if request.group_instance_id is not None:
            joining.refuse(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        else:
            joining.machine.issued_ids.pop((group.group_id, member_id), None)
            _add(joining, member_id)
        return
    try:
        group.check_member(member_id, request.group_instance_id)
    except KafkaError as error:
        joining.refuse(error.code, member_id)
        return
    member = group.members[member_id]
    has_changed = member.protocols != joining.protocols
    if group.state is ClassicGroupState.PREPARING:
        _rejoin(joining, member, "joins again")
    elif has_changed or (group.state is ClassicGroupState.STABLE and group.leader_id == member_id):
        # The leader may know of changes that metadata does not show, for example of topics that grew.
        _rejoin(joining, member, "has other metadata" if has_changed else "leads, and asks for a rebalance")
    else:
        # It lost the answer to an earlier request: the generation it asks for is the one it is in.
        joining.step.answer(
            joining.ticket, joined(group, member, tell_members=group.state is ClassicGroupState.COMPLETING)
        )


def _rejoin(joining: Join, member: ClassicGroupMember, why: str) -> None:
    group = joining.group
    group.update(member, joining.protocols, joining.rebalance_timeout_ms, joining.request.session_timeout_ms)
    if member.joining is not None:  # an earlier request of the same member, whose sender gave up
        joining.step.answer(member.joining, join_refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    member.joining = joining.ticket
    reason = f"member {member.member_id} {why}: {joining.request.reason or ''}"
    rebalance_or_go_on(joining.machine, group, reason, joining.step)
