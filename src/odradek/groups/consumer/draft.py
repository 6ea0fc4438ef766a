"""A consumer group as it will be (`modern/draft.py`), with the records that it is written in."""

from __future__ import annotations

from typing import Final

from odradek.groups.consumer import formats
from odradek.groups.consumer.group import ConsumerGroup
from odradek.groups.consumer.group_context import GroupContext
from odradek.groups.consumer.member import target_value
from odradek.groups.modern import draft as modern
from odradek.groups.modern.draft import GroupDraft, GroupSchema
from odradek.groups.shard.machine import ClusterTopics, GroupMachine
from odradek.groups.shard.step import GroupStep

SCHEMA: Final[GroupSchema[formats.Key, formats.Value]] = GroupSchema(
    group=formats.GroupKey,
    group_value=formats.GroupValue,
    member=formats.MemberKey,
    target=formats.TargetKey,
    target_value=formats.TargetValue,
    target_member=formats.TargetMemberKey,
    target_member_value=target_value,
    current=formats.CurrentKey,
)
Draft = GroupDraft[ConsumerGroup, formats.Key, formats.Value]


def draft_of(group: ConsumerGroup) -> Draft:
    return GroupDraft(group, SCHEMA)


def bump_epoch(draft: Draft, topics: ClusterTopics, *, always: bool) -> None:
    """See `GroupDraft.bump_epoch`."""
    before = draft.group.epoch
    draft.bump_epoch(topics, always=always)
    if draft.group.has_partition_metadata and draft.group.epoch != before:
        draft.write(formats.PartitionMetadataKey(group_id=draft.group.group_id), None)


def finish(machine: GroupMachine, draft: Draft, group_context: GroupContext, step: GroupStep) -> None:
    """Applies the whole draft. Raises as `modern.draft.finish`."""
    modern.finish(machine, draft, step)
    group_context.timers.apply()
