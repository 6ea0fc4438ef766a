"""What share groups register with the machine, and the operations that handlers ask for: heartbeats, showing, offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Final
from uuid import UUID

from odradek.groups.deadlines import Due
from odradek.groups.kinds import Caller
from odradek.groups.large_targets import LargeTarget
from odradek.groups.machine import ClusterTopics, GroupMachine, KindParts
from odradek.groups.share import assignor, formats
from odradek.groups.share.draft import ShareDraft, ShareTargetQuestion
from odradek.groups.share.formats import KEY_VERSIONS, read_record
from odradek.groups.share.group import ShareGroup, ShareMemberMetadata, StateTopic
from odradek.groups.share.settings import ShareSettings
from odradek.groups.step import GroupStep
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.share import share_group_describe as describing
from odradek.protocol.messages.share.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.shards import Moment, NewRecord, Outcome, StoredRecord
from odradek.telemetry import events

_log = events.caused_by_peers("groups")
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
MEMBER_ID_LENGTH_MAX: Final = 36


class ShareTimer(Enum):
    SESSION = "share session"
    """A member has not been heard of."""


class ShareGroups:
    """One for all shards of a broker. `settings` knows those of each group by its id."""

    def __init__(self, settings: Callable[[str], ShareSettings]) -> None:
        self.settings: Final = settings

    def parts(self) -> KindParts:
        return KindParts(
            replays=dict.fromkeys(KEY_VERSIONS, self._replay), expires={ShareTimer.SESSION: self._member_due}
        )

    # -- membership

    def heartbeat(
        self, machine: GroupMachine, now: Moment, *, request: ShareGroupHeartbeatRequest, caller: Caller
    ) -> Outcome[ShareGroupHeartbeatResponse]:
        """INVALID_REQUEST, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED."""
        check_heartbeat(request)
        step = GroupStep(now)
        if request.member_epoch == LEAVE_EPOCH:
            self._remove(machine, request.group_id, request.member_id, step)
            return step.outcome(
                ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE_EPOCH)
            )
        settings = self.settings(request.group_id)
        draft = ShareDraft(self._opened(machine, request))
        _check_member(draft.group, request, settings.max_size)
        before = draft.group.currents.get(request.member_id)
        topics = machine.dependencies.topics
        is_new_interest = _enter(draft, request, caller, topics)
        self._retarget(machine, draft, settings, now)
        if is_new_interest:
            draft.begin_to_read(topics)
        draft.settle(request.member_id, topics)
        self._finish(machine, draft, step)
        machine.deadlines.set(
            Due(ShareTimer.SESSION, request.group_id, request.member_id),
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
                assignment=_told(after.assigned) if tell else None,
            )
        )

    def _retarget(
        self, machine: GroupMachine, draft: ShareDraft, settings: ShareSettings, now: Moment
    ) -> None:
        """Work out a target if one is due; a large one on another thread. UNKNOWN_SERVER_ERROR if no batch can hold that.

        Not a group's first: its member would be told the epoch 0, which means that it has yet to join.
        """
        if not draft.needs_target(settings, now):
            return
        group, large_targets = draft.group, machine.dependencies.large_targets
        question = draft.question(machine.dependencies.topics)
        if large_targets is None or group.assignment_epoch == 0 or not question.is_large:
            draft.write_target(question.answer(), now)
        elif large_targets.is_wanted(group.group_id, group.epoch):
            large_targets.begin(
                LargeTarget(
                    group_id=group.group_id,
                    epoch=group.epoch,
                    compute=question.records,
                    write=partial(self._write_large_target, question),
                )
            )

    def _write_large_target(
        self,
        question: ShareTargetQuestion,
        machine: GroupMachine,
        now: Moment,
        records: Sequence[NewRecord],
    ) -> Outcome[None]:
        """Write what was worked out beside, unless the group, or a topic, has changed: then ask for it again."""
        group, step = machine.groups.get(question.group_id), GroupStep(now)
        if not isinstance(group, ShareGroup) or group.epoch <= group.assignment_epoch:
            return Outcome(None)
        draft = ShareDraft(group)
        if draft.question(machine.dependencies.topics) == question:
            draft.records += records  # not tried on the copy: nothing that follows looks at the targets
            draft.write_target_epoch(now)
        else:
            self._retarget(machine, draft, self.settings(question.group_id), now)
        self._finish(machine, draft, step)
        return step.outcome(None)

    def _opened(self, machine: GroupMachine, request: ShareGroupHeartbeatRequest) -> ShareGroup:
        group = machine.groups.get(request.group_id)
        if isinstance(group, ShareGroup):
            return group
        if request.member_epoch == JOIN_EPOCH and (group is None or _is_vacant(machine, request.group_id)):
            return ShareGroup(request.group_id)
        raise _not_found(request.group_id, exists=group is not None)

    def _finish(self, machine: GroupMachine, draft: ShareDraft, step: GroupStep) -> None:
        if not machine.fits(draft.records):
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the change of group {draft.group.group_id!r} is larger than max.message.bytes of __consumer_offsets",
            )
        found = machine.groups.get(draft.group.group_id)
        if found is not None and not isinstance(found, ShareGroup):
            step.records += found.tombstones()
        step.records += draft.records
        if isinstance(found, ShareGroup):
            found.checked_version = draft.group.checked_version

    def _remove(self, machine: GroupMachine, group_id: str, member_id: str, step: GroupStep) -> None:
        group = self.group(machine, group_id)
        if member_id not in group.members:
            raise _unknown_member(group_id, member_id)
        draft = ShareDraft(group)
        draft.delete_member(member_id)
        draft.bump_epoch(machine.dependencies.topics, always=True)
        self._finish(machine, draft, step)
        machine.deadlines.cancel(Due(ShareTimer.SESSION, group_id, member_id))

    def _member_due(self, machine: GroupMachine, due: Due, step: GroupStep) -> None:
        group = machine.groups.get(due.group_id)
        if isinstance(group, ShareGroup) and due.member_id in group.members:
            self._remove(machine, due.group_id, due.member_id, step)
            _log.info("member_lost", group=due.group_id, member=due.member_id, reason="it was not heard of")

    # -- showing

    def group(self, machine: GroupMachine, group_id: str) -> ShareGroup:
        """GROUP_ID_NOT_FOUND, for groups of other kinds too."""
        group = machine.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            raise _not_found(group_id, exists=group is not None)
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
        """None of a group that does not exist, or is of another kind."""
        group = machine.groups.get(group_id)
        return Outcome(dict(group.state_topics) if isinstance(group, ShareGroup) else {})

    def check_unused(
        self, machine: GroupMachine, now: Moment, *, group_id: str, may_be_new: bool
    ) -> Outcome[None]:
        """NON_EMPTY_GROUP; GROUP_ID_NOT_FOUND unless it may be new."""
        if may_be_new and group_id not in machine.groups:
            return Outcome(None)
        self.group(machine, group_id).check_delete()
        return Outcome(None)

    def begin_topics(
        self, machine: GroupMachine, now: Moment, *, group_id: str, topics: Mapping[UUID, StateTopic]
    ) -> Outcome[None]:
        """An administrator sets where the group is in these; it is made if it does not exist. NON_EMPTY_GROUP."""
        found = machine.groups.get(group_id)
        group = ShareGroup(group_id) if found is None else self.group(machine, group_id)
        group.check_delete()
        draft, step = ShareDraft(group), GroupStep(now)
        known = dict(group.state_topics)
        for topic_id, topic in topics.items():
            before = known.get(topic_id)
            had = frozenset() if before is None else before.partitions
            known[topic_id] = StateTopic(name=topic.name, partitions=had | topic.partitions)
        if found is None:
            draft.bump_epoch(machine.dependencies.topics, always=True)
        if known != group.state_topics:
            draft.write_state_topics(known)
        self._finish(machine, draft, step)
        return step.outcome(None)

    def end_topics(
        self, machine: GroupMachine, now: Moment, *, group_id: str, topic_ids: frozenset[UUID]
    ) -> Outcome[None]:
        """The group has never read these. NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        group = self.group(machine, group_id)
        group.check_delete()
        draft, step = ShareDraft(group), GroupStep(now)
        kept = {one: topic for one, topic in group.state_topics.items() if one not in topic_ids}
        if kept != group.state_topics:
            draft.write_state_topics(kept)
        self._finish(machine, draft, step)
        return step.outcome(None)

    # -- the machine's side

    def _replay(self, machine: GroupMachine, stored: StoredRecord) -> None:
        record = read_record(stored.key, stored.value)
        found = machine.groups.get(record.group_id)
        group = found if isinstance(found, ShareGroup) else None
        if record.value is None:
            if group is not None and isinstance(record.key, formats.ShareGroupKey):
                machine.forget(group)
            elif group is not None:
                group.replay(record)
            return
        if group is None:
            if found is not None:
                machine.forget(found)
            group = ShareGroup(record.group_id, lambda one, now: self._loaded(machine, one, now))
            machine.groups[record.group_id] = group
        group.replay(record)

    def _loaded(self, machine: GroupMachine, group: ShareGroup, now: Moment) -> None:
        """After a restart nobody is late."""
        timeout_ms = self.settings(group.group_id).session_timeout_ms
        for member_id in group.members:
            machine.deadlines.set(
                Due(ShareTimer.SESSION, group.group_id, member_id), now.monotonic_ms + timeout_ms
            )


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """INVALID_REQUEST, before anything is looked up."""
    check_member_id(request.member_id)
    if not request.group_id:
        raise _invalid("GroupId can't be empty.")
    if request.rack_id == "":
        raise _invalid("RackId can't be empty.")
    if request.member_epoch < LEAVE_EPOCH:
        raise _invalid(f"MemberEpoch {request.member_epoch} is invalid.")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise _invalid("SubscribedTopicNames must be set in first request.")


