"""The parts that streams groups register with the machine, and the operations for handlers: heartbeats, descriptions."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final

from odradek.groups.modern import draft as modern
from odradek.groups.modern.draft import finish
from odradek.groups.modern.membership import check_room, group_not_found, invalid_request, replay_group
from odradek.groups.modern.targets import TargetQuestion, retarget
from odradek.groups.shard.deadlines import DeadlineKey
from odradek.groups.shard.kinds import Caller, GroupKind
from odradek.groups.shard.large_targets import LargeTargets
from odradek.groups.shard.machine import GroupMachine, KindParts
from odradek.groups.shard.step import GroupStep
from odradek.groups.streams.assignor import AssignableMember, assign
from odradek.groups.streams.descriptions import described
from odradek.groups.streams.draft import SCHEMA, StreamsDraft, bump_epoch, draft_of
from odradek.groups.streams.endpoints import endpoint_partitions
from odradek.groups.streams.formats import RECORDS, StreamsGroupKey
from odradek.groups.streams.group import StreamsGroup
from odradek.groups.streams.heartbeats import (
    StreamsHeartbeat,
    check_heartbeat,
    enter_topology,
    listed_tasks,
    missing_tags,
    needs_epoch,
    offsets_of,
    owned_of,
    profile_of,
    statuses,
)
from odradek.groups.streams.member import JOIN_EPOCH, LEAVE_FOR_A_WHILE_EPOCH, StreamsMember
from odradek.groups.streams.membership import (
    check_epoch,
    joining_member,
    leave_for_a_while,
    member_of,
    remove,
)
from odradek.groups.streams.reconcile import StreamsGoal, reconcile
from odradek.groups.streams.settings import StreamsSettings
from odradek.groups.streams.tasks import NOTHING, TaskAssignment
from odradek.groups.streams.topology import ConfiguredTopology
from odradek.protocol.messages.groups.streams_group_describe import DescribedGroup
from odradek.protocol.messages.groups.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from odradek.shards import Moment, Outcome, StoredRecord
from odradek.telemetry import events

_TAGS_STATUS_SINCE_VERSION: Final = 1
_log = events.caused_by_peers("groups")


class StreamsTimer(Enum):
    SESSION = "streams session"
    """A member has not been heard of."""
    REBALANCE = "streams rebalance"
    """A member was to give tasks back, and did not say that it has."""
    INITIAL_DELAY = "streams initial delay"
    """A group that was empty waits for more members before its first assignment."""


class StreamsGroups:
    """The operations on streams groups. One object serves all shards of a broker. `settings` returns a
    group's settings by its id."""

    def __init__(self, settings: Callable[[str], StreamsSettings]) -> None:
        self.settings: Final = settings

    def parts(self) -> KindParts:
        return KindParts(
            replays=dict.fromkeys(RECORDS.key_versions, self._replay),
            expires={
                StreamsTimer.SESSION: self._member_due,
                StreamsTimer.REBALANCE: self._member_due,
                StreamsTimer.INITIAL_DELAY: self._initial_delay_due,
            },
        )

    # -- membership

    def heartbeat(
        self, machine: GroupMachine, now: Moment, *, request: StreamsGroupHeartbeatRequest, caller: Caller
    ) -> Outcome[StreamsHeartbeat]:
        """Raises INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
        UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED."""
        check_heartbeat(request)
        if request.member_epoch < JOIN_EPOCH:
            return self._leave(machine, now, request)
        step, settings = GroupStep(now), self.settings(request.group_id)
        draft = draft_of(self._opened(machine, request))
        was_empty = draft.group.is_empty
        if request.instance_id not in draft.group.statics:
            check_room(draft.group, request.member_id, settings.max_size)
        member, replaced = self._member(draft, request)
        before, after = member.profile, profile_of(member.profile, request, caller)
        is_new = request.member_id not in draft.group.members
        if is_new or after != before:
            draft.write_profile(request.member_id, after)
        enter_topology(draft, request)
        topics = machine.dependencies.topics
        configured = draft.group.configured(topics)
        owned = owned_of(request, configured, member)
        if request.member_epoch != JOIN_EPOCH:
            check_epoch(member, request.member_epoch, owned)
        has_changed = is_new or needs_epoch(before, after)
        bump_epoch(draft, topics, settings.assignment_configs, always=has_changed)
        delay = DeadlineKey(StreamsTimer.INITIAL_DELAY, request.group_id)
        begins_delay = was_empty and settings.initial_rebalance_delay_ms > 0
        is_delayed = begins_delay or machine.deadlines.at(delay) is not None
        if not is_delayed:
            retarget(draft, StreamsTargets(machine, request.group_id, settings, now))
            is_delayed = draft.group.epoch > draft.group.assignment_epoch
        settled = _settle(draft, request.member_id, owned)
        self._finish(machine, draft, step)
        # -- nothing is refused from here on
        if begins_delay and machine.deadlines.at(delay) is None:
            machine.deadlines.set(delay, now.monotonic_ms + settings.initial_rebalance_delay_ms)
        if replaced is not None and replaced != request.member_id:
            self._forget_member(machine, draft.group, replaced)
        self._heard_of(machine, now, request.group_id, member, settled, settings)
        _note(draft.group, request, configured)
        has_moved = settled.current.assigned != member.current.assigned
        _note_endpoints(
            draft.group, settled, has_moved=has_moved, has_other=after.endpoint != before.endpoint
        )
        response = _response(request, draft.group, settled, configured, settings)
        assigned = settled.current.assigned
        is_behind = request.member_epoch != member.epoch or (owned is not None and owned != assigned)
        if request.member_epoch == JOIN_EPOCH or has_moved or is_behind:  # an answer may have been lost
            response = response.replace(
                active_tasks=listed_tasks(assigned.active),
                standby_tasks=listed_tasks(assigned.standby),
                warmup_tasks=listed_tasks(assigned.warmup),
            )
        status = statuses(draft, settled, configured, is_delayed=is_delayed)
        if caller.api_version >= _TAGS_STATUS_SINCE_VERSION:
            status += missing_tags(settled, settings.rack_aware_tags)
        return step.outcome(
            StreamsHeartbeat(response=response.replace(status=status), missing_topics=configured.missing)
        )

    def _opened(self, machine: GroupMachine, request: StreamsGroupHeartbeatRequest) -> StreamsGroup:
        group = machine.groups.get(request.group_id)
        if isinstance(group, StreamsGroup):
            return group
        is_joining = request.member_epoch == JOIN_EPOCH
        if is_joining and (group is None or _is_unused(machine, request.group_id)):
            return StreamsGroup(request.group_id)
        raise group_not_found(request.group_id, group, "streams")

    def _member(
        self, draft: StreamsDraft, request: StreamsGroupHeartbeatRequest
    ) -> tuple[StreamsMember, str | None]:
        if request.member_epoch == JOIN_EPOCH:
            return joining_member(draft, request.member_id, request.process_id or "", request.instance_id)
        member = member_of(draft.group, request.member_id, request.instance_id)
        if request.process_id not in (None, member.profile.process_id):
            raise invalid_request("ProcessId can only be changed when (re-)joining.")
        return member, None

    def _heard_of(
        self,
        machine: GroupMachine,
        now: Moment,
        group_id: str,
        before: StreamsMember,
        after: StreamsMember,
        settings: StreamsSettings,
    ) -> None:
        """Begins the member's session again; and, where its tasks changed, the time that it has to give some back."""
        session = DeadlineKey(StreamsTimer.SESSION, group_id, after.member_id)
        machine.deadlines.set(session, now.monotonic_ms + settings.session_timeout_ms)
        if after.current != before.current:
            rebalance = DeadlineKey(StreamsTimer.REBALANCE, group_id, after.member_id)
            if after.current.is_giving_back:
                machine.deadlines.set(
                    rebalance, now.monotonic_ms + max(after.profile.rebalance_timeout_ms, 0)
                )
            else:
                machine.deadlines.cancel(rebalance)

    def _finish(self, machine: GroupMachine, draft: StreamsDraft, step: GroupStep) -> None:
        group = machine.groups.get(draft.group.group_id)
        if group is not None and not isinstance(group, StreamsGroup):
            step.records += group.tombstones()
        finish(machine, draft, step)

    def _leave(
        self, machine: GroupMachine, now: Moment, request: StreamsGroupHeartbeatRequest
    ) -> Outcome[StreamsHeartbeat]:
        step, group = GroupStep(now), self.group(machine, request.group_id)
        member = member_of(group, request.member_id, request.instance_id)
        if request.shutdown_application:
            group.soft.shutdown_by = request.member_id
        draft = draft_of(group)
        if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
            leave_for_a_while(draft, member)
            machine.deadlines.cancel(DeadlineKey(StreamsTimer.REBALANCE, request.group_id, request.member_id))
            self._finish(machine, draft, step)
        else:
            self._remove(machine, group, member.member_id, step)
        return step.outcome(
            StreamsHeartbeat(
                response=StreamsGroupHeartbeatResponse(
                    member_id=request.member_id, member_epoch=request.member_epoch, status=[]
                )
            )
        )

    def _remove(self, machine: GroupMachine, group: StreamsGroup, member_id: str, step: GroupStep) -> None:
        draft = draft_of(group)
        has_endpoint = group.members[member_id].profile.endpoint is not None
        remove(draft, member_id)
        self._finish(machine, draft, step)
        self._forget_member(machine, group, member_id)
        if has_endpoint:
            group.soft.endpoint_epoch += 1
        if draft.group.is_empty:
            group.soft.shutdown_by = None
            machine.deadlines.cancel(DeadlineKey(StreamsTimer.INITIAL_DELAY, group.group_id))

    def _forget_member(self, machine: GroupMachine, group: StreamsGroup, member_id: str) -> None:
        group.soft.forget(member_id)
        for kind in (StreamsTimer.SESSION, StreamsTimer.REBALANCE):
            machine.deadlines.cancel(DeadlineKey(kind, group.group_id, member_id))

    def note_creation(
        self, machine: GroupMachine, now: Moment, *, group_id: str, error: str
    ) -> Outcome[None]:
        """Notes why internal topics could not be created: the members learn it with their next heartbeats."""
        group = machine.groups.get(group_id)
        if isinstance(group, StreamsGroup):
            group.soft.creation_error = error
        return Outcome(None)

    # -- showing

    def group(self, machine: GroupMachine, group_id: str) -> StreamsGroup:
        """Raises GROUP_ID_NOT_FOUND, for groups of other kinds too."""
        group = machine.groups.get(group_id)
        if not isinstance(group, StreamsGroup):
            raise group_not_found(group_id, group, "streams")
        return group

    def describe(self, machine: GroupMachine, now: Moment, *, group_id: str) -> Outcome[DescribedGroup]:
        group = self.group(machine, group_id)
        return Outcome(described(group, machine.dependencies.topics, self.settings(group_id).assignor))

    # -- the machine's side

    def _replay(self, machine: GroupMachine, stored: StoredRecord) -> None:
        record = RECORDS.read(stored.key, stored.value)
        replay_group(
            machine,
            record,
            StreamsGroup,
            deletes_group=isinstance(record.key, StreamsGroupKey),
            make=lambda group_id: StreamsGroup(group_id, partial(self._loaded, machine)),
        )

    def _loaded(self, machine: GroupMachine, group: StreamsGroup, now: Moment) -> None:
        """Restarts all sessions of a group after a restart, so that no member is late."""
        settings = self.settings(group.group_id)
        for member in group.members.values():
            machine.deadlines.set(
                DeadlineKey(StreamsTimer.SESSION, group.group_id, member.member_id),
                now.monotonic_ms + settings.session_timeout_ms,
            )
            if member.current.is_giving_back:
                machine.deadlines.set(
                    DeadlineKey(StreamsTimer.REBALANCE, group.group_id, member.member_id),
                    now.monotonic_ms + max(member.profile.rebalance_timeout_ms, 0),
                )

    def _member_due(self, machine: GroupMachine, due: DeadlineKey, step: GroupStep) -> None:
        group = machine.groups.get(due.group_id)
        if isinstance(group, StreamsGroup) and due.member_id in group.members:
            self._remove(machine, group, due.member_id, step)
            is_silent = due.kind is StreamsTimer.SESSION
            reason = "it was not heard of" if is_silent else "it did not give tasks back in time"
            _log.info("member_lost", group=due.group_id, member=due.member_id, reason=reason)

    def _initial_delay_due(self, machine: GroupMachine, due: DeadlineKey, step: GroupStep) -> None:
        """Works out the first target of a group: its members get it with their next heartbeats."""
        group = machine.groups.get(due.group_id)
        if isinstance(group, StreamsGroup) and group.topology is not None and group.members:
            draft, settings = draft_of(group), self.settings(due.group_id)
            bump_epoch(draft, machine.dependencies.topics, settings.assignment_configs, always=False)
            retarget(draft, StreamsTargets(machine, due.group_id, settings, step.now))
            self._finish(machine, draft, step)


