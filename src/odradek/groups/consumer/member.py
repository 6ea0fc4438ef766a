"""One member of a consumer group, as values: its metadata, and its progress with its assignment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final
from uuid import UUID

from odradek.groups.consumer.formats import (
    ClassicMemberMetadata,
    ClassicProtocol,
    CurrentPartitions,
    CurrentValue,
    MemberValue,
    TargetMemberValue,
    TargetPartitions,
)
from odradek.groups.modern.assignment import Assignment
from odradek.protocol.messages.groups.consumer_group_heartbeat import TopicPartitions

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_FOR_A_WHILE_EPOCH: Final = -2
"""A static member goes, and will be back under the same instance id: what it has is kept for it."""


class MemberState(IntEnum):
    """The state of a member with regard to its target. The numbers are the log's."""

    STABLE = 0
    """It has all of the target of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """It has been asked to give partitions back and has not said that it did; it stays in its old epoch until then."""
    UNRELEASED_PARTITIONS = 2
    """It is in the target's epoch, but some of its partitions are still with others."""
    UNKNOWN = 127
    """Written by a newer broker: the member must begin again."""


Holding = Mapping[UUID, Mapping[int, int]]
"""Partitions that a member has: topic -> partition -> the epoch in which it was given."""

EMPTY: Final[Holding] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicSide:
    """The metadata with which a member that speaks the classic protocol joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberMetadata:
    """A member's metadata. `regex` is "" for none."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicSide | None = None

    def value(self) -> MemberValue:
        classic = None
        if self.classic is not None:
            classic = ClassicMemberMetadata(
                session_timeout_ms=self.classic.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=name, metadata=metadata) for name, metadata in self.classic.protocols
                ],
            )
        return MemberValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topics),
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=classic,
        )

    @classmethod
    def of(cls, value: MemberValue) -> ConsumerMemberMetadata:
        stored = value.classic_member_metadata
        classic = None
        if stored is not None and stored.supported_protocols:
            classic = ClassicSide(
                session_timeout_ms=stored.session_timeout_ms,
                protocols=tuple(
                    (protocol.name, bytes(protocol.metadata)) for protocol in stored.supported_protocols
                ),
            )
        return cls(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=classic,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    """How far a member has come: its epoch, what it may use, and what it has yet to give back."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Holding = field(default_factory=dict)
    revoking: Holding = field(default_factory=dict)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def value(self) -> CurrentValue:
        return CurrentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_stored(self.assigned),
            partitions_pending_revocation=_stored(self.revoking),
        )

    @classmethod
    def of(cls, value: CurrentValue) -> CurrentAssignment:
        known = value.state in (0, 1, 2)
        return cls(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=_held(value.assigned_partitions, value.member_epoch),
            revoking=_held(value.partitions_pending_revocation, value.member_epoch),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMember:
    """A member; `profile` and `current` are written as two records."""

    member_id: str
    profile: ConsumerMemberMetadata = ConsumerMemberMetadata()
    current: CurrentAssignment = CurrentAssignment()

    @property
    def epoch(self) -> int:
        return self.current.epoch

    @property
    def is_classic(self) -> bool:
        """Whether the member speaks the classic protocol, in a group that is being moved from one to the other (KIP-848)."""
        return self.profile.classic is not None

    @property
    def is_giving_back(self) -> bool:
        return self.current.state is MemberState.UNREVOKED_PARTITIONS

    @property
    def is_away(self) -> bool:
        """True for a static member that left for a while."""
        return self.current.epoch == LEAVE_FOR_A_WHILE_EPOCH


def _stored(holding: Holding) -> list[CurrentPartitions]:
    return [
        CurrentPartitions(
            topic_id=topic,
            partitions=sorted(holding[topic]),
            assignment_epochs=[holding[topic][partition] for partition in sorted(holding[topic])],
        )
        for topic in sorted(holding)
    ]


def _held(stored: Iterable[CurrentPartitions], member_epoch: int) -> Holding:
    """Returns partitions with their assignment epochs. Records older than Kafka 4.3 do not have them: the
    member's own epoch is the safe guess."""
    assigned: dict[UUID, Mapping[int, int]] = {}
    for topic in stored:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        if topic.partitions:
            assigned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return assigned


def target_value(assignment: Assignment) -> TargetMemberValue:
    return TargetMemberValue(
        topic_partitions=[
            TargetPartitions(topic_id=topic, partitions=sorted(assignment[topic]))
            for topic in sorted(assignment)
        ]
    )


def target_of(value: TargetMemberValue) -> Assignment:
    return {
        partition.topic_id: frozenset(partition.partitions)
        for partition in value.topic_partitions
        if partition.partitions
    }


def listed(holding: Mapping[UUID, Iterable[int]]) -> list[TopicPartitions]:
    """Returns partitions in the form and order of a heartbeat's response."""
    return [TopicPartitions(topic_id=topic, partitions=sorted(holding[topic])) for topic in sorted(holding)]
