"""A share group as it will be: records are tried on a copy while a decision is made, so that each step sees the one before.

The copy replays records with the very code that the group itself replays them with, later, when they are in the log. A decision
that ends in a refusal leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from uuid import UUID

from odradek.groups.machine import Topics
from odradek.groups.share import formats
from odradek.groups.share.assignor import NOTHING, assign
from odradek.groups.share.formats import GroupRecord
from odradek.groups.share.group import (
    Current,
    Profile,
    ShareGroup,
    StateTopic,
    listed,
    state_topics_value,
    target_of,
)
from odradek.groups.share.settings import ShareSettings
from odradek.shards import Moment, NewRecord


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
        record = GroupRecord(key, value)
        self.group.replay(record)
        self.records.append(record.encoded())

    def write_profile(self, member_id: str, profile: Profile) -> None:
        self.write(formats.MemberKey(group_id=self.group.group_id, member_id=member_id), profile.value())

    def write_epoch(self, metadata_hash: int) -> None:
        value = formats.GroupValue(epoch=self.group.epoch + 1, metadata_hash=metadata_hash)
        self.write(formats.GroupKey(group_id=self.group.group_id), value)

    def write_state_topics(self, topics: Mapping[UUID, StateTopic]) -> None:
        value = state_topics_value(topics)
        self.write(formats.StatePartitionsKey(group_id=self.group.group_id), value)

    def delete_member(self, member_id: str) -> None:
        """All that there is about a member."""
        group_id = self.group.group_id
        self.write(formats.CurrentKey(group_id=group_id, member_id=member_id), None)
        self.write(formats.TargetMemberKey(group_id=group_id, member_id=member_id), None)
        self.write(formats.MemberKey(group_id=group_id, member_id=member_id), None)

    # -- what the group reads, and who shall read it

    def bump_epoch(self, topics: Topics, *, always: bool) -> None:
        """The next epoch if the topics are not those that the epoch was made for, or in any case."""
        found = _metadata_hash(self.group, topics)
        if always or self.group.epoch == 0 or found != self.group.metadata_hash:
            self.write_epoch(found)

    def retarget(self, topics: Topics, settings: ShareSettings, now: Moment) -> None:
        """Work out the target for the group's epoch, unless that is done already or was done too short a while ago."""
        group = self.group
        if group.epoch <= group.assignment_epoch:
            return
        since_ms = now.wall_ms - group.assignment_ms
        if 0 <= since_ms < settings.assignment_interval_ms and group.assignment_epoch > 0:
            return
        ids = {name: topics.topic_id(name) for name in group.subscribed_topics}
        subscriptions = {
            member_id: frozenset(one for name in profile.topics if (one := ids[name]) is not None)
            for member_id, profile in group.members.items()
        }
        counts = {one: topics.partition_count(name) for name, one in ids.items() if one is not None}
        for member_id, share in assign(subscriptions, counts, group.targets).items():
            if share != group.targets.get(member_id, NOTHING):
                key = formats.TargetMemberKey(group_id=group.group_id, member_id=member_id)
                self.write(key, formats.TargetMemberValue(topic_partitions=listed(share)))
        self.write(
            formats.TargetKey(group_id=group.group_id),
            formats.TargetValue(assignment_epoch=self.group.epoch, assignment_timestamp=now.wall_ms),
        )
        self._begin_to_read(topics)

    def _begin_to_read(self, topics: Topics) -> None:
        """Note the partitions of the target: the group has a state in them from now on; those of deleted topics are gone."""
        known = {
            topic_id: topic
            for topic_id, topic in self.group.state_topics.items()
            if topics.topic_name(topic_id) is not None
        }
        for target in self.group.targets.values():
            for topic_id, partitions in target.items():
                name = topics.topic_name(topic_id)
                before = known.get(topic_id)
                if name is not None:
                    had = frozenset() if before is None else before.partitions
                    known[topic_id] = StateTopic(name=name, partitions=had | partitions)
        if known != self.group.state_topics:
            self.write_state_topics(known)

    def settle(self, member_id: str) -> None:
        """The member is told its target, and is in the target's epoch."""
        before = self.group.currents.get(member_id)
        target, epoch = target_of(self.group, member_id), self.group.assignment_epoch
        if before is None or (before.epoch, before.assigned) != (epoch, target):
            current = Current(
                epoch=epoch, previous_epoch=0 if before is None else before.epoch, assigned=target
            )
            self.write(formats.CurrentKey(group_id=self.group.group_id, member_id=member_id), current.value())


def _metadata_hash(group: ShareGroup, topics: Topics) -> int:
    """A number that changes with the ids and partition counts of the topics that the group reads; 0 when it reads none."""
    digest = blake2b(digest_size=8)
    count = 0
    for name in sorted(group.subscribed_topics):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            count += 1
            digest.update(topic_id.bytes + topics.partition_count(name).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if count else 0