def _is_unused(machine: GroupMachine, group_id: str) -> bool:
    """Returns whether a classic group has no members: a streams group may take its place, and its offsets."""
    group = machine.groups[group_id]
    return group.kind is GroupKind.CLASSIC and group.is_empty


def _settle(draft: StreamsDraft, member_id: str, owned: TaskAssignment | None) -> StreamsMember:
    """Takes the member one step towards its target."""
    group = draft.group
    member = group.members[member_id]
    process_id = member.profile.process_id
    goal = StreamsGoal(
        target_epoch=group.assignment_epoch,
        target=group.target(member_id),
        is_free=lambda task, role: group.is_free(task, role, process_id),
    )
    current = reconcile(member.current, goal, owned)
    if current is not member.current:
        draft.write_current(member_id, current)
    return draft.group.members[member_id]


def _note(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, configured: ConfiguredTopology) -> None:
    """Keeps what the member reports and no record contains."""
    soft = group.soft
    if request.task_offsets is not None:
        soft.task_offsets[request.member_id] = offsets_of(request.task_offsets, configured)
    if request.task_end_offsets is not None:
        soft.task_end_offsets[request.member_id] = offsets_of(request.task_end_offsets, configured)
    if request.shutdown_application:
        soft.shutdown_by = request.member_id
    if configured.is_ready:
        soft.creation_error = ""


