"""Descriptions of groups for administrators."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.groups.classic.group import ClassicGroup
from odradek.groups.classic.states import ClassicGroupState
from odradek.groups.shard.kinds import Group
from odradek.groups.shard.machine import GroupMachine
from odradek.model.errors import ErrorCode, KafkaError
from odradek.shards import Moment, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One group in a list."""

    group_id: str
    protocol_type: str
    state: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A classic group.

    Only the answer for a stable group has the members' metadata and the protocol; the last assignment of the members is
    always there, as in Kafka.
    """

    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


def groups_of(machine: GroupMachine, now: Moment) -> Outcome[list[Group]]:
    """Returns all groups of a shard, for a list in steps."""
    return Outcome(list(machine.groups.values()))


def listed(group: Group) -> Listed:
    """Returns the group's entry in ListGroups, as of now."""
    return Listed(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        state=group.state_name,
        kind=group.kind.value,
    )


def describe_classic(machine: GroupMachine, now: Moment, *, group_id: str) -> Outcome[Described]:
    group = machine.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, ClassicGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
    stable = group.state is ClassicGroupState.STABLE
    members = tuple(
        DescribedMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            metadata=member.metadata(group.protocol_name) if stable else b"",
            assignment=member.assignment,
        )
        for member in group.members.values()
    )
    return Outcome(
        Described(
            state=group.state_name,
            protocol_type=group.protocol_type or "",
            protocol=(group.protocol_name or "") if stable else "",
            members=members,
        )
    )
