"""Refusals that members of consumer groups and of share groups meet alike, and how a group comes out of its records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from odradek.groups.modern.draft import ModernGroup
from odradek.groups.modern.records import GroupRecord
from odradek.groups.shard.kinds import Group
from odradek.groups.shard.machine import GroupMachine
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import Message

G = TypeVar("G", bound="ModernGroup[Any, Any]")
K = TypeVar("K", bound=Message)
V = TypeVar("V", bound=Message)


def check_room(group: ModernGroup[Any, Any], member_id: str, size_max: int) -> None:
    if len(group.members) >= size_max and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id!r} has {len(group.members)} members, and may have {size_max}",
        )


def group_not_found(group_id: str, group: Group | None, kind: str) -> KafkaError:
    what = "not found" if group is None else f"is not a {kind} group"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")


def unknown_member(group_id: str, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of group {group_id!r}")


def invalid_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def replay_group(
    machine: GroupMachine,
    record: GroupRecord[K, V],
    kind: type[G],
    *,
    deletes_group: bool,
    make: Callable[[str], G],
) -> G | None:
    """Applies a record of a group of this kind. Returns the group, unless the record deletes it, or is a tombstone of none.

    A first record makes the group, in place of one of another kind.
    """
    known = machine.groups.get(record.group_id)
    group = known if isinstance(known, kind) else None
    if record.value is None:
        if group is not None and deletes_group:
            machine.forget(group)
            return None
    elif group is None:
        if known is not None:
            machine.forget(known)
        group = machine.groups[record.group_id] = make(record.group_id)
    if group is not None:
        group.replay(record)
    return group
