"""How offsets, and groups, go: by request, with their topic, or by age (KIP-211).

A group's offsets expire `offsets.retention.minutes` after it became empty; those of topics that a stable group does not read
any more, and those of a group that never had members, so long after they were committed. A group that rebalances loses none.
Once an empty group has no offsets left, it is deleted itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from odradek.groups.deadlines import Due
from odradek.groups.kinds import Group, check_group_id
from odradek.groups.machine import CLEANUP, GroupMachine
from odradek.groups.offsets.committing import tombstone, tombstones
from odradek.groups.offsets.table import CommittedOffset, Place
from odradek.groups.step import Step
from odradek.model.errors import ErrorCode, KafkaError
from odradek.shards import Moment, Outcome

_TOMBSTONES_A_STEP: Final = 2_000
"""So many offsets are deleted in one batch: a group with more of them is deleted in several."""
_GROUPS_A_STEP: Final = 500


# -- by request


def delete_offsets(
    machine: GroupMachine, now: Moment, *, group_id: str, places: Iterable[Place]
) -> Outcome[dict[Place, ErrorCode]]:
    """OffsetDelete (KIP-496). GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP; GROUP_SUBSCRIBED_TO_TOPIC for a partition."""
    check_group_id(group_id)
    group = _existing(machine, group_id)
    group.check_offset_delete()
    step, verdicts = Step(now), {}
    for place in places:
        if group.is_subscribed(place[0]):
            verdicts[place] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            continue
        verdicts[place] = ErrorCode.NONE
        if machine.offsets.get(group_id, place) or machine.offsets.is_undecided(group_id, place):
            step.records.append(tombstone(group_id, place))
    return step.outcome(verdicts)


def delete_group(machine: GroupMachine, now: Moment, *, group_id: str) -> Outcome[bool]:
    """Delete a part of an empty group; True once all of it is gone. GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    group = _existing(machine, group_id)
    group.check_delete()
    step = Step(now)
    doomed = dict.fromkeys([*machine.offsets.of(group_id), *machine.offsets.undecided(group_id)])
    step.records += tombstones(group_id, islice(doomed, _TOMBSTONES_A_STEP))
    if len(doomed) > _TOMBSTONES_A_STEP:
        return step.outcome(False)
    step.records += group.tombstones()
    return step.outcome(True)


def _existing(machine: GroupMachine, group_id: str) -> Group:
    group = machine.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    return group


# -- with their topic


def delete_topics(
    machine: GroupMachine, now: Moment, *, topics: frozenset[str], skip: int
) -> Outcome[int | None]:
    """Offsets of topics that were deleted, from the `skip`th group on; returns where to go on, None at the end."""
    step = Step(now)
    group_ids = list(machine.offsets.groups())
    for position, group_id in enumerate(group_ids[skip : skip + _GROUPS_A_STEP], start=skip):
        doomed = [
            place
            for place in (*machine.offsets.of(group_id), *machine.offsets.undecided(group_id))
            if place[0] in topics
        ]
        step.records += tombstones(group_id, dict.fromkeys(doomed[:_TOMBSTONES_A_STEP]))
        if len(step.records) >= _TOMBSTONES_A_STEP:
            return step.outcome(position)  # this group again: it may have more
    end = skip + _GROUPS_A_STEP
    return step.outcome(end if end < len(group_ids) else None)


# -- by age


def cleanup_due(machine: GroupMachine, due: Due, step: Step) -> None:
    """A round over all groups, in parts; a round begins every `offsets.retention.check.interval.ms`."""
    group_ids = machine.cleanup_round
    if not group_ids:
        group_ids.extend(dict.fromkeys([*machine.groups, *machine.offsets.groups()]))
    for _ in range(min(len(group_ids), _GROUPS_A_STEP)):
        _clean(machine, group_ids.pop(), step)
        if len(step.records) >= _TOMBSTONES_A_STEP:
            break
    pause_ms = 1 if group_ids else machine.settings.offsets_retention_check_interval_ms
    machine.deadlines.set(CLEANUP, step.now.monotonic_ms + pause_ms)


def _clean(machine: GroupMachine, group_id: str, step: Step) -> None:
    group = machine.groups.get(group_id)
    if group is None:
        return
    offsets = machine.offsets
    expired = [
        place
        for place, committed in offsets.of(group_id).items()
        if _is_expired(machine, group, place, committed, step.now)
        and not offsets.is_undecided(group_id, place)
    ]
    step.records += tombstones(group_id, islice(expired, _TOMBSTONES_A_STEP))
    nothing_left = len(expired) == len(offsets.of(group_id)) and len(expired) <= _TOMBSTONES_A_STEP
    if nothing_left and group.is_empty and not offsets.undecided(group_id):
        step.records += group.tombstones()


def _is_expired(
    machine: GroupMachine, group: Group, place: Place, committed: CommittedOffset, now: Moment
) -> bool:
    if group.is_subscribed(place[0]):
        return False
    base_ms = group.offset_expiry_base_ms(committed.commit_timestamp_ms)
    if base_ms is None:
        return False
    if committed.expire_timestamp_ms != -1:
        return now.wall_ms >= committed.expire_timestamp_ms
    return now.wall_ms - base_ms >= machine.settings.offsets_retention_ms
