"""A streams group, the state that its records define. Only `replay` changes it, except fields that are marked
as soft.

As in a consumer group there are three epochs: the group's, the assignment's and each member's. The tasks that can be assigned
follow from the topology and the topics that exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from odradek.groups.modern.records import GroupRecord
from odradek.groups.shard.kinds import CheckPartition, Committer, GroupKind
from odradek.groups.shard.machine import ClusterTopics
from odradek.groups.streams import formats
from odradek.groups.streams.commits import check_commit, check_fetch
from odradek.groups.streams.formats import StreamsGroupRecord
from odradek.groups.streams.member import (
    StreamsCurrentAssignment,
    StreamsMember,
    StreamsMemberMetadata,
    target_of,
)
from odradek.groups.streams.tasks import NOTHING, TaskAssignment, TaskId, TaskRole
from odradek.groups.streams.topology import (
    ConfiguredTopology,
    configure,
    required_topics,
    subtopologies_of_topics,
)
from odradek.model.errors import ErrorCode, KafkaError
from odradek.shards import Moment, NewRecord, Ticket

PROTOCOL_TYPE: Final = "streams"
FIRST_EPOCH: Final = 1
"""The epoch of a group, and of its assignment, before the first member: a member in it has joined and has no tasks yet."""
_NO_TOPOLOGY: Final = -1
_NUMBERS: Final = (
    "epoch",
    "metadata_hash",
    "validated_topology_epoch",
    "assignment_configs",
    "assignment_epoch",
    "assignment_ms",
    "checked_version",
    "topology",
    "soft",
    "_needed",
    "_subtopologies",
)
_TABLES: Final = ("members", "statics", "targets", "owners", "copies")


@dataclass(slots=True)
class StreamsSoftState:
    """The state of a group that no record contains: it is lost with the coordinator, and members send it again."""

    configured: ConfiguredTopology | None = None
    configured_of: formats.StreamsTopologyValue | None = None
    configured_version: int = -1
    task_offsets: dict[str, Mapping[TaskId, int]] = field(default_factory=dict)
    """Positions in changelogs, by member."""
    task_end_offsets: dict[str, Mapping[TaskId, int]] = field(default_factory=dict)
    shutdown_by: str | None = None
    """The member that asked for the end of the application."""
    endpoint_epoch: int = 0
    """Grows when a task of a member with an endpoint moves."""
    creation_error: str = ""
    """The reason why internal topics could not be created."""

    def forget(self, member_id: str) -> None:
        self.task_offsets.pop(member_id, None)
        self.task_end_offsets.pop(member_id, None)


class StreamsGroup:
    """A group of the streams protocol (KIP-1071). Implements `groups.kinds.Group`. Members and their tasks are values, so a
    copy of the group is cheap."""

    __slots__ = ("_loaded", "group_id", "kind", *_NUMBERS, *_TABLES)

    def __init__(self, group_id: str, loaded: Callable[[StreamsGroup, Moment], None] | None = None) -> None:
        self.group_id = group_id
        self.kind = GroupKind.STREAMS
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.validated_topology_epoch = _NO_TOPOLOGY
        self.assignment_configs: Mapping[str, str] = {}
        """The settings that the last target was worked out with."""
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_ms = 0
        """Wall clock: when the target was worked out."""
        self.checked_version = -1
        """Soft: the version of the cluster's topics that the group was last compared with."""
        self.topology: formats.StreamsTopologyValue | None = None
        self.members: dict[str, StreamsMember] = {}
        self.statics: dict[str, str] = {}
        """Instance id -> member id."""
        self.targets: dict[str, TaskAssignment] = {}
        self.owners: dict[TaskId, str] = {}
        """Active task -> the member that has it, whether to use or to give back."""
        self.copies: dict[tuple[TaskId, str], str] = {}
        """Standby or warm-up task, process -> the member that has it, whether to use or to give back."""
        self.soft = StreamsSoftState()
        self._needed: frozenset[str] = frozenset()
        self._subtopologies: Mapping[str, str] = {}
        self._loaded = loaded

    def copy(self) -> StreamsGroup:
        """Returns another group in the same state, to try records on. It shares the soft state."""
        other = StreamsGroup(self.group_id)
        for name in _NUMBERS:
            setattr(other, name, getattr(self, name))
        for name in _TABLES:
            setattr(other, name, getattr(self, name).copy())
        return other

    # -- what the machine asks of every kind

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if not self._is_ready:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        reconciled = all(
            member.current.is_reconciled_to(self.assignment_epoch) for member in self.members.values()
        )
        return "Stable" if reconciled else "Reconciling"

    @property
    def _is_ready(self) -> bool:
        """Whether the topology has its topics; after a restart, whether it had them."""
        if self.topology is None:
            return False
        if self.soft.configured is not None:
            return self.soft.configured.is_ready
        return self.validated_topology_epoch == self.topology.epoch

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
        return check_commit(self.group_id, self.members, self._subtopologies, committer)

    def committed(self, committer: Committer, now: Moment) -> None:
        """Does nothing: a commit is no sign of life, heartbeats are."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        check_fetch(self.group_id, self.members, member_id, member_epoch)

    def check_offset_delete(self) -> None:
        """Always allowed: the topics that the group reads are refused one by one."""

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"streams group {self.group_id!r} has members")

    def is_subscribed(self, topic: str) -> bool:
        return bool(self.members) and topic in self._subtopologies

    def offset_expiry_base_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> Iterator[NewRecord]:
        """Yields the tombstones that delete the group; the group's own comes last."""
        group_id = self.group_id
        keys: list[formats.Key] = [
            *(
                formats.StreamsCurrentKey(group_id=group_id, member_id=member_id)
                for member_id in self.members
            ),
            *(
                formats.StreamsTargetMemberKey(group_id=group_id, member_id=member_id)
                for member_id in self.targets
            ),
            formats.StreamsTargetKey(group_id=group_id),
            *(formats.StreamsMemberKey(group_id=group_id, member_id=member_id) for member_id in self.members),
            formats.StreamsTopologyKey(group_id=group_id),
            formats.StreamsGroupKey(group_id=group_id),
        ]
        return (GroupRecord(key, None).encoded() for key in keys)

    def loaded(self, now: Moment) -> None:
        if self._loaded is not None:
            self._loaded(self, now)

    def waiting(self) -> Iterable[Ticket[object]]:
        return ()

    # -- what decisions ask

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """All topics that the topology needs, internal ones among them."""
        return self._needed

    def configured(self, topics: ClusterTopics) -> ConfiguredTopology:
        """Returns the topology together with the topics that exist now."""
        assert self.topology is not None, "the first member brings the topology"
        soft = self.soft
        if (
            soft.configured is None
            or soft.configured_of is not self.topology
            or soft.configured_version != topics.version
        ):
            soft.configured = configure(self.topology, topics)
            soft.configured_of, soft.configured_version = self.topology, topics.version
        return soft.configured

    def target(self, member_id: str) -> TaskAssignment:
        return self.targets.get(member_id, NOTHING)

    def is_free(self, task: TaskId, role: TaskRole, process_id: str) -> bool:
        """Returns whether a process may take a task: no one processes it, for an active one; and the process itself does not
        have it in any role."""
        if (task, process_id) in self.copies:
            return False
        owner = self.owners.get(task)
        if owner is None:
            return True
        return role is not TaskRole.ACTIVE and self.members[owner].profile.process_id != process_id

    # -- the log's side

    def replay(self, record: StreamsGroupRecord) -> None:
        """Applies a record about this group, except the one that deletes it."""
        key, value = record
        match key, value:
            case formats.StreamsGroupKey(), formats.StreamsGroupValue():
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
                self.validated_topology_epoch = value.validated_topology_epoch
                self.assignment_configs = {
                    config.key: config.value for config in value.last_assignment_configs or ()
                }
            case formats.StreamsTopologyKey(), _:
                self._retopologized(value if isinstance(value, formats.StreamsTopologyValue) else None)
            case formats.StreamsMemberKey(), None:
                self._forget(key.member_id)
            case formats.StreamsMemberKey(), formats.StreamsMemberValue():
                self._profile(key.member_id, StreamsMemberMetadata.of(value))
            case formats.StreamsCurrentKey(), None:
                self._move(key.member_id, None)
            case formats.StreamsCurrentKey(), formats.StreamsCurrentValue():
                self._move(key.member_id, StreamsCurrentAssignment.of(value))
            case formats.StreamsTargetMemberKey(), None:
                self.targets.pop(key.member_id, None)
            case formats.StreamsTargetMemberKey(), formats.StreamsTargetMemberValue():
                self.targets[key.member_id] = target_of(value)
            case formats.StreamsTargetKey(), formats.StreamsTargetValue():
                self.assignment_epoch, self.assignment_ms = value.assignment_epoch, value.assignment_timestamp
            case formats.StreamsTargetKey(), None:
                self.assignment_epoch, self.assignment_ms = FIRST_EPOCH, 0

    def _retopologized(self, value: formats.StreamsTopologyValue | None) -> None:
        self.topology = value
        self._needed = frozenset() if value is None else required_topics(value)
        self._subtopologies = {} if value is None else subtopologies_of_topics(value)

    def _profile(self, member_id: str, profile: StreamsMemberMetadata) -> None:
        before = self.members.get(member_id, StreamsMember(member_id=member_id))
        self._release(before)
        self._forget_instance(before)
        after = self.members[member_id] = replace(before, profile=profile)
        self._claim(after)
        if profile.instance_id is not None:
            self.statics[profile.instance_id] = member_id

    def _move(self, member_id: str, current: StreamsCurrentAssignment | None) -> None:
        before = self.members.get(member_id)
        if before is None:
            if current is None:
                return
            before = StreamsMember(member_id=member_id)
        self._release(before)
        after = self.members[member_id] = replace(before, current=current or StreamsCurrentAssignment())
        self._claim(after)

    def _forget(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._release(member)
            self._forget_instance(member)

    def _claim(self, member: StreamsMember) -> None:
        for task in member.current.held(TaskRole.ACTIVE):
            self.owners[task] = member.member_id
        for role in (TaskRole.STANDBY, TaskRole.WARMUP):
            for task in member.current.held(role):
                self.copies[task, member.profile.process_id] = member.member_id

    def _release(self, member: StreamsMember) -> None:
        for task in member.current.held(TaskRole.ACTIVE):
            if self.owners.get(task) == member.member_id:
                del self.owners[task]
        for role in (TaskRole.STANDBY, TaskRole.WARMUP):
            for task in member.current.held(role):
                if self.copies.get((task, member.profile.process_id)) == member.member_id:
                    del self.copies[task, member.profile.process_id]

    def _forget_instance(self, member: StreamsMember) -> None:
        instance_id = member.profile.instance_id
        if instance_id is not None and self.statics.get(instance_id) == member.member_id:
            del self.statics[instance_id]