def check_member_id(member_id: str) -> None:
    """INVALID_REQUEST. Members make up their ids: clients use UUIDs, in Kafka's form or in the longer one with dashes."""
    if not member_id:
        raise _invalid("MemberId can't be empty.")
    if len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise _invalid(f"MemberId has {len(member_id)} characters; it may have {MEMBER_ID_LENGTH_MAX}.")


def _check_member(group: ShareGroup, request: ShareGroupHeartbeatRequest, size_max: int) -> None:
    member_id, epoch = request.member_id, request.member_epoch
    if member_id not in group.members:
        if epoch != JOIN_EPOCH:
            raise _unknown_member(group.group_id, member_id)
        if len(group.members) >= size_max:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"group {group.group_id!r} has {len(group.members)} members, and may have {size_max}",
            )
    current = group.currents.get(member_id)
    known = () if current is None else (current.epoch, current.previous_epoch)
    if epoch != JOIN_EPOCH and epoch not in known:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member {member_id!r} is at epoch {group.epoch_of(member_id)}, not {epoch}: it must join again",
        )


def _enter(
    draft: ShareDraft, request: ShareGroupHeartbeatRequest, caller: Caller, topics: ClusterTopics
) -> bool:
    """Write what a member says of itself, and a new group epoch if that, or the cluster, changed what the group reads.

    True when it may have changed."""
    member_id, names = request.member_id, request.subscribed_topic_names
    before = draft.group.members.get(member_id, ShareMemberMetadata())
    profile = ShareMemberMetadata(
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=before.topics if names is None else frozenset(names),
    )
    is_new = member_id not in draft.group.members
    if is_new or profile != before:
        draft.write_profile(member_id, profile)
    changed = is_new or profile.topics != before.topics
    if changed or draft.group.checked_version != topics.version:
        draft.bump_epoch(topics, always=changed)
        draft.group.checked_version = topics.version
        return True
    return False


def _is_vacant(machine: GroupMachine, group_id: str) -> bool:
    """A group of another kind that nobody uses and that has no offsets: its name is free."""
    group = machine.groups[group_id]
    return group.is_empty and not machine.has_offsets(group_id)


def _told(assigned: assignor.Assignment) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(assigned[topic_id]))
            for topic_id in sorted(assigned, key=lambda one: one.bytes)
        ]
    )


def _described(group: ShareGroup, member_id: str, topics: ClusterTopics) -> describing.Member:
    profile, current = group.members[member_id], group.currents.get(member_id)
    assigned = assignor.NOTHING if current is None else current.assigned
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
                for topic_id in sorted(assigned, key=lambda one: one.bytes)
                if (name := topics.topic_name(topic_id)) is not None
            ]
        ),
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _not_found(group_id: str, *, exists: bool) -> KafkaError:
    what = "is not a share group" if exists else "not found"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")


def _unknown_member(group_id: str, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of group {group_id!r}")