def _note_endpoints(group: StreamsGroup, member: StreamsMember, *, has_moved: bool, has_other: bool) -> None:
    if has_other or (has_moved and member.profile.endpoint is not None):
        group.soft.endpoint_epoch += 1


def _response(
    request: StreamsGroupHeartbeatRequest,
    group: StreamsGroup,
    member: StreamsMember,
    configured: ConfiguredTopology,
    settings: StreamsSettings,
) -> StreamsGroupHeartbeatResponse:
    epoch = group.soft.endpoint_epoch
    is_old = request.endpoint_information_epoch != epoch
    return StreamsGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        task_offset_interval_ms=settings.task_offset_interval_ms,
        acceptable_recovery_lag=settings.acceptable_recovery_lag,
        status=[],
        endpoint_information_epoch=epoch,
        partitions_by_user_endpoint=endpoint_partitions(group, configured) if is_old else None,
    )


class StreamsTargets:
    """The `TargetContext` of one streams group."""

    schema: Final = SCHEMA

    def __init__(self, machine: GroupMachine, group_id: str, settings: StreamsSettings, now: Moment) -> None:
        self._machine = machine
        self._group_id = group_id
        self._settings = settings
        self.now: Final = now

    @property
    def assignment_interval_ms(self) -> int:
        return self._settings.assignment_interval_ms

    @property
    def large_targets(self) -> LargeTargets | None:
        return self._machine.dependencies.large_targets

    def partition_count(self, group: StreamsGroup) -> int:
        tasks = group.configured(self._machine.dependencies.topics).tasks
        return sum(subtopology.task_count for subtopology in tasks.values())

    def question_of(self, group: StreamsGroup) -> TargetQuestion:
        return TargetQuestion(
            group_id=group.group_id,
            epoch=group.epoch,
            assignor=assign,
            members={
                member_id: AssignableMember(
                    process_id=member.profile.process_id,
                    standby_replicas=self._settings.standby_replicas,
                    rack_aware_tags=self._settings.rack_aware_tags,
                    client_tags=member.profile.tags,
                    task_offsets=group.soft.task_offsets.get(member_id, {}),
                )
                for member_id, member in group.members.items()
            },
            partitions=group.configured(self._machine.dependencies.topics).tasks,
            targets=dict(group.targets),
            nothing=NOTHING,
        )

    def later(self, machine: GroupMachine, now: Moment) -> StreamsTargets:
        return StreamsTargets(machine, self._group_id, self._settings, now)

    def draft(self) -> StreamsDraft | None:
        group = self._machine.groups.get(self._group_id)
        return draft_of(group) if isinstance(group, StreamsGroup) else None

    def finish(self, draft: StreamsDraft, step: GroupStep) -> None:
        modern.finish(self._machine, draft, step)
