"""The lag of a group: its committed offsets beside the ends of its partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from odradek import client
from odradek.client.admin.group_descriptions import SHARE
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition

if TYPE_CHECKING:
    from odradek.client import Admin
    from odradek.client.admin.group_descriptions import GroupDescription


def describe_group(admin: Admin, group_id: str) -> dict[str, Any]:
    """State, members, and each partition's lag, as `group describe --json` prints it."""
    group_description = admin.describe_groups([group_id])[group_id]
    if group_description.type == SHARE:
        positions = dict(group_description.start_offsets)
    else:
        committed = admin.list_group_offsets(group_id)
        positions = {tp: known.offset for tp, known in committed.items() if known is not None}
    owners = {tp: member for member in group_description.members for tp in member.assignment}
    partitions = sorted(set(positions) | set(owners))
    ends = end_offsets(admin, partitions)
    offsets = []
    for tp in partitions:
        position = positions.get(tp)
        owner = owners.get(tp)
        end = ends.get(tp)
        offsets.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": position,
                "end": end,
                "lag": max(0, end - position) if position is not None and end is not None else None,
                "member": owner.member_id if owner is not None else None,
                "client": owner.client_id if owner is not None else None,
                "host": owner.client_host if owner is not None else None,
            }
        )
    return {
        "group": group_id,
        "state": group_description.state,
        "type": group_description.type,
        "assignor": group_description.assignor,
        "coordinator": group_description.coordinator,
        "lag": sum(offset["lag"] or 0 for offset in offsets),
        "offsets": offsets,
        "members": _members(group_description),
    }


def end_offsets(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns the end offset of every partition, without partitions that are gone."""
    wanted = dict.fromkeys(partitions, client.LATEST)
    if not wanted:
        return {}
    try:
        offsets = admin.list_offsets(wanted)
    except client.PartialFailureError as error:
        offsets = dict(error.results)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        offsets = {}
    return {tp: committed.offset for tp, committed in offsets.items()}


def _members(group_description: GroupDescription) -> list[dict[str, Any]]:
    return [
        {
            "member": member.member_id,
            "instance": member.group_instance_id,
            "client": member.client_id,
            "host": member.client_host,
            "epoch": member.member_epoch,
            "partitions": [str(tp) for tp in sorted(member.assignment)],
            "target": None
            if member.target_assignment is None
            else [str(tp) for tp in sorted(member.target_assignment)],
        }
        for member in group_description.members
    ]
