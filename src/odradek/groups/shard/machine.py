"""The machine of one shard: its groups, of every kind, and their offsets.

Each operation takes a request and `now`, and returns an `Outcome`. Requests that wait are answered through their ticket, at
once or later: the operations of JoinGroup and SyncGroup always answer so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from odradek.groups.shard.deadlines import DeadlineKey, Deadlines
from odradek.groups.shard.formats import version_of
from odradek.groups.shard.kinds import Group, GroupKind
from odradek.groups.shard.offset_table import OffsetTable
from odradek.groups.shard.settings import GroupSettings
from odradek.groups.shard.step import GroupStep
from odradek.protocol import MalformedMessage, UnknownVersion
from odradek.shards import Moment, NewRecord, Outcome, StoredRecord, Ticket
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.groups.shard.large_targets import LargeTargets

_log = events.caused_by_peers("groups")

_DUE_A_TICK: Final = 200
"""How many deadlines are handled before other tasks get the event loop."""
_RECORDS_A_TICK: Final = 500
_PART_OF_A_BATCH: Final = 8
"""The share of the largest batch that may be full before another deadline adds to it: none adds more than the rest."""
RECORD_OVERHEAD_BYTES: Final = 40
"""The most bytes that a batch adds to a record's key and value."""
_BATCH_OVERHEAD_BYTES: Final = 100


class MachineTimer(Enum):
    """Deadlines of the machine itself."""

    __hash__ = object.__hash__  # as in `ClassicTimer`

    CLEANUP = "cleanup"
    """Offsets and groups that expired are looked for."""


CLEANUP: Final = DeadlineKey(MachineTimer.CLEANUP, "")


class ClusterTopics(Protocol):
    """The cluster's topics, as they are now."""

    def topic_id(self, name: str) -> UUID | None: ...

    def topic_name(self, topic_id: UUID) -> str | None: ...

    def partition_count(self, name: str) -> int:
        """Returns the partition count; 0 for a topic that does not exist."""

    def names(self) -> Collection[str]: ...

    @property
    def version(self) -> int:
        """Grows with every change of the cluster: what was worked out from the topics may be kept until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDependencies:
    """The objects that machines share, the same for all of a broker."""

    settings: Callable[[], GroupSettings]
    topics: ClusterTopics
    new_uuid: Callable[[], UUID]
    batch_bytes_max: Callable[[], int]
    large_targets: LargeTargets | None = None
    """None: the targets of large groups, too, are worked out at once."""


Replay = Callable[["GroupMachine", StoredRecord], None]
Expire = Callable[["GroupMachine", "DeadlineKey", "GroupStep"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindParts:
    """The functions that a kind of group registers with the machine (`install`)."""

    replays: Mapping[int, Replay]
    """Replay functions by the key version of the records. A tombstone of one kind must not change a group of another kind."""
    expires: Mapping[Enum, Expire]
    """Expiry functions by kind of deadline (`machine.deadlines`). The deadline is already cancelled when one is called. If
    it adds records about the group, the tick ends there, so that the next deadline sees them replayed."""


class GroupMachine:
    """The state machine of one shard of `__consumer_offsets`: groups and their offsets. Implements `shards.Machine`. Kinds
    are installed before anything is replayed."""

    def __init__(self, dependencies: GroupDependencies, kinds: Iterable[KindParts] = ()) -> None:
        self.dependencies: Final = dependencies
        self.deadlines: Final = Deadlines()
        self.groups: Final[dict[str, Group]] = {}
        self.offsets: Final = OffsetTable()
        self.cleanup_round: Final[list[str]] = []
        """The groups that the round of cleaning under way has yet to look at."""
        self.issued_ids: Final[dict[tuple[str, str], None]] = {}
        """(Group, member id) that were given to classic members (KIP-394) who have not joined with them, the oldest first."""
        self._replays: dict[int, Replay] = {}
        self._expires: dict[Enum, Callable[[GroupMachine, DeadlineKey, GroupStep], None]] = {}
        for parts in kinds:
            self.install(parts)

    def install(self, parts: KindParts) -> None:
        self._replays.update(parts.replays)
        self._expires.update(parts.expires)

    @property
    def settings(self) -> GroupSettings:
        return self.dependencies.settings()

    def fits(self, records: Sequence[NewRecord]) -> bool:
        """Returns whether the records can be one batch."""
        return _weight(records) + _BATCH_OVERHEAD_BYTES <= self.dependencies.batch_bytes_max()

    def may_fit(self, records: Sequence[NewRecord]) -> bool:
        """Returns whether keys and values alone are less than a batch: a quick check, before the batch is built."""
        bytes_max = self.dependencies.batch_bytes_max()
        return sum(len(key) + len(value or b"") for key, value in records) <= bytes_max

    def group_of_kind(self, group_id: str, kind: GroupKind) -> Group | None:
        """Returns the group, unless it is of another kind."""
        group = self.groups.get(group_id)
        return group if group is not None and group.kind is kind else None

    def has_offsets(self, group_id: str) -> bool:
        """Returns whether the group has offsets: committed ones, or ones in a transaction under way."""
        return bool(self.offsets.of(group_id)) or bool(self.offsets.undecided(group_id))

    def forget(self, group: Group) -> None:
        """Removes a deleted group; its deadlines, wherever they are, have no effect."""
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    # -- the machine's side of the shard

    def replay(self, record: StoredRecord) -> None:
        replay = self._replays.get(version_of(record.key))
        if replay is None:
            _log.warning("record_skipped", key_version=version_of(record.key), offset=record.offset)
            return
        try:
            replay(self, record)
        except (MalformedMessage, UnknownVersion) as error:
            _log.warning("record_unreadable", offset=record.offset, reason=str(error))

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        self.offsets.end_transaction(producer_id, is_commit=is_commit)

    def loaded(self, now: Moment) -> None:
        for group in list(self.groups.values()):
            group.loaded(now)
        self.deadlines.set(CLEANUP, now.monotonic_ms + self.settings.offsets_retention_check_interval_ms)

    def next_deadline_ms(self) -> int | None:
        return self.deadlines.next_check_ms()

    def tick(self, now: Moment) -> Outcome[None]:
        """Deadlines that are due, in order. It ends early before a group that this tick already wrote about: what it decided
        must be replayed before the next decision."""
        step = GroupStep(now)
        written: set[str] = set()
        room = self.dependencies.batch_bytes_max() // _PART_OF_A_BATCH
        for _ in range(_DUE_A_TICK):
            due = self.deadlines.peek(now.monotonic_ms)
            if (
                due is None
                or (due.group_id and due.group_id in written)
                or len(step.records) >= _RECORDS_A_TICK
                or room < 0
            ):
                break
            self.deadlines.cancel(due)
            before = len(step.records)
            self._expires[due.kind](self, due, step)
            if len(step.records) > before:
                written.add(due.group_id)
                room -= _weight(step.records[before:])
        return step.outcome(None)

    def resigned(self) -> Sequence[Ticket[object]]:
        return [ticket for group in self.groups.values() for ticket in group.waiting()]


def _weight(records: Sequence[NewRecord]) -> int:
    return sum(len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in records)
