"""A consumer group, the state that its records define. Only `replay` changes it, except fields that are
marked as soft.

Three epochs: the group's grows whenever a member joins or leaves, changes its subscription, or a topic
changes; the assignment's is the group epoch that the target was computed for; a member's is the epoch of the
target that it has reached. The group is stable when all three are equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from odradek.groups.consumer import formats
from odradek.groups.consumer.commits import check_commit, check_fetch
from odradek.groups.consumer.formats import ConsumerGroupRecord
from odradek.groups.consumer.member import (
    ConsumerGroupMember,
    ConsumerMemberMetadata,
    CurrentAssignment,
    Holding,
    target_of,
)
from odradek.groups.modern.assignment import NOTHING, Assignment
from odradek.groups.modern.records import GroupRecord
from odradek.groups.shard.kinds import Caller, CheckPartition, Committer, GroupKind
from odradek.groups.shard.step import GroupStep
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.messages.groups.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.shards import Moment, NewRecord, StoredRecord, Ticket

if TYPE_CHECKING:
    from odradek.groups.shard.machine import GroupMachine

PROTOCOL_TYPE: Final = "consumer"
_NUMBERS: Final = (
    "epoch",
    "metadata_hash",
    "assignment_epoch",
    "assignment_ms",
    "has_partition_metadata",
    "checked_version",
)
_TABLES: Final = ("members", "statics", "targets", "regexes", "owners")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRegex:
    """The topics that a regular expression named when it was last looked at."""

    topics: frozenset[str] = frozenset()
    version: int = 0
    timestamp_ms: int = 0


class GroupActions(Protocol):
    """The actions on a group that its records do not contain (`kind.py`)."""

    def loaded(self, group: ConsumerGroup, now: Moment) -> None: ...

    def join(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        caller: Caller,
        ticket: Ticket[JoinGroupResponse],
        step: GroupStep,
    ) -> None: ...

    def sync(
        self,
        group: ConsumerGroup,
        request: SyncGroupRequest,
        ticket: Ticket[SyncGroupResponse],
        step: GroupStep,
    ) -> None: ...

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, step: GroupStep) -> None: ...

    def leave(
        self, group: ConsumerGroup, request: LeaveGroupRequest, step: GroupStep
    ) -> LeaveGroupResponse: ...


class ConsumerGroup:
    """A group of the consumer protocol (KIP-848). Implements `groups.kinds.Group`. Members and their assignments are values,
    so a copy of the group is cheap."""

    __slots__ = (
        "_actions",
        "_subscribed",
        "assignment_epoch",
        "assignment_ms",
        "checked_version",
        "epoch",
        "group_id",
        "has_partition_metadata",
        "kind",
        "members",
        "metadata_hash",
        "noted",
        "owners",
        "regexes",
        "statics",
        "targets",
    )

    def __init__(self, group_id: str, actions: GroupActions | None = None) -> None:
        self.group_id = group_id
        self.kind = GroupKind.CONSUMER
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_ms = 0
        """Wall clock: when the target was worked out."""
        self.members: dict[str, ConsumerGroupMember] = {}
        self.statics: dict[str, str] = {}
        """Instance id -> member id."""
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.owners: dict[tuple[UUID, int], str] = {}
        """Partition -> the member that has it, whether to use or to give back."""
        self.has_partition_metadata = False
        """Kafka 4.0 left a record that no one reads any more: it is deleted with the next change of the group's epoch."""
        self.noted: dict[str, StoredRecord] = {}
        """The newest record about each member itself, without its content. A draft has the real group's."""
        self.checked_version = -1
        """Soft: the version of the cluster's topics that the group was last compared with."""
        self._actions = actions
        self._subscribed: frozenset[str] | None = None

    def copy(self) -> ConsumerGroup:
        """Returns another group in the same state, to try records on."""
        other = ConsumerGroup(self.group_id)
        for name in _NUMBERS:
            setattr(other, name, getattr(self, name))
        for name in _TABLES:
            setattr(other, name, getattr(self, name).copy())
        other.noted = self.noted
        return other

    # -- what the machine asks of every kind

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        reconciled = all(
            member.current.is_reconciled_to(self.assignment_epoch) for member in self.members.values()
        )
        return "Stable" if reconciled else "Reconciling"

    @property
    def protocol_type(self) -> str:
        return PROTOCOL_TYPE

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_commit(self, committer: Committer) -> CheckPartition | None:
        return check_commit(self.group_id, self.members, committer)

    def committed(self, committer: Committer, now: Moment) -> None:
        """Does nothing: a commit is no sign of life, heartbeats are."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        check_fetch(self.group_id, self.members, member_id, member_epoch)

    def check_offset_delete(self) -> None:
        """Always allowed: the topics that the group reads are refused one by one."""

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id!r} has members")

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.subscribed_topics

    def offset_expiry_base_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> Iterator[NewRecord]:
        """Yields the tombstones that delete the group; the group's own comes last."""
        group_id = self.group_id
        keys: list[formats.Key] = [
            *(formats.CurrentKey(group_id=group_id, member_id=member_id) for member_id in self.members),
            *(formats.TargetMemberKey(group_id=group_id, member_id=member_id) for member_id in self.targets),
            formats.TargetKey(group_id=group_id),
            *(formats.MemberKey(group_id=group_id, member_id=member_id) for member_id in self.members),
            *(formats.RegexKey(group_id=group_id, regular_expression=regex) for regex in self.regexes),
        ]
        if self.has_partition_metadata:
            keys.append(formats.PartitionMetadataKey(group_id=group_id))
        keys.append(formats.GroupKey(group_id=group_id))
        return (GroupRecord(key, None).encoded() for key in keys)

    def loaded(self, now: Moment) -> None:
        if self._actions is not None:
            self._actions.loaded(self, now)

    def waiting(self) -> Iterable[Ticket[object]]:
        return ()

    # -- members that speak the classic protocol (`groups.classic.operations.ClassicFace`)

    def join(
        self,
        machine: GroupMachine,
        request: JoinGroupRequest,
        caller: Caller,
        ticket: Ticket[JoinGroupResponse],
        step: GroupStep,
    ) -> None:
        assert self._actions is not None, "drafts have no members to serve"
        self._actions.join(self, request, caller, ticket, step)

    def sync(
        self,
        machine: GroupMachine,
        request: SyncGroupRequest,
        caller: Caller,
        ticket: Ticket[SyncGroupResponse],
        step: GroupStep,
    ) -> None:
        assert self._actions is not None, "drafts have no members to serve"
        self._actions.sync(self, request, ticket, step)

    def heartbeat(self, machine: GroupMachine, request: HeartbeatRequest, step: GroupStep) -> None:
        assert self._actions is not None, "drafts have no members to serve"
        self._actions.heartbeat(self, request, step)

    def leave(self, machine: GroupMachine, request: LeaveGroupRequest, step: GroupStep) -> LeaveGroupResponse:
        assert self._actions is not None, "drafts have no members to serve"
        return self._actions.leave(self, request, step)

    # -- what decisions ask

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The names that any member subscribes to, itself or by its regular expression."""
        if self._subscribed is None:
            named = (member.profile.topics for member in self.members.values())
            matched = (regex.topics for regex in self.regexes.values())
            self._subscribed = frozenset().union(*named, *matched)
        return self._subscribed

    def topics_of(self, profile: ConsumerMemberMetadata) -> frozenset[str]:
        """Returns the names that one member subscribes to."""
        resolved = self.regexes.get(profile.regex)
        return profile.topics | resolved.topics if resolved is not None else profile.topics

    def regex_is_used(self, regex: str) -> bool:
        return any(member.profile.regex == regex for member in self.members.values())

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NOTHING)

    def is_free(self, topic: UUID, partition: int) -> bool:
        return (topic, partition) not in self.owners

    def preferred_assignor(self, default: str) -> str:
        """Returns the assignor that most of the members with a preference prefer."""
        votes = Counter(
            member.profile.assignor for member in self.members.values() if member.profile.assignor
        )
        return max(votes, key=lambda name: (votes[name], name), default=default)

    # -- the log's side

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Applies a record about this group, except the one that deletes it."""
        key, value = record
        match key, value:
            case formats.GroupKey(), formats.GroupValue():
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case formats.MemberKey(), None:
                self._forget(key.member_id)
            case formats.MemberKey(), formats.MemberValue():
                self._profile(key.member_id, ConsumerMemberMetadata.of(value))
            case formats.CurrentKey(), None:
                self._move(key.member_id, CurrentAssignment(epoch=-1))
            case formats.CurrentKey(), formats.CurrentValue():
                self._move(key.member_id, CurrentAssignment.of(value))
            case formats.TargetMemberKey(), None:
                self.targets.pop(key.member_id, None)
            case formats.TargetMemberKey(), formats.TargetMemberValue():
                self.targets[key.member_id] = target_of(value)
            case formats.TargetKey(), _:
                self._retargeted(value if isinstance(value, formats.TargetValue) else formats.TargetValue())
            case formats.RegexKey(), _:
                self._resolved(
                    key.regular_expression, value if isinstance(value, formats.RegexValue) else None
                )
            case formats.PartitionMetadataKey(), _:
                self.has_partition_metadata = value is not None

    def note(self, record: ConsumerGroupRecord, stored: StoredRecord) -> None:
        """Notes the stored form of a record that was replayed."""
        key = record.key
        if isinstance(key, formats.MemberKey | formats.CurrentKey):
            if record.value is None:
                self.noted.pop(key.member_id, None)
            else:
                self.noted[key.member_id] = stored._replace(key=b"", value=None)

    def _profile(self, member_id: str, profile: ConsumerMemberMetadata) -> None:
        before = self.members.get(member_id)
        self.members[member_id] = (
            ConsumerGroupMember(member_id=member_id, profile=profile)
            if before is None
            else replace(before, profile=profile)
        )
        self._subscribed = None
        self._forget_instance(before)
        if profile.instance_id is not None:
            self.statics[profile.instance_id] = member_id

    def _move(self, member_id: str, current: CurrentAssignment) -> None:
        before = self.members.get(member_id)
        if before is None:
            if current.epoch == -1:
                return
            before = ConsumerGroupMember(member_id=member_id)
        self._release(before)
        self.members[member_id] = replace(before, current=current)
        for pair in _pairs(current.assigned, current.revoking):
            self.owners[pair] = member_id

    def _forget(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self._subscribed = None
        if member is not None:
            self._release(member)
            self._forget_instance(member)

    def _release(self, member: ConsumerGroupMember) -> None:
        for pair in _pairs(member.current.assigned, member.current.revoking):
            if self.owners.get(pair) == member.member_id:
                del self.owners[pair]

    def _forget_instance(self, member: ConsumerGroupMember | None) -> None:
        instance_id = member.profile.instance_id if member is not None else None
        if (
            member is not None
            and instance_id is not None
            and self.statics.get(instance_id) == member.member_id
        ):
            del self.statics[instance_id]

    def _retargeted(self, value: formats.TargetValue) -> None:
        self.assignment_epoch, self.assignment_ms = value.assignment_epoch, value.assignment_timestamp

    def _resolved(self, regex: str, value: formats.RegexValue | None) -> None:
        self._subscribed = None
        if value is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = ResolvedRegex(
                topics=frozenset(value.topics), version=value.version, timestamp_ms=value.timestamp
            )


def _pairs(*holdings: Holding) -> Iterator[tuple[UUID, int]]:
    for holding in holdings:
        for topic, partitions in holding.items():
            for partition in partitions:
                yield topic, partition
