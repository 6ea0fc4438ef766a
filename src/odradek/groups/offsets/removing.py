"""Removes offsets and groups: by request, with their topic, or by age (KIP-211).

A group's offsets expire `offsets.retention.minutes` after it became empty; offsets of topics that a stable
group does not read any more, and of a group that never had members, expire that long after their commit. A
group that rebalances loses none, and neither does one whose name begins with a prefix of
`odradek.offsets.retention.exempt.prefixes`. Once an empty group has no offsets left, it is deleted itself; a
share group, which has none, stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from odradek.groups.offsets.committing import tombstone
from odradek.groups.shard.deadlines import DeadlineKey
from odradek.groups.shard.kinds import Group, GroupKind, check_group_id
from odradek.groups.shard.machine import CLEANUP, RECORD_OVERHEAD_BYTES, GroupMachine
from odradek.groups.shard.offset_table import CommittedOffset, PartitionName
from odradek.groups.shard.step import GroupStep
from odradek.model.errors import ErrorCode, KafkaError
from odradek.shards import Moment, NewRecord, Outcome

_GROUPS_A_STEP: Final = 500


class _Room:
    """The room in one batch: larger deletions take several."""

    __slots__ = ("_bytes_left", "_step")

    def __init__(self, machine: GroupMachine, step: GroupStep) -> None:
        self._bytes_left = machine.dependencies.batch_bytes_max() // 2
        self._step = step

    def try_delete(self, group_id: str, partition_names: Iterable[PartitionName]) -> bool:
        """Deletes as many offsets as there is room for; returns whether that is all of them."""
        for partition_name in partition_names:
            if self._bytes_left <= 0:
                return False
            self._add(tombstone(group_id, partition_name))
        return True

    def try_delete_group(self, group: Group) -> bool:
        """Deletes the group itself; returns whether there was room for it."""
        if self._bytes_left <= 0:
            return False
        for record in group.tombstones():
            self._add(record)
        return True

    def _add(self, record: NewRecord) -> None:
        self._bytes_left -= len(record.key) + RECORD_OVERHEAD_BYTES
        self._step.records.append(record)


# -- by request


def delete_offsets(
    machine: GroupMachine, now: Moment, *, group_id: str, partition_names: Iterable[PartitionName]
) -> Outcome[dict[PartitionName, ErrorCode]]:
    """Handles OffsetDelete (KIP-496). GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP; GROUP_SUBSCRIBED_TO_TOPIC for a partition."""
    check_group_id(group_id)
    group = _existing(machine, group_id)
    group.check_offset_delete()
    step, verdicts = GroupStep(now), {}
    for partition_name in partition_names:
        if group.is_subscribed(partition_name[0]):
            verdicts[partition_name] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            continue
        verdicts[partition_name] = ErrorCode.NONE
        if machine.offsets.get(group_id, partition_name) or machine.offsets.is_undecided(
            group_id, partition_name
        ):
            step.records.append(tombstone(group_id, partition_name))
    return step.outcome(verdicts)


def delete_group(machine: GroupMachine, now: Moment, *, group_id: str) -> Outcome[bool]:
    """Deletes a part of an empty group; returns True once all of it is deleted. Raises GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP."""
    group = _existing(machine, group_id)
    group.check_delete()
    step = GroupStep(now)
    doomed = dict.fromkeys([*machine.offsets.of(group_id), *machine.offsets.undecided(group_id)])
    if not _Room(machine, step).try_delete(group_id, doomed):
        return step.outcome(False)
    step.records += group.tombstones()
    return step.outcome(True)


def _existing(machine: GroupMachine, group_id: str) -> Group:
    group = machine.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    return group


# -- with their topic


def groups_with_offsets(machine: GroupMachine, now: Moment) -> Outcome[list[str]]:
    return Outcome(list(machine.offsets.groups()))


def delete_topics(
    machine: GroupMachine, now: Moment, *, topics: frozenset[str], group_ids: Sequence[str]
) -> Outcome[list[str]]:
    """Deletes the groups' offsets of deleted topics. Returns the groups that are not done yet."""
    step = GroupStep(now)
    room = _Room(machine, step)
    for position, group_id in enumerate(group_ids[:_GROUPS_A_STEP]):
        partition_names = dict.fromkeys([*machine.offsets.of(group_id), *machine.offsets.undecided(group_id)])
        if not room.try_delete(
            group_id, [partition_name for partition_name in partition_names if partition_name[0] in topics]
        ):
            return step.outcome(list(group_ids[position:]))
    return step.outcome(list(group_ids[_GROUPS_A_STEP:]))


# -- by age


def cleanup_due(machine: GroupMachine, due: DeadlineKey, step: GroupStep) -> None:
    """Cleans all groups up, in parts; a round begins every `offsets.retention.check.interval.ms`."""
    group_ids = machine.cleanup_round
    if not group_ids:
        group_ids.extend(dict.fromkeys([*machine.groups, *machine.offsets.groups()]))
    room = _Room(machine, step)
    for _ in range(min(len(group_ids), _GROUPS_A_STEP)):
        if not _clean(machine, group_ids[-1], room, step.now):
            break
        group_ids.pop()
    pause_ms = 1 if group_ids else machine.settings.offsets_retention_check_interval_ms
    machine.deadlines.set(CLEANUP, step.now.monotonic_ms + pause_ms)


def _clean(machine: GroupMachine, group_id: str, room: _Room, now: Moment) -> bool:
    """Returns whether the group is finished; else there is more of it to delete."""
    group = machine.groups.get(group_id)
    if group is None:
        return True
    offsets = machine.offsets
    expired = [
        partition_name
        for partition_name, committed in offsets.of(group_id).items()
        if _is_expired(machine, group, partition_name, committed, now)
        and not offsets.is_undecided(group_id, partition_name)
    ]
    if not room.try_delete(group_id, expired):
        return False
    nothing_left = len(expired) == len(offsets.of(group_id)) and not offsets.undecided(group_id)
    ends = nothing_left and group.is_empty and group.kind is not GroupKind.SHARE
    return room.try_delete_group(group) if ends else True


def _is_expired(
    machine: GroupMachine,
    group: Group,
    partition_name: PartitionName,
    committed: CommittedOffset,
    now: Moment,
) -> bool:
    if _topic_is_gone(machine, partition_name[0], committed, now):
        return True
    if group.is_subscribed(partition_name[0]):
        return False
    if group.group_id.startswith(machine.settings.offsets_retention_exempt_prefixes):
        return False
    base_ms = group.offset_expiry_base_ms(committed.commit_timestamp_ms)
    if base_ms is None:
        return False
    if committed.expire_timestamp_ms != -1:
        return now.wall_ms >= committed.expire_timestamp_ms
    return now.wall_ms - base_ms >= machine.settings.offsets_retention_ms


def _topic_is_gone(machine: GroupMachine, topic: str, committed: CommittedOffset, now: Moment) -> bool:
    """Returns whether an offset's topic was deleted while this shard was elsewhere, or on its way.

    An offset that was committed a moment ago may be of a topic that this broker does not know yet."""
    if now.wall_ms - committed.commit_timestamp_ms < machine.settings.offsets_retention_check_interval_ms:
        return False
    topic_id = machine.dependencies.topics.topic_id(topic)
    return topic_id is None or not committed.is_of(topic_id)
