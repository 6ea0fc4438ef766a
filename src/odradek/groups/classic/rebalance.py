"""Takes a classic group from one generation to the next.

    prepare   heartbeat responses make members join again; the group waits for them
    complete  those that joined are the next generation; its leader learns who they are
    (sync)    the leader's assignment makes the generation stable: `syncing.py`

The first rebalance of an empty group waits `group.initial.rebalance.delay.ms`, and again as long as members keep coming, up
to the group's rebalance timeout. Later ones wait for all members, up to that timeout; dynamic members who did not come are
removed, static ones keep their place until their session ends (KIP-345).
"""

from __future__ import annotations

from odradek.groups.classic.answers import joined, sync_refused
from odradek.groups.classic.group import ClassicGroup
from odradek.groups.classic.member import ClassicGroupMember
from odradek.groups.classic.states import CAN_REBALANCE, ClassicGroupState
from odradek.groups.classic.timers import join_of, sync_of
from odradek.groups.shard.kinds import GroupKind
from odradek.groups.shard.machine import GroupMachine
from odradek.groups.shard.step import GroupStep
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.groups.join_group import JoinGroupResponse
from odradek.telemetry import events

_log = events.caused_by_peers("groups")


def classic_group(machine: GroupMachine, group_id: str) -> ClassicGroup | None:
    """Returns the group, unless there is none, or one of another kind."""
    group = machine.group_of_kind(group_id, GroupKind.CLASSIC)
    assert group is None or isinstance(group, ClassicGroup)
    return group


def forget_if_unstored(machine: GroupMachine, group: ClassicGroup, step: GroupStep) -> None:
    """Forgets a group without records when the last that wanted to join it has left."""
    if group.is_unstored and not step.records and not machine.has_offsets(group.group_id):
        machine.forget(group)


def rebalance_or_go_on(machine: GroupMachine, group: ClassicGroup, reason: str, step: GroupStep) -> None:
    """Begins a rebalance, or completes the one under way if that is possible."""
    if group.state in CAN_REBALANCE:
        prepare(machine, group, reason, step)
    else:
        complete_if_possible(machine, group, step)


def prepare(machine: GroupMachine, group: ClassicGroup, reason: str, step: GroupStep) -> None:
    if group.state is ClassicGroupState.COMPLETING:
        refuse_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, step)
    group.pending_syncs.clear()
    machine.deadlines.cancel(sync_of(group.group_id))
    group.rebalances_first = group.state is ClassicGroupState.EMPTY
    group.transition(ClassicGroupState.PREPARING, step.now)
    _log.debug("rebalance_begins", group=group.group_id, generation=group.generation, reason=reason)
    if group.rebalances_first:
        delay_ms = machine.settings.initial_rebalance_delay_ms
        group.newcomers = False
        group.delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        machine.deadlines.set(join_of(group.group_id), step.now.monotonic_ms + delay_ms)
    elif group.all_joined:
        complete(machine, group, step)
    else:
        _wait_for_members(machine, group, step)


def complete_if_possible(machine: GroupMachine, group: ClassicGroup, step: GroupStep) -> None:
    """Completes the rebalance if possible; a first one is completed by its delay alone."""
    if group.state is ClassicGroupState.PREPARING and not group.rebalances_first and group.all_joined:
        complete(machine, group, step)


def complete(machine: GroupMachine, group: ClassicGroup, step: GroupStep) -> None:
    """Makes the members that have joined the next generation."""
    machine.deadlines.cancel(join_of(group.group_id))
    absent = [m for m in group.members.values() if m.joining is None and not m.is_static]
    for member in absent:
        group.remove(member.member_id)
    if absent:
        _log.info("members_left_behind", group=group.group_id, count=len(absent))
    if not group.members:
        # The record makes it Empty, once it is replayed.
        step.records.append(group.record(step.now, generation=group.next_generation))
        return
    if not _elect(group):
        _wait_for_members(machine, group, step)
        return
    _begin_generation(machine, group, step)


