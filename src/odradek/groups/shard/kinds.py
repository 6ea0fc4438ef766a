"""The face of a group of any kind to the shard's machine, and what a kind provides.

`classic/` is one implementation; consumer groups (KIP-848), share groups (KIP-932) and streams
groups (KIP-1071) are others. The machine owns the table
of groups, the offsets and the deadlines; a kind owns its members, its records and what its deadlines mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

from odradek.model.errors import ErrorCode, KafkaError
from odradek.shards import Moment, NewRecord, Ticket

if TYPE_CHECKING:
    pass


class GroupKind(Enum):
    """The values are what ListGroups calls them (v5)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Caller(NamedTuple):
    """The sender of a request, as far as groups need it. A named tuple, because each request has one."""

    client_id: str
    client_host: str
    api_version: int
    may_describe: Callable[[str], bool] | None = None
    """Whether a topic is there for it: what a regular expression finds. None: all are."""


_EPOCHS: Final = 9
"""OffsetCommit 9 (KIP-848)."""
_TRANSACTIONAL_EPOCHS: Final = 6
"""TxnOffsetCommit 6 (KIP-1319)."""


class Committer(NamedTuple):
    """The committer of offsets: a member in a generation (or, in a group of the new protocol, in a member epoch), or no one
    (-1)."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    is_transactional: bool = False
    api_version: int = 0

    @property
    def knows_epochs(self) -> bool:
        """Its version of OffsetCommit or TxnOffsetCommit has STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND."""
        return self.api_version >= (_TRANSACTIONAL_EPOCHS if self.is_transactional else _EPOCHS)


CheckPartition = Callable[[str, UUID, int], None]
"""(topic, its id or zeros, partition): raises KafkaError unless this committer may commit this partition."""


NAME_BYTES_MAX: Final = 32_767
"""The longest name that a record can contain."""


def check_group_id(group_id: str) -> None:
    """Raises INVALID_GROUP_ID for an empty name: membership needs one. (Offsets may be kept under it, for old clients.)"""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group's id may not be empty: set group.id")
    check_group_id_length(group_id)


def check_group_id_length(group_id: str) -> None:
    """Raises INVALID_GROUP_ID for one that no record can hold."""
    if len(group_id) * 4 > NAME_BYTES_MAX and len(group_id.encode()) > NAME_BYTES_MAX:
        raise KafkaError(
            ErrorCode.INVALID_GROUP_ID,
            f"a group's id has at most {NAME_BYTES_MAX} bytes, not {len(group_id)}",
        )


class Group(Protocol):
    """State of one group. Checks raise KafkaError and change nothing."""

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> GroupKind: ...

    @property
    def state_name(self) -> str:
        """The state's name in ListGroups, as in "Stable"."""

    @property
    def protocol_type(self) -> str | None:
        """The protocol type: "consumer", "share", "streams", "connect"; None where no member has set one."""

    @property
    def member_count(self) -> int:
        """The number of members that the group has now."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, and none on the way: it may be deleted, or become a group of another kind."""

    def check_commit(self, committer: Committer) -> CheckPartition | None:
        """Raises UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS. What is
        returned is asked about each partition."""

    def committed(self, committer: Committer, now: Moment) -> None:
        """Called when a commit passed the checks: it may count as a sign of life."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH; a classic group checks nothing."""

    def check_offset_delete(self) -> None:
        """Raises NON_EMPTY_GROUP where a group's members cannot be asked what they read."""

    def check_delete(self) -> None:
        """Raises NON_EMPTY_GROUP when the group has members."""

    def is_subscribed(self, topic: str) -> bool: ...

    def offset_expiry_base_ms(self, commit_timestamp_ms: int) -> int | None:
        """Returns the time when an offset's retention began (KIP-211); None: in the group's present state it does not
        expire."""

    def tombstones(self) -> Iterable[NewRecord]:
        """Returns tombstones of all records of the group itself (the machine deletes its offsets)."""

    def loaded(self, now: Moment) -> None:
        """Called when everything was replayed: starts the sessions' deadlines."""

    def waiting(self) -> Iterable[Ticket[object]]:
        """Returns requests that wait for this group."""
