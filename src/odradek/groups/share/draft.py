"""A share group as it will be: records are tried on a copy while a decision is made, so that each step sees the one before.

The copy replays records with the very code that the group itself replays them with, later, when they are in the log. A decision
that ends in a refusal leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from uuid import UUID

from odradek.groups.large_targets import is_large
from odradek.groups.machine import ClusterTopics
from odradek.groups.share import formats
from odradek.groups.share.assignor import NOTHING, Assignment, assign
from odradek.groups.share.formats import ShareGroupRecord
from odradek.groups.share.group import (
    ShareCurrentAssignment,
    ShareGroup,
    ShareMemberMetadata,
    StateTopic,
    listed,
    state_topics_value,
    target_of,
)
from odradek.groups.share.settings import ShareSettings
from odradek.shards import Moment, NewRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareTargetQuestion:
    """All that the assignor looks at, as it was for an epoch of the group. It never changes: any thread may read it."""

    group_id: str
    epoch: int
    subscriptions: Mapping[str, frozenset[UUID]]
    partitions: Mapping[UUID, frozenset[int]]
    targets: Mapping[str, Assignment]

    @property
    def is_large(self) -> bool:
        return is_large(sum(map(len, self.partitions.values())), len(self.subscriptions))

    def answer(self) -> dict[str, Assignment]:
        return assign(self.subscriptions, self.partitions, self.targets)

    def records(self) -> list[NewRecord]:
        """The answer as records for the members whose target changes: to make a thousand of them takes 50 ms."""
        return [
            ShareGroupRecord(
                formats.ShareTargetMemberKey(group_id=self.group_id, member_id=member_id),
                formats.ShareTargetMemberValue(topic_partitions=listed(share)),
            ).encoded()
            for member_id, share in self.answer().items()
            if share != self.targets.get(member_id, NOTHING)
        ]


class ShareDraft:
    """`group` is for reading; it is the real one until something is written."""

    __slots__ = ("_is_copy", "group", "records")

    def __init__(self, group: ShareGroup) -> None:
        self.group = group
        self.records: list[NewRecord] = []
        self._is_copy = False

    def write(self, key: formats.Key, value: formats.Value | None) -> None:
        if not self._is_copy:
            self.group = self.group.copy()
            self._is_copy = True
        record = ShareGroupRecord(key, value)
        self.group.replay(record)
        self.records.append(record.encoded())

    def write_profile(self, member_id: str, profile: ShareMemberMetadata) -> None:
        self.write(formats.ShareMemberKey(group_id=self.group.group_id, member_id=member_id), profile.value())

    def write_epoch(self, metadata_hash: int) -> None:
        value = formats.ShareGroupValue(epoch=self.group.epoch + 1, metadata_hash=metadata_hash)
        self.write(formats.ShareGroupKey(group_id=self.group.group_id), value)

    def write_state_topics(self, topics: Mapping[UUID, StateTopic]) -> None:
        value = state_topics_value(topics)
        self.write(formats.StatePartitionsKey(group_id=self.group.group_id), value)

    def delete_member(self, member_id: str) -> None:
        """All that there is about a member."""
        group_id = self.group.group_id
        self.write(formats.ShareCurrentKey(group_id=group_id, member_id=member_id), None)
        self.write(formats.ShareTargetMemberKey(group_id=group_id, member_id=member_id), None)
        self.write(formats.ShareMemberKey(group_id=group_id, member_id=member_id), None)

    # -- what the group reads, and who shall read it

    def bump_epoch(self, topics: ClusterTopics, *, always: bool) -> None:
        """The next epoch if the topics are not those that the epoch was made for, or in any case."""
        found = _metadata_hash(self.group, topics)
        if always or self.group.epoch == 0 or found != self.group.metadata_hash:
            self.write_epoch(found)

    def needs_target(self, settings: ShareSettings, now: Moment) -> bool:
        """Whether the group's epoch has no target yet, and the last one was not made too short a while ago."""
        group = self.group
        if group.epoch <= group.assignment_epoch:
            return False
        since_ms = now.wall_ms - group.assignment_ms
        return not 0 <= since_ms < settings.assignment_interval_ms or group.assignment_epoch == 0

    def question(self, topics: ClusterTopics) -> ShareTargetQuestion:
        group = self.group
        return ShareTargetQuestion(
            group_id=group.group_id,
            epoch=group.epoch,
            subscriptions={
                member_id: _ids_of(profile.topics, topics) for member_id, profile in group.members.items()
            },
            partitions={topic_id: topic.partitions for topic_id, topic in group.state_topics.items()},
            targets=dict(group.targets),
        )

    def write_target(self, target: Mapping[str, Assignment], now: Moment) -> None:
        """Records for the members whose target changed, then the target's epoch."""
        group = self.group
        before = group.targets
        for member_id, share in target.items():
            if share != before.get(member_id, NOTHING):
                key = formats.ShareTargetMemberKey(group_id=group.group_id, member_id=member_id)
                self.write(key, formats.ShareTargetMemberValue(topic_partitions=listed(share)))
        self.write_target_epoch(now)

    def write_target_epoch(self, now: Moment) -> None:
        """The target that was written is that of the group's epoch."""
        self.write(
            formats.ShareTargetKey(group_id=self.group.group_id),
            formats.ShareTargetValue(assignment_epoch=self.group.epoch, assignment_timestamp=now.wall_ms),
        )

    def begin_to_read(self, topics: ClusterTopics) -> None:
        """Note the partitions that the members subscribe to: the group has a state in them from now on; those of deleted
        topics are gone.

        What is new is shared out with the next target, which is due an assignment interval later: who joins first does not
        have everything until the others are there. Kafka does the same, because it first sets up the state.
        """
        known = {
            topic_id: topic
            for topic_id, topic in self.group.state_topics.items()
            if topics.topic_name(topic_id) is not None
        }
        is_more = False
        for name in sorted(self.group.subscribed_topics):
            topic_id = topics.topic_id(name)
            if topic_id is None:
                continue
            before = known.get(topic_id)
            had = frozenset() if before is None else before.partitions
            has = had | frozenset(range(topics.partition_count(name)))
            if has != had:
                known[topic_id] = StateTopic(name=name, partitions=has)
                is_more = True
        if known != self.group.state_topics:
            self.write_state_topics(known)
        if is_more:
            self.bump_epoch(topics, always=True)

    def settle(self, member_id: str, topics: ClusterTopics) -> None:
        """The member is told its target, and is in the target's epoch.

        Only what it subscribes to now: a target that knows its new subscription may be worked out only later.
        """
        group = self.group
        before = group.currents.get(member_id)
        epoch, target = group.assignment_epoch, target_of(group, member_id)
        subscribed = _ids_of(group.members[member_id].topics, topics)
        if not target.keys() <= subscribed:
            target = {topic_id: share for topic_id, share in target.items() if topic_id in subscribed}
        if before is None:
            current = ShareCurrentAssignment(epoch=epoch, assigned=target)
        elif before.epoch != epoch:
            current = ShareCurrentAssignment(epoch=epoch, previous_epoch=before.epoch, assigned=target)
        elif before.assigned != target:
            current = replace(before, assigned=target)
        else:
            return
        self.write(formats.ShareCurrentKey(group_id=group.group_id, member_id=member_id), current.value())


def _ids_of(names: Iterable[str], topics: ClusterTopics) -> frozenset[UUID]:
    """Of those that exist."""
    return frozenset(
        topic_id for topic_id in (topics.topic_id(name) for name in names) if topic_id is not None
    )


def _metadata_hash(group: ShareGroup, topics: ClusterTopics) -> int:
    """A number that changes with the ids and partition counts of the topics that the group reads; 0 when it reads none."""
    digest = blake2b(digest_size=8)
    count = 0
    for name in sorted(group.subscribed_topics):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            count += 1
            digest.update(topic_id.bytes + topics.partition_count(name).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if count else 0
