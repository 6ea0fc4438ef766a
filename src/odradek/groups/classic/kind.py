"""The parts that classic groups register with the machine: their record, and their deadlines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from odradek.groups.classic.group import ClassicGroup
from odradek.groups.classic.rebalance import (
    classic_group,
    forget_if_unstored,
    join_due,
    session_due,
    sync_due,
)
from odradek.groups.classic.timers import ClassicTimer
from odradek.groups.shard.deadlines import DeadlineKey
from odradek.groups.shard.formats import GROUP_METADATA_KEY, GroupMetadataKey, read
from odradek.groups.shard.machine import GroupMachine, KindParts
from odradek.groups.shard.step import GroupStep
from odradek.shards import StoredRecord


def _replay(machine: GroupMachine, record: StoredRecord) -> None:
    group_id = read(GroupMetadataKey, record.key).group
    group = classic_group(machine, group_id)
    if record.value is None:
        if group is not None:
            machine.forget(group)
        return
    if group is None:
        group = ClassicGroup(group_id, machine.deadlines)
    group.replay(group.read_value(record.value))
    machine.groups[group_id] = group


def _due(
    act: Callable[[GroupMachine, ClassicGroup, GroupStep], None],
) -> Callable[[GroupMachine, DeadlineKey, GroupStep], None]:
    def expire(machine: GroupMachine, due: DeadlineKey, step: GroupStep) -> None:
        group = classic_group(machine, due.group_id)
        if group is not None:
            act(machine, group, step)

    return expire


def _session_due(machine: GroupMachine, due: DeadlineKey, step: GroupStep) -> None:
    group = classic_group(machine, due.group_id)
    if group is None:
        return
    session_due(machine, group, due.member_id, step)
    forget_if_unstored(machine, group, step)


CLASSIC: Final = KindParts(
    replays={GROUP_METADATA_KEY: _replay},
    expires={
        ClassicTimer.SESSION: _session_due,
        ClassicTimer.JOIN: _due(join_due),
        ClassicTimer.SYNC: _due(sync_due),
    },
)
