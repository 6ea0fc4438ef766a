"""A group as it will be: records are tried on a copy while a decision is made, so that each step sees the one before.

The copy replays records with the very code that the group itself replays them with, later, when they are in
the log. A decision that ends in a refusal changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from odradek.groups.modern.assignment import metadata_hash
from odradek.groups.modern.records import GroupRecord
from odradek.groups.shard.kinds import Group
from odradek.groups.shard.machine import ClusterTopics, GroupMachine
from odradek.groups.shard.step import GroupStep
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import Message
from odradek.shards import NewRecord

K = TypeVar("K", bound=Message)
V = TypeVar("V", bound=Message)
V_co = TypeVar("V_co", bound=Message, covariant=True)


class ModernGroup(Group, Protocol[K, V]):
    """A group whose members get their partitions from the broker, in heartbeats.

    Three epochs: the group's grows whenever a member joins or leaves, changes its subscription, or a topic
    changes; the assignment's is the group epoch that the target was computed for; a member's is the epoch of
    the target that it has reached.
    """

    epoch: int
    metadata_hash: int
    assignment_epoch: int
    assignment_ms: int
    """Wall clock: when the target was worked out."""
    checked_version: int
    """Soft: the version of the cluster's topics that the group was last compared with."""

    @property
    def members(self) -> Mapping[str, object]: ...
    @property
    def targets(self) -> Mapping[str, object]: ...
    @property
    def subscribed_topics(self) -> frozenset[str]: ...
    def copy(self) -> Self: ...
    def replay(self, record: GroupRecord[K, V]) -> None: ...


G = TypeVar("G", bound="ModernGroup[Any, Any]")


class Stored(Protocol[V_co]):
    """The part of a member that a record contains."""

    def value(self) -> V_co: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSchema(Generic[K, V]):
    """The classes of the records that both kinds of groups have, by what they are about."""

    group: Callable[..., K]
    group_value: Callable[..., V]
    member: Callable[..., K]
    target: Callable[..., K]
    target_value: Callable[..., V]
    target_member: Callable[..., K]
    target_member_value: Callable[[Any], V]
    """The value for a target, in the form that the kind of group has for it."""
    current: Callable[..., K]

    def target_record(self, group_id: str, member_id: str, target: object) -> GroupRecord[K, V]:
        key = self.target_member(group_id=group_id, member_id=member_id)
        return GroupRecord(key, self.target_member_value(target))


class GroupDraft(Generic[G, K, V]):
    """A group's state while a decision about it is made. `group` is read only; it is the real group until the first write,
    and a copy after it."""

    __slots__ = ("_is_copy", "_schema", "group", "records")

    def __init__(self, group: G, schema: GroupSchema[K, V]) -> None:
        self.group = group
        self.records: list[NewRecord] = []
        self._schema = schema
        self._is_copy = False

    def write(self, key: K, value: V | None) -> None:
        self._write(GroupRecord(key, value))

    def _write(self, record: GroupRecord[K, V]) -> None:
        if not self._is_copy:
            self.group = self.group.copy()
            self._is_copy = True
        self.group.replay(record)
        self.records.append(record.encoded())

    def write_profile(self, member_id: str, profile: Stored[V]) -> None:
        self.write(self._schema.member(group_id=self.group.group_id, member_id=member_id), profile.value())

    def write_current(self, member_id: str, current: Stored[V]) -> None:
        self.write(self._schema.current(group_id=self.group.group_id, member_id=member_id), current.value())

    def write_target(self, member_id: str, target: object) -> None:
        self._write(self._schema.target_record(self.group.group_id, member_id, target))

    def write_target_epoch(self, epoch: int, now_wall_ms: int) -> None:
        self.write(
            self._schema.target(group_id=self.group.group_id),
            self._schema.target_value(assignment_epoch=epoch, assignment_timestamp=now_wall_ms),
        )

    def write_epoch(self, epoch: int, topics_hash: int) -> None:
        self.write(
            self._schema.group(group_id=self.group.group_id),
            self._schema.group_value(epoch=epoch, metadata_hash=topics_hash),
        )

    def bump_epoch(self, topics: ClusterTopics, *, always: bool) -> None:
        """Begins the next epoch if the topics differ from the current epoch's, or, with `always`, in any
        case."""
        group = self.group
        new_hash = metadata_hash(group.subscribed_topics, topics)
        if always or group.epoch == 0 or new_hash != group.metadata_hash:
            self.write_epoch(group.epoch + 1, new_hash)

    def catch_up_if_empty(self) -> None:
        """Brings the assignment of a group that lost its last member to the group's epoch, as Kafka does since 4.4.

        There is nothing to work out, and the next member does not wait for the interval between assignments.
        """
        if not self.group.members and self.group.assignment_epoch != self.group.epoch:
            self.write_target_epoch(self.group.epoch, 0)

    def delete_member(self, member_id: str) -> None:
        """Deletes all records of a member. Its partitions become free."""
        group_id = self.group.group_id
        self.write(self._schema.current(group_id=group_id, member_id=member_id), None)
        self.write(self._schema.target_member(group_id=group_id, member_id=member_id), None)
        self.write(self._schema.member(group_id=group_id, member_id=member_id), None)


def finish(machine: GroupMachine, draft: GroupDraft[G, K, V], step: GroupStep) -> None:
    """Applies the whole draft.

    UNKNOWN_SERVER_ERROR, as Kafka answers, for a change that is larger than one batch may be: nothing takes effect then.
    """
    if not machine.fits(draft.records):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the change of group {draft.group.group_id!r} is larger than max.message.bytes of __consumer_offsets",
        )
    step.records += draft.records
    group = machine.groups.get(draft.group.group_id)
    if isinstance(group, type(draft.group)):
        group.checked_version = draft.group.checked_version
