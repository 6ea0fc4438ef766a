"""The lag of a group, in records and in seconds: its committed offsets compared with the end offsets of its
partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict

from odradek import client
from odradek.cli.access import client_arguments
from odradek.cli.output import remark
from odradek.client.admin.group_descriptions import SHARE
from odradek.client.aio import AsyncConsumer
from odradek.client.consumer.unread_ages import READING_SETTINGS, furthest_behind, unread_ages_ms
from odradek.client.network.errors import explain
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import TopicPartition
from odradek.runtime.real_clock import SystemClock

if TYPE_CHECKING:
    from odradek.client import Admin
    from odradek.client.admin.group_descriptions import GroupDescription

AgesOf = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]
"""Returns the age of the first record at or after each position, in milliseconds, where it is known."""


class GroupLag(TypedDict):
    """A group as `group describe --json` prints it. `offsets` has a row for each partition, `members` one for each member."""

    group: str
    state: str
    type: str
    assignor: str | None
    coordinator: int
    lag: int
    lag_seconds: float | None
    offsets: list[dict[str, str | float | None]]
    members: list[dict[str, object]]


def describe_group(admin: Admin, group_id: str, ages_of: AgesOf) -> GroupLag:
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
    ages_ms = ages_of(furthest_behind(positions, ends))
    offsets: list[dict[str, str | float | None]] = []
    lags: list[int] = []
    known_s: list[float] = []
    for tp in partitions:
        position = positions.get(tp)
        owner = owners.get(tp)
        end = ends.get(tp)
        lag = max(0, end - position) if position is not None and end is not None else None
        lag_s = 0.0 if lag == 0 else _seconds(ages_ms.get(tp))
        if lag_s is not None:
            known_s.append(lag_s)
        lags.append(lag or 0)
        offsets.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": position,
                "end": end,
                "lag": lag,
                "lag_seconds": lag_s,
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
        "lag": sum(lags),
        "lag_seconds": max(known_s, default=None),
        "offsets": offsets,
        "members": _members(group_description),
    }


def _seconds(age_ms: int | None) -> float | None:
    return None if age_ms is None else round(age_ms / 1_000, 1)


def first_unread_ages(bootstrap: str, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Returns the age of the first record at or after each position, in milliseconds, where it is known.

    Without the right to read a topic no age is known; a remark reports it.
    """
    if not positions:
        return {}
    try:
        return asyncio.run(_read_ages(bootstrap, positions))
    except OdradekError as error:
        remark(f"the lag in seconds is not known: {explain(error)}")
        return {}


async def _read_ages(bootstrap: str, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    consumer = AsyncConsumer(bootstrap, **{**client_arguments(), **READING_SETTINGS})
    try:
        return await unread_ages_ms(consumer, positions, SystemClock())
    finally:
        await consumer.close(commit=False)


def end_offsets(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns the end offset of every partition, without deleted partitions."""
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


def _members(group_description: GroupDescription) -> list[dict[str, object]]:
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
