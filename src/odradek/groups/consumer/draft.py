"""A group as it will be: records are tried on a copy while a decision is made, so that each step sees the one before.

The copy replays records with the very code that the group itself replays them with, later, when they are in the log. A decision
that ends in a refusal leaves nothing behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.groups.consumer import formats
from odradek.groups.consumer.assignors import Assignment
from odradek.groups.consumer.formats import GroupRecord
from odradek.groups.consumer.group import ConsumerGroup
from odradek.groups.consumer.member import ConsumerMemberMetadata, CurrentAssignment, target_value
from odradek.model.errors import ErrorCode, KafkaError
from odradek.shards import NewRecord

if TYPE_CHECKING:
    from odradek.groups.consumer.group_context import GroupContext
    from odradek.groups.machine import GroupMachine
    from odradek.groups.step import GroupStep


class Draft:
    """`group` is for reading; it is the real one until something is written."""

    __slots__ = ("_is_copy", "group", "records")

    def __init__(self, group: ConsumerGroup) -> None:
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

    def write_profile(self, member_id: str, profile: ConsumerMemberMetadata) -> None:
        self.write(formats.MemberKey(group_id=self.group.group_id, member_id=member_id), profile.value())

    def write_current(self, member_id: str, current: CurrentAssignment) -> None:
        self.write(formats.CurrentKey(group_id=self.group.group_id, member_id=member_id), current.value())

    def write_target(self, member_id: str, target: Assignment) -> None:
        self.write(
            formats.TargetMemberKey(group_id=self.group.group_id, member_id=member_id), target_value(target)
        )

    def write_target_epoch(self, epoch: int, now_wall_ms: int) -> None:
        self.write(
            formats.TargetKey(group_id=self.group.group_id),
            formats.TargetValue(assignment_epoch=epoch, assignment_timestamp=now_wall_ms),
        )

    def write_epoch(self, epoch: int, metadata_hash: int) -> None:
        group_id = self.group.group_id
        self.write(
            formats.GroupKey(group_id=group_id), formats.GroupValue(epoch=epoch, metadata_hash=metadata_hash)
        )
        if self.group.has_partition_metadata:
            self.write(formats.PartitionMetadataKey(group_id=group_id), None)

    def delete_member(self, member_id: str) -> None:
        """All that there is about a member. What it had is free."""
        group_id = self.group.group_id
        self.write(formats.CurrentKey(group_id=group_id, member_id=member_id), None)
        self.write(formats.TargetMemberKey(group_id=group_id, member_id=member_id), None)
        self.write(formats.MemberKey(group_id=group_id, member_id=member_id), None)


def finish(machine: GroupMachine, draft: Draft, group_context: GroupContext, step: GroupStep) -> None:
    """What was decided takes effect, all of it.

    UNKNOWN_SERVER_ERROR, as Kafka answers, for a change that is larger than one batch may be: nothing takes effect then.
    """
    if not machine.fits(draft.records):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the change of group {draft.group.group_id!r} is larger than max.message.bytes of __consumer_offsets",
        )
    step.records += draft.records
    group_context.timers.apply()
    group = machine.groups.get(draft.group.group_id)
    if isinstance(group, ConsumerGroup):
        group.checked_version = draft.group.checked_version
