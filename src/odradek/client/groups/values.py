"""Values for users of groups: offsets with metadata, the identity of a member, the listener to rebalances."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from odradek.client.network.errors import WrongArgumentError
from odradek.model.errors import KafkaError
from odradek.model.ids import NO_EPOCH, NO_OFFSET, ZERO_UUID, TopicPartition
from odradek.model.public import public

NO_GENERATION: Final = -1
"""The generation of clients that commit without being a member."""

Partitions = tuple[TopicPartition, ...]


@public("odradek")
@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset, which is the offset of the next record to read, and the metadata committed with it.

    `leader_epoch` is -1 where it is not known. `topic_id` is the topic that it is an offset of; without it, the topic that
    has the name when the offset is committed.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_EPOCH
    topic_id: UUID = field(default=ZERO_UUID, compare=False, repr=False)
    """The topic that it is an offset of; ZERO_UUID: the one that has the name when the offset is committed."""


OffsetsToCommit = Mapping[TopicPartition, int | OffsetAndMetadata]
CommittedOffsets = dict[TopicPartition, OffsetAndMetadata | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """The identity of a committer: a producer passes it on, so that a member that lost its partitions is fenced (KIP-447)."""

    group_id: str
    generation: int = NO_GENERATION
    """The generation, or, in the consumer protocol, the member's epoch."""
    member_id: str = ""
    group_instance_id: str | None = None
    topic_ids: Mapping[TopicPartition, UUID] = field(default_factory=dict, compare=False, repr=False)
    """The topics that the member's records were read from: their offsets are committed for no other topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The topics that a member wants to read: topics by name, or all that match `pattern`."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    resolved_by_broker: bool = False
    """Whether the coordinator resolves the pattern (RE2); else this client does (Python's re)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """Changes on the user's side before the group continues: partitions to give up, then others to take."""

    number: int
    revoked: Partitions = ()
    lost: bool = False
    """Whether the partitions belong to another member already: nothing can be committed for them any more."""
    taken: Partitions | None = None
    """All partitions from now on; None while the group has not decided."""

    def added(self, before: Iterable[TopicPartition]) -> Partitions:
        """Returns the partitions that are new for a member that had `before`."""
        kept = set(before) - set(self.revoked)
        return tuple(tp for tp in self.taken or () if tp not in kept)


@public("odradek")
class RebalanceListener:
    """A listener to rebalances: `poll` calls its methods when the consumer's partitions change. Override the methods that
    you need.

    With an AsyncConsumer, methods may be coroutines; these go on when the `poll` that called them is cancelled. Partitions
    are handed to others only after `partitions_revoked` has returned."""

    def partitions_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """Called before these partitions go to another member: the last chance to commit for them."""

    def partitions_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """Called when these partitions are read from now on, from their committed offsets; `seek` to read from elsewhere."""

    def partitions_lost(self, partitions: Partitions) -> Awaitable[None] | None:
        """Called when these partitions belong to another member already: commits for them are refused."""
        return self.partitions_revoked(partitions)


def as_committable(
    offsets: OffsetsToCommit, topic_ids: Mapping[TopicPartition, UUID] | None = None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offsets as values; those without a topic id get their id from `topic_ids`.

    Raises WrongArgumentError for an offset below 0."""
    wanted: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, offset in offsets.items():
        value = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        if value.offset <= NO_OFFSET:
            raise WrongArgumentError(
                f"{TopicPartition(*tp)}: an offset to commit is 0 or more, not {value.offset}"
            )
        if topic_ids and value.topic_id == ZERO_UUID:
            value = replace(value, topic_id=topic_ids.get(TopicPartition(*tp), ZERO_UUID))
        wanted[TopicPartition(*tp)] = value
    return wanted


@public("odradek")
class CommitFailedError(KafkaError):
    """The group gave the partitions to someone else: nothing was committed; another member reads those records again."""
