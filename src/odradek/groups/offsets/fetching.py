"""OffsetFetch: what a group has committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.groups.shard.machine import GroupMachine
from odradek.groups.shard.offset_table import CommittedOffset, PartitionName
from odradek.model.errors import ErrorCode
from odradek.model.ids import ZERO_UUID
from odradek.shards import Moment, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffset:
    """The answer for one partition: without a commit it is offset -1 and no error."""

    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


_NOTHING: Final = FetchedOffset()
_UNSTABLE: Final = FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
Wanted = dict[PartitionName, UUID]
"""The partitions asked for, each with its topic's id where the asker gave one."""


def fetch(
    machine: GroupMachine,
    now: Moment,
    *,
    group_id: str,
    member_id: str | None,
    member_epoch: int,
    wanted: Wanted | None,
    require_stable: bool,
) -> Outcome[dict[PartitionName, FetchedOffset]]:
    """Returns the committed offsets of a group. `wanted` None: all of them. Raises what a group of the newer protocol
    answers to a member that is not up to date."""
    group = machine.groups.get(group_id)
    if group is not None:
        group.check_fetch(member_id, member_epoch)
    offsets = machine.offsets
    requested = dict.fromkeys(offsets.of(group_id), ZERO_UUID) if wanted is None else wanted
    fetched = {}
    for partition_name, requested_id in requested.items():
        if require_stable and offsets.is_undecided(group_id, partition_name):
            fetched[partition_name] = _UNSTABLE
            continue
        topic_id = (
            requested_id
            if requested_id != ZERO_UUID
            else machine.dependencies.topics.topic_id(partition_name[0])
        )
        fetched_offset = _fetched(offsets.get(group_id, partition_name), topic_id)
        if fetched_offset is not _NOTHING or wanted is not None:
            fetched[partition_name] = fetched_offset
    return Outcome(fetched)


def _fetched(committed: CommittedOffset | None, topic_id: UUID | None) -> FetchedOffset:
    """Returns a partition's answer; offsets that were committed for a deleted topic do not count for one of the same name."""
    if committed is None or not committed.is_of(topic_id):
        return _NOTHING
    return FetchedOffset(
        offset=committed.offset, leader_epoch=committed.leader_epoch, metadata=committed.metadata
    )
