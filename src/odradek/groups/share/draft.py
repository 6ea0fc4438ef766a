"""A share group as it will be (`modern/draft.py`), with the records that it is written in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from odradek.groups.modern.assignment import Assignment
from odradek.groups.modern.draft import GroupDraft, GroupSchema
from odradek.groups.share import formats
from odradek.groups.share.group import ShareGroup, StateTopic, listed, state_topics_value


def _target_value(target: Assignment) -> formats.ShareTargetMemberValue:
    return formats.ShareTargetMemberValue(topic_partitions=listed(target))


SCHEMA: Final[GroupSchema[formats.Key, formats.Value]] = GroupSchema(
    group=formats.ShareGroupKey,
    group_value=formats.ShareGroupValue,
    member=formats.ShareMemberKey,
    target=formats.ShareTargetKey,
    target_value=formats.ShareTargetValue,
    target_member=formats.ShareTargetMemberKey,
    target_member_value=_target_value,
    current=formats.ShareCurrentKey,
)
ShareDraft = GroupDraft[ShareGroup, formats.Key, formats.Value]


def draft_of(group: ShareGroup) -> ShareDraft:
    return GroupDraft(group, SCHEMA)


def write_state_topics(draft: ShareDraft, topics: Mapping[UUID, StateTopic]) -> None:
    """Writes the partitions that the group has a state in."""
    draft.write(formats.StatePartitionsKey(group_id=draft.group.group_id), state_topics_value(topics))
