"""The parts that share groups register with the machine, and the operations for handlers: heartbeats, descriptions, offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Final
from uuid import UUID

from odradek.groups.modern import draft as modern
from odradek.groups.modern.assignment import NOTHING, topic_ids
from odradek.groups.modern.draft import finish
from odradek.groups.modern.membership import group_not_found, replay_group, unknown_member
from odradek.groups.modern.targets import TargetQuestion, retarget
from odradek.groups.shard.deadlines import DeadlineKey
from odradek.groups.shard.kinds import Caller
from odradek.groups.shard.large_targets import LargeTargets
from odradek.groups.shard.machine import ClusterTopics, GroupMachine, KindParts
from odradek.groups.shard.step import GroupStep
from odradek.groups.share import assignor
from odradek.groups.share.assignor import assign
from odradek.groups.share.draft import SCHEMA, ShareDraft, draft_of, write_state_topics
from odradek.groups.share.formats import RECORDS, ShareGroupKey
from odradek.groups.share.group import ShareGroup, StateTopic
from odradek.groups.share.heartbeats import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    as_assignment,
    begin_to_read,
    check_heartbeat,
    check_member,
    enter,
    settle,
)
from odradek.groups.share.settings import ShareSettings
from odradek.protocol.messages.share import share_group_describe as describing
from odradek.protocol.messages.share.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from odradek.shards import Moment, Outcome, StoredRecord
from odradek.telemetry import events

_log = events.caused_by_peers("groups")


class ShareTimer(Enum):
    SESSION = "share session"
    """A member has not been heard of."""


class ShareGroups:
    """The operations on share groups. One object serves all shards of a broker. `settings` returns a group's
    settings by its id."""

    def __init__(self, settings: Callable[[str], ShareSettings]) -> None:
        self.settings: Final = settings

    def parts(self) -> KindParts:
        return KindParts(
            replays=dict.fromkeys(RECORDS.key_versions, self._replay),
            expires={ShareTimer.SESSION: self._member_due},
        )

    # -- membership

    def heartbeat(
        self, machine: GroupMachine, now: Moment, *, request: ShareGroupHeartbeatRequest, caller: Caller
    ) -> Outcome[ShareGroupHeartbeatResponse]:
        """Raises INVALID_REQUEST, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED."""
        check_heartbeat(request)
        step = GroupStep(now)
        if request.member_epoch == LEAVE_EPOCH:
            self._remove(machine, request.group_id, request.member_id, step)
            return step.outcome(
                ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE_EPOCH)
            )
        settings = self.settings(request.group_id)
        draft = draft_of(self._opened(machine, request))
        check_member(draft.group, request, settings.max_size)
        before = draft.group.currents.get(request.member_id)
        topics = machine.dependencies.topics
        is_new_interest = enter(draft, request, caller, topics)
        retarget(draft, ShareTargets(machine, request.group_id, settings, now))
        if is_new_interest:
            begin_to_read(draft, topics)
        settle(draft, request.member_id, topics)
        self._finish(machine, draft, step)
        machine.deadlines.set(
            DeadlineKey(ShareTimer.SESSION, request.group_id, request.member_id),
            now.monotonic_ms + settings.session_timeout_ms,
        )
        after = draft.group.currents[request.member_id]
        full = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
        tell = full or before is None or before.assigned != after.assigned
        return step.outcome(
            ShareGroupHeartbeatResponse(
                member_id=request.member_id,
                member_epoch=after.epoch,
                heartbeat_interval_ms=settings.heartbeat_interval_ms,
                assignment=as_assignment(after.assigned) if tell else None,
            )
        )

    def _opened(self, machine: GroupMachine, request: ShareGroupHeartbeatRequest) -> ShareGroup:
        group = machine.groups.get(request.group_id)
        if isinstance(group, ShareGroup):
            return group
        if request.member_epoch == JOIN_EPOCH and (group is None or _is_vacant(machine, request.group_id)):
            return ShareGroup(request.group_id)
        raise group_not_found(request.group_id, group, "share")

    def _finish(self, machine: GroupMachine, draft: ShareDraft, step: GroupStep) -> None:
        group = machine.groups.get(draft.group.group_id)
        if group is not None and not isinstance(group, ShareGroup):
            step.records += group.tombstones()
        finish(machine, draft, step)

    def _remove(self, machine: GroupMachine, group_id: str, member_id: str, step: GroupStep) -> None:
        group = self.group(machine, group_id)
        if member_id not in group.members:
            raise unknown_member(group_id, member_id)
        draft = draft_of(group)
        draft.delete_member(member_id)
        draft.bump_epoch(machine.dependencies.topics, always=True)
        draft.catch_up_if_empty()
        self._finish(machine, draft, step)
        machine.deadlines.cancel(DeadlineKey(ShareTimer.SESSION, group_id, member_id))

    def _member_due(self, machine: GroupMachine, due: DeadlineKey, step: GroupStep) -> None:
        group = machine.groups.get(due.group_id)
        if isinstance(group, ShareGroup) and due.member_id in group.members:
            self._remove(machine, due.group_id, due.member_id, step)
            _log.info("member_lost", group=due.group_id, member=due.member_id, reason="it was not heard of")

    # -- showing

    def group(self, machine: GroupMachine, group_id: str) -> ShareGroup:
        """Raises GROUP_ID_NOT_FOUND, for groups of other kinds too."""
        group = machine.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            raise group_not_found(group_id, group, "share")
        return group

    def describe(
        self, machine: GroupMachine, now: Moment, *, group_id: str
    ) -> Outcome[describing.DescribedGroup]:
        group, topics = self.group(machine, group_id), machine.dependencies.topics
        return Outcome(
            describing.DescribedGroup(
                group_id=group_id,
                group_state=group.state_name,
                group_epoch=group.epoch,
                assignment_epoch=group.assignment_epoch,
                assignor_name=assignor.NAME,
                members=[_described(group, member_id, topics) for member_id in group.members],
            )
        )

    # -- the partitions that the group has a state in

    def state_topics(
        self, machine: GroupMachine, now: Moment, *, group_id: str
    ) -> Outcome[Mapping[UUID, StateTopic]]:
        """Returns the group's topics; none of a group that does not exist, or is of another kind."""
        group = machine.groups.get(group_id)
        return Outcome(dict(group.state_topics) if isinstance(group, ShareGroup) else {})

    def check_unused(
        self, machine: GroupMachine, now: Moment, *, group_id: str, may_be_new: bool
    ) -> Outcome[None]:
        """Raises NON_EMPTY_GROUP; GROUP_ID_NOT_FOUND unless it may be new."""
        if may_be_new and group_id not in machine.groups:
            return Outcome(None)
        self.group(machine, group_id).check_delete()
        return Outcome(None)

    def begin_topics(
        self, machine: GroupMachine, now: Moment, *, group_id: str, topics: Mapping[UUID, StateTopic]
    ) -> Outcome[None]:
        """Adds topics in which an administrator sets the group's offsets; makes a missing group. Raises NON_EMPTY_GROUP."""
        stored = machine.groups.get(group_id)
        group = ShareGroup(group_id) if stored is None else self.group(machine, group_id)
        group.check_delete()
        draft, step = draft_of(group), GroupStep(now)
        known = dict(group.state_topics)
        for topic_id, topic in topics.items():
            before = known.get(topic_id)
            had = frozenset() if before is None else before.partitions
            known[topic_id] = StateTopic(name=topic.name, partitions=had | topic.partitions)
        if stored is None:
            draft.bump_epoch(machine.dependencies.topics, always=True)
        if known != group.state_topics:
            write_state_topics(draft, known)
        self._finish(machine, draft, step)
        return step.outcome(None)

    def end_topics(
        self, machine: GroupMachine, now: Moment, *, group_id: str, topic_ids: frozenset[UUID]
    ) -> Outcome[None]:
        """Removes topics from the group, as if it had never read them. Raises NON_EMPTY_GROUP,
        GROUP_ID_NOT_FOUND."""
        group = self.group(machine, group_id)
        group.check_delete()
        draft, step = draft_of(group), GroupStep(now)
        remaining = {
            topic_id: topic for topic_id, topic in group.state_topics.items() if topic_id not in topic_ids
        }
        if remaining != group.state_topics:
            write_state_topics(draft, remaining)
        self._finish(machine, draft, step)
        return step.outcome(None)

    # -- the machine's side

    def _replay(self, machine: GroupMachine, stored: StoredRecord) -> None:
        record = RECORDS.read(stored.key, stored.value)
        replay_group(
            machine,
            record,
            ShareGroup,
            deletes_group=isinstance(record.key, ShareGroupKey),
            make=lambda group_id: ShareGroup(group_id, partial(self._loaded, machine)),
        )

    def _loaded(self, machine: GroupMachine, group: ShareGroup, now: Moment) -> None:
        """Restarts all sessions of a group after a restart, so that no member is late."""
        timeout_ms = self.settings(group.group_id).session_timeout_ms
        for member_id in group.members:
            machine.deadlines.set(
                DeadlineKey(ShareTimer.SESSION, group.group_id, member_id), now.monotonic_ms + timeout_ms
            )


