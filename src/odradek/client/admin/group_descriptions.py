"""The admin client's descriptions of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.model.ids import TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
STREAMS = "streams"
EMPTY = "Empty"
DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in the response of ListGroups; state and type are empty where the broker does not report
    them."""

    group_id: str
    protocol_type: str
    state: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemberDescription:
    """A member. `assignment` is empty for members of groups that are not consumer groups."""

    member_id: str
    client_id: str
    client_host: str
    group_instance_id: str | None = None
    assignment: tuple[TopicPartition, ...] = ()
    target_assignment: tuple[TopicPartition, ...] | None = None
    """The member's partitions once rebalancing is done; None in classic groups."""
    member_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group and its members."""

    group_id: str
    type: str
    """classic, consumer, share or streams."""
    protocol_type: str
    state: str
    assignor: str
    coordinator: int
    """The broker that keeps it."""
    epoch: int | None = None
    members: tuple[GroupMemberDescription, ...] = ()
    start_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The offset from which a share group reads, by partition; other groups have committed offsets instead."""

    @property
    def active(self) -> bool:
        """Whether it has members: then only they can change its offsets."""
        return self.state not in (EMPTY, DEAD)
