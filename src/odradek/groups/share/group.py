"""A share group, the state that its records define. Only `replay` changes it, except fields that are marked
as soft.

As in a consumer group there are three epochs: the group's, the assignment's and each member's. But partitions are shared, so a
member has nothing to give back before another may begin: it takes its target with its next heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.groups.modern.assignment import NOTHING, Assignment
from odradek.groups.modern.records import GroupRecord
from odradek.groups.shard.kinds import CheckPartition, Committer, GroupKind
from odradek.groups.share import formats
from odradek.groups.share.formats import ShareGroupRecord
from odradek.model.errors import ErrorCode, KafkaError
from odradek.shards import Moment, NewRecord, Ticket

PROTOCOL_TYPE: Final = "share"
_NUMBERS: Final = ("epoch", "metadata_hash", "assignment_epoch", "assignment_ms", "checked_version")
_TABLES: Final = ("members", "targets", "currents", "state_topics")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemberMetadata:
    """A member's metadata."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()

    def value(self) -> formats.ShareMemberValue:
        return formats.ShareMemberValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topics),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCurrentAssignment:
    """The assignment in the last answer to a member."""

    epoch: int = 0
    previous_epoch: int = 0
    assigned: Assignment

    def value(self) -> formats.ShareCurrentValue:
        return formats.ShareCurrentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=0,
            assigned_partitions=listed(self.assigned),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTopic:
    """A topic whose partitions the group has begun to read."""

    name: str
    partitions: frozenset[int]


def listed(assigned: Assignment) -> list[formats.Partitions]:
    return [
        formats.Partitions(topic_id=topic_id, partitions=sorted(assigned[topic_id]))
        for topic_id in sorted(assigned, key=lambda uuid: uuid.bytes)
    ]


def _unlisted(topics: Iterable[formats.Partitions]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


class ShareGroup:
    """A share group (KIP-932). Implements `groups.kinds.Group`. Its tables hold values, so a copy of the group is cheap."""

    __slots__ = ("_loaded", "group_id", "kind", *_NUMBERS, *_TABLES)

    def __init__(self, group_id: str, loaded: Callable[[ShareGroup, Moment], None] | None = None) -> None:
        self.group_id = group_id
        self.kind = GroupKind.SHARE
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_ms = 0
        """Wall clock: when the target was worked out."""
        self.checked_version = -1
        """Soft: the version of the cluster's topics that the group was last compared with."""
        self.members: dict[str, ShareMemberMetadata] = {}
        self.targets: dict[str, Assignment] = {}
        self.currents: dict[str, ShareCurrentAssignment] = {}
        self.state_topics: dict[UUID, StateTopic] = {}
        self._loaded = loaded

    def copy(self) -> ShareGroup:
        """Returns another group in the same state, to try records on."""
        other = ShareGroup(self.group_id)
        for name in _NUMBERS:
            setattr(other, name, getattr(self, name))
        for name in _TABLES:
            setattr(other, name, getattr(self, name).copy())
        return other

    def epoch_of(self, member_id: str) -> int:
        current = self.currents.get(member_id)
        return 0 if current is None else current.epoch

    @property
    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*(profile.topics for profile in self.members.values()))

    # -- what the machine asks of every kind

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

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
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"group {self.group_id!r} is a share group: its members acknowledge records, they commit no offsets",
        )

    def committed(self, committer: Committer, now: Moment) -> None:
        """Does nothing: share groups commit no offsets."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"group {self.group_id!r} is a share group: it has no committed offsets",
        )

    def check_offset_delete(self) -> None:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"group {self.group_id!r} is a share group: use DeleteShareGroupOffsets",
        )

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"share group {self.group_id!r} has members")

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.subscribed_topics

    def offset_expiry_base_ms(self, commit_timestamp_ms: int) -> int | None:
        """Returns None: the group stays until it is deleted, as in Kafka, as its positions are stored elsewhere."""
        return None

    def tombstones(self) -> Iterator[NewRecord]:
        """Yields the tombstones that delete the group; the group's own comes last."""
        group_id = self.group_id
        keys: list[formats.Key] = [
            *(formats.ShareCurrentKey(group_id=group_id, member_id=member_id) for member_id in self.currents),
            *(
                formats.ShareTargetMemberKey(group_id=group_id, member_id=member_id)
                for member_id in self.targets
            ),
            formats.ShareTargetKey(group_id=group_id),
            *(formats.ShareMemberKey(group_id=group_id, member_id=member_id) for member_id in self.members),
            formats.StatePartitionsKey(group_id=group_id),
            formats.ShareGroupKey(group_id=group_id),
        ]
        return (GroupRecord(key, None).encoded() for key in keys)

    def loaded(self, now: Moment) -> None:
        if self._loaded is not None:
            self._loaded(self, now)

    def waiting(self) -> Iterable[Ticket[object]]:
        return ()

    # -- the log

    def replay(self, record: ShareGroupRecord) -> None:
        key, value = record
        if isinstance(key, formats.ShareGroupKey) and isinstance(value, formats.ShareGroupValue):
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        elif isinstance(key, formats.ShareTargetKey):
            target = (
                value
                if isinstance(value, formats.ShareTargetValue)
                else formats.ShareTargetValue(assignment_epoch=0)
            )
            self.assignment_epoch, self.assignment_ms = target.assignment_epoch, target.assignment_timestamp
        elif isinstance(key, formats.StatePartitionsKey):
            topics = value.initialized_topics if isinstance(value, formats.StatePartitionsValue) else []
            self.state_topics = {
                topic.topic_id: StateTopic(name=topic.topic_name, partitions=frozenset(topic.partitions))
                for topic in topics
            }
        elif isinstance(key, formats.ShareMemberKey | formats.ShareTargetMemberKey | formats.ShareCurrentKey):
            self._replay_member(key.member_id, key, value)

    def _replay_member(self, member_id: str, key: formats.Key, value: formats.Value | None) -> None:
        if isinstance(value, formats.ShareMemberValue):
            self.members[member_id] = ShareMemberMetadata(
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topics=frozenset(value.subscribed_topic_names),
            )
        elif isinstance(value, formats.ShareTargetMemberValue):
            self.targets[member_id] = _unlisted(value.topic_partitions)
        elif isinstance(value, formats.ShareCurrentValue):
            self.currents[member_id] = ShareCurrentAssignment(
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                assigned=_unlisted(value.assigned_partitions),
            )
        elif isinstance(key, formats.ShareMemberKey):
            self.members.pop(member_id, None)
        elif isinstance(key, formats.ShareTargetMemberKey):
            self.targets.pop(member_id, None)
        else:
            self.currents.pop(member_id, None)


def target_of(group: ShareGroup, member_id: str) -> Assignment:
    return group.targets.get(member_id, NOTHING)


def state_topics_value(topics: Mapping[UUID, StateTopic]) -> formats.StatePartitionsValue:
    return formats.StatePartitionsValue(
        initialized_topics=[
            formats.TopicPartitionsInfo(
                topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions)
            )
            for topic_id, topic in sorted(topics.items(), key=lambda entry: entry[0].bytes)
        ]
    )