def _elect(group: ClassicGroup) -> bool:
    """Elects a member that joined as leader; returns False when none did (static members whose sessions continue)."""
    leader = group.members.get(group.leader_id or "")
    if leader is None or leader.joining is None:
        leader = next((member for member in group.members.values() if member.joining is not None), None)
    if leader is None:
        return False
    group.leader_id = leader.member_id
    return True


def _begin_generation(machine: GroupMachine, group: ClassicGroup, step: GroupStep) -> None:
    group.generation = group.next_generation
    group.protocol_name = group.choose_protocol()
    group.learn_topics()
    group.transition(ClassicGroupState.COMPLETING, step.now)
    group.pending_syncs = dict.fromkeys(group.members)
    for member in group.members.values():
        answer_join(member, joined(group, member, tell_members=True), step)
        member.is_new = False
        group.keep_alive(member, step.now)
    machine.deadlines.set(sync_of(group.group_id), step.now.monotonic_ms + group.rebalance_timeout_ms)
    _log.debug(
        "generation_formed", group=group.group_id, generation=group.generation, members=len(group.members)
    )


def _wait_for_members(machine: GroupMachine, group: ClassicGroup, step: GroupStep) -> None:
    machine.deadlines.set(join_of(group.group_id), step.now.monotonic_ms + max(group.rebalance_timeout_ms, 1))


# -- answers to requests that wait


def answer_join(member: ClassicGroupMember, response: JoinGroupResponse, step: GroupStep) -> None:
    if member.joining is not None:
        step.answer(member.joining, response)
        member.joining = None


def refuse_syncs(group: ClassicGroup, code: ErrorCode, step: GroupStep) -> None:
    """Waiters for the assignment of this generation get none, and a new session to join again in."""
    for member in group.members.values():
        member.assignment = b""
        if member.syncing is not None:
            step.answer(member.syncing, sync_refused(code))
            member.syncing = None
            group.keep_alive(member, step.now)


# -- what time does


def join_due(machine: GroupMachine, group: ClassicGroup, step: GroupStep) -> None:
    if group.state is ClassicGroupState.STABLE and len(group.members) > machine.settings.max_size:
        prepare(machine, group, "it has more members than group.max.size", step)
        return
    if group.state is not ClassicGroupState.PREPARING:
        return
    if group.rebalances_first and group.newcomers and group.delay_left_ms > 0:
        delay_ms = min(machine.settings.initial_rebalance_delay_ms, group.delay_left_ms)
        group.newcomers = False
        group.delay_left_ms -= delay_ms
        machine.deadlines.set(join_of(group.group_id), step.now.monotonic_ms + delay_ms)
        return
    complete(machine, group, step)


def sync_due(machine: GroupMachine, group: ClassicGroup, step: GroupStep) -> None:
    """Members who joined and never asked for their assignment hold up what the others do not get."""
    if group.state not in (ClassicGroupState.COMPLETING, ClassicGroupState.STABLE) or not group.pending_syncs:
        return
    late = list(group.pending_syncs)
    for member_id in late:
        group.remove(member_id)
    prepare(machine, group, f"{len(late)} members did not ask for their assignment", step)


def session_due(machine: GroupMachine, group: ClassicGroup, member_id: str, step: GroupStep) -> None:
    if member_id in group.pending_joins:
        machine.issued_ids.pop((group.group_id, member_id), None)
        group.remove(member_id)
        if group.state is ClassicGroupState.PREPARING and group.all_joined:
            complete(machine, group, step)
        return
    member = group.members.get(member_id)
    if member is None or member.waits:
        return
    _log.info("member_lost", group=group.group_id, member=member_id)
    remove_member(group, member, step)
    if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING):
        prepare(machine, group, f"member {member_id} was not heard of", step)
    elif group.state is ClassicGroupState.PREPARING and group.all_joined:
        complete(machine, group, step)


def remove_member(group: ClassicGroup, member: ClassicGroupMember, step: GroupStep) -> None:
    """Answers the member's waiting requests (it may be alive and join again), and forgets it."""
    answer_join(member, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, protocol_name=None), step)
    if member.syncing is not None:
        step.answer(member.syncing, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
        member.syncing = None
    group.remove(member.member_id)
