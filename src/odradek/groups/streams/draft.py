"""A streams group as it will be (`modern/draft.py`), with the records that it is written in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.groups.modern.assignment import metadata_hash
from odradek.groups.modern.draft import GroupDraft, GroupSchema
from odradek.groups.shard.machine import ClusterTopics
from odradek.groups.streams import formats
from odradek.groups.streams.group import StreamsGroup
from odradek.groups.streams.member import target_value

SCHEMA: Final[GroupSchema[formats.Key, formats.Value]] = GroupSchema(
    group=formats.StreamsGroupKey,
    group_value=formats.StreamsGroupValue,
    member=formats.StreamsMemberKey,
    target=formats.StreamsTargetKey,
    target_value=formats.StreamsTargetValue,
    target_member=formats.StreamsTargetMemberKey,
    target_member_value=target_value,
    current=formats.StreamsCurrentKey,
)
StreamsDraft = GroupDraft[StreamsGroup, formats.Key, formats.Value]


def draft_of(group: StreamsGroup) -> StreamsDraft:
    return GroupDraft(group, SCHEMA)


def write_topology(draft: StreamsDraft, topology: formats.StreamsTopologyValue) -> None:
    draft.write(formats.StreamsTopologyKey(group_id=draft.group.group_id), topology)


def bump_epoch(
    draft: StreamsDraft, topics: ClusterTopics, configs: Mapping[str, str], *, always: bool
) -> None:
    """Begins the next epoch if the topics, the validity of the topology, or the assignment's settings differ
    from the current epoch's, or, with `always`, in any case."""
    group = draft.group
    assert group.topology is not None, "a group without a topology has no epochs"
    new_hash = metadata_hash(group.subscribed_topics, topics)
    valid_epoch = group.topology.epoch if group.configured(topics).is_ready else -1
    if (
        always
        or new_hash != group.metadata_hash
        or valid_epoch != group.validated_topology_epoch
        or configs != group.assignment_configs
    ):
        write_epoch(draft, new_hash, valid_epoch, configs)


def write_epoch(
    draft: StreamsDraft, topics_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> None:
    """Begins the next epoch."""
    draft.write(
        formats.StreamsGroupKey(group_id=draft.group.group_id),
        formats.StreamsGroupValue(
            epoch=draft.group.epoch + 1,
            metadata_hash=topics_hash,
            validated_topology_epoch=validated_topology_epoch,
            last_assignment_configs=[
                formats.LastAssignmentConfig(key=key, value=configs[key]) for key in sorted(configs)
            ],
        ),
    )