def _is_vacant(machine: GroupMachine, group_id: str) -> bool:
    """Returns whether a group of another kind is unused and has no offsets: then its name is free."""
    group = machine.groups[group_id]
    return group.is_empty and not machine.has_offsets(group_id)


def _described(group: ShareGroup, member_id: str, topics: ClusterTopics) -> describing.Member:
    profile, current = group.members[member_id], group.currents.get(member_id)
    assigned = NOTHING if current is None else current.assigned
    return describing.Member(
        member_id=member_id,
        rack_id=profile.rack_id,
        member_epoch=group.epoch_of(member_id),
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.topics),
        assignment=describing.Assignment(
            topic_partitions=[
                describing.TopicPartitions(
                    topic_id=topic_id, topic_name=name, partitions=sorted(assigned[topic_id])
                )
                for topic_id in sorted(assigned, key=lambda uuid: uuid.bytes)
                if (name := topics.topic_name(topic_id)) is not None
            ]
        ),
    )


class ShareTargets:
    """The `TargetContext` of one share group."""

    schema: Final = SCHEMA

    def __init__(self, machine: GroupMachine, group_id: str, settings: ShareSettings, now: Moment) -> None:
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

    def partition_count(self, group: ShareGroup) -> int:
        return sum(len(topic.partitions) for topic in group.state_topics.values())

    def question_of(self, group: ShareGroup) -> TargetQuestion:
        topics = self._machine.dependencies.topics
        return TargetQuestion(
            group_id=group.group_id,
            epoch=group.epoch,
            assignor=assign,
            members={
                member_id: topic_ids(profile.topics, topics) for member_id, profile in group.members.items()
            },
            partitions={topic_id: topic.partitions for topic_id, topic in group.state_topics.items()},
            targets=dict(group.targets),
        )

    def later(self, machine: GroupMachine, now: Moment) -> ShareTargets:
        return ShareTargets(machine, self._group_id, self._settings, now)

    def draft(self) -> ShareDraft | None:
        group = self._machine.groups.get(self._group_id)
        return draft_of(group) if isinstance(group, ShareGroup) else None

    def finish(self, draft: ShareDraft, step: GroupStep) -> None:
        modern.finish(self._machine, draft, step)
