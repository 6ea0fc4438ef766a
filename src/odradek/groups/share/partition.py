"""One partition as one share group sees it: which records are in flight, who has them, and until when. Pure.

The window reaches from `start_offset`, below which everything is settled, to `end_offset`, up to which records were ever given
to someone. Each offset in it is available, acquired by one member for a time, acknowledged, or archived: given up, because
someone rejected it, because it was delivered too often, or because the log has no record there. Where the group has dead
letters it is archiving until its letter is written. The window moves on over what is settled at its beginning, and is never
longer than the group's limit of locks. What a restart brings may reach further: it is kept as ranges, however long they are,
until the window gets there.

What changes for good comes back as `StateBatch`es, which the caller makes durable before it answers. An acquisition is not one
of them: after a crash its records are available again, with the delivery count of before (as in Kafka).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.acknowledge_types import AcknowledgeType

RECORD_LOCKS_MAX: Final = 10_000
"""`group.share.partition.max.record.locks` allows no group more."""


class RecordState(IntEnum):
    """The state of a record. The numbers come from Kafka's records and messages."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Given up, and not archived before its dead letter is written (KIP-1191)."""
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """Neighbouring offsets with one state and delivery count, both ends included."""

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int


class AcquiredRange(NamedTuple):
    """Neighbouring offsets given to a member together, both ends included."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcknowledgedRange(NamedTuple):
    """A member's word about a range: one type for each offset, or one for all of them."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class ShareLimits(NamedTuple):
    """The group's settings, as they are now."""

    record_locks_max: int
    delivery_count_max: int
    lock_ms: int
    has_dead_letters: bool = False
    """Whether a record that is given up becomes a dead letter first."""


class DeadRecord(NamedTuple):
    """A record that was given up, until its dead letter is written."""

    offset: int
    delivery_count: int
    is_rejected: bool
    """Whether a member rejected it; otherwise it was delivered as often as it may be."""


class _InFlight(NamedTuple):
    """One offset of the window."""

    state: RecordState
    delivery_count: int
    member_id: str = ""
    until_ms: int = 0

    @property
    def is_settled(self) -> bool:
        return self.state in _SETTLED


_OPEN: Final = frozenset({RecordState.ACQUIRED, RecordState.ARCHIVING})
"""States that only the leader's memory has: after a restart such records are available."""
_SETTLED: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
_ACKNOWLEDGE_TYPES: Final = frozenset(map(int, AcknowledgeType))
_FRESH: Final = _InFlight(RecordState.AVAILABLE, 0)


class SharePartition:
    """The delivery state of one partition for one share group. `batches` is its durable state from before; offsets of the
    window that are in no batch are available."""

    def __init__(
        self, start_offset: int, limits: Callable[[], ShareLimits], batches: Iterable[StateBatch] = ()
    ) -> None:
        self.start_offset = start_offset
        self._limits = limits
        self._window: deque[_InFlight] = deque()
        self._members: set[str] = set()
        """Members that may have acquired records: most sessions of a connection that ends have none here."""
        self._ahead = deque(_ascending(batches, start_offset))
        """The known states of offsets after the window."""
        self._taken_to = start_offset
        """No record below it is available: the search for available ones starts here, instead of at the begin of the window."""
        self._dead: list[DeadRecord] = []
        """Records that were given up since the last `drain_dead`."""
        self._advance()

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self._window)

    @property
    def next_fetch_offset(self) -> int:
        """The first offset that a member could acquire: one that came back, or the end of the window."""
        start_offset, end_offset = self.start_offset, self.end_offset
        offset = max(self._taken_to, start_offset)
        while offset < end_offset and self._window[offset - start_offset].state is not RecordState.AVAILABLE:
            offset += 1
        self._taken_to = offset
        return offset

    @property
    def has_room(self) -> bool:
        """True if anything may be acquired: some record came back, or the window may grow."""
        return self.next_fetch_offset < self.end_offset or self._growth > 0

    @property
    def _growth(self) -> int:
        return max(self._limits().record_locks_max - len(self._window), 0)

    def acquire(
        self, member_id: str, first_offset: int, last_offset: int, *, records_max: int, now_ms: int
    ) -> list[AcquiredRange]:
        """Gives the member the available records among the offsets, which were read from the log; at most `records_max`.

        Offsets below the first, between it and the end of the window, that were never seen are gaps of the log: they are given
        along, and come back as gaps. Nothing beyond the group's limit of locks is given.
        """
        limits = self._limits()
        self._grow(last_offset)
        taken: list[int] = []
        for offset in range(max(first_offset, self.start_offset), min(last_offset + 1, self.end_offset)):
            if len(taken) == records_max:
                break
            in_flight = self._window[offset - self.start_offset]
            if in_flight.state is RecordState.AVAILABLE:
                self._window[offset - self.start_offset] = _InFlight(
                    RecordState.ACQUIRED, in_flight.delivery_count + 1, member_id, now_ms + limits.lock_ms
                )
                taken.append(offset)
        self._shrink()
        if taken:
            self._members.add(member_id)
        return [
            AcquiredRange(batch.first_offset, batch.last_offset, batch.delivery_count)
            for batch in self._batches(taken)
        ]

    def acknowledge(
        self, member_id: str, ranges: Sequence[AcknowledgedRange], *, now_ms: int
    ) -> list[StateBatch]:
        """Applies a member's acknowledgements. All of them count or none: INVALID_RECORD_STATE if the member has not every
        record, INVALID_REQUEST if the ranges make no sense. What is settled for good, below the window, has no effect."""
        _check_ranges(ranges)
        if ranges and ranges[-1].last_offset >= self.end_offset:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"offset {ranges[-1].last_offset} was never given to anyone"
            )
        acknowledged = [pair for span in ranges for pair in _each(span, self.start_offset)]
        for offset, _ in acknowledged:
            if not self._has(member_id, offset, now_ms):
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"offset {offset} is not acquired by member {member_id!r}, or no longer",
                )
        changed = [offset for offset, kind in acknowledged if self._settle(offset, kind, now_ms)]
        return self._changes(changed)

    def release(self, member_id: str) -> list[StateBatch]:
        """Releases the records of a member that left."""
        if member_id not in self._members:
            return []
        self._members.discard(member_id)
        return self._give_back(lambda record: record.member_id == member_id)

    def expire(self, now_ms: int) -> list[StateBatch]:
        """Releases records whose locks have expired."""
        return self._give_back(lambda record: record.until_ms <= now_ms)

    def begin_at(self, start_offset: int) -> list[StateBatch]:
        """Archives records below a new start offset, which the log's begin or an administrator sets."""
        below = range(self.start_offset, min(start_offset, self.end_offset))
        changed = []
        for offset in below:
            in_flight = self._window[offset - self.start_offset]
            if not in_flight.is_settled:
                self._window[offset - self.start_offset] = _InFlight(
                    RecordState.ARCHIVED, in_flight.delivery_count
                )
                changed.append(offset)
        batches = self._batches(changed)
        for _ in below:
            self._window.popleft()
        self.start_offset = max(self.start_offset, start_offset)
        self._ahead = deque(_ascending(self._ahead, self.start_offset))
        self._advance()
        return batches

    def drain_dead(self) -> list[DeadRecord]:
        """Returns the records that are archived as soon as their dead letters are written: see `archive`."""
        dead, self._dead = self._dead, []
        return dead

    def archive(self, dead: Iterable[DeadRecord]) -> list[StateBatch]:
        """Archives records whose dead letters are written, or cannot be."""
        changed = []
        for record in dead:
            index = record.offset - self.start_offset
            if 0 <= index < len(self._window) and self._window[index].state is RecordState.ARCHIVING:
                self._window[index] = _InFlight(RecordState.ARCHIVED, record.delivery_count)
                changed.append(record.offset)
        return self._changes(changed)

    def next_deadline_ms(self) -> int | None:
        """Returns the time when the first lock ends, in ms of the monotonic clock; None without locks."""
        return min(
            (in_flight.until_ms for in_flight in self._window if in_flight.state is RecordState.ACQUIRED),
            default=None,
        )

    def snapshot(self) -> list[StateBatch]:
        """Returns the state for the coordinator, without `start_offset`: acquired records are available ones
        again."""
        released = []
        for offset, record in enumerate(self._window, start=self.start_offset):
            if record.state in _OPEN:
                released.append((offset, RecordState.AVAILABLE, record.delivery_count - 1))
            elif record.is_settled or record.delivery_count:
                released.append((offset, record.state, record.delivery_count))
        return [*_merged(released), *self._ahead]

    # -- one offset

    def _has(self, member_id: str, offset: int, now_ms: int) -> bool:
        if not self.start_offset <= offset < self.end_offset:
            return False
        in_flight = self._window[offset - self.start_offset]
        return (
            in_flight.state is RecordState.ACQUIRED
            and in_flight.member_id == member_id
            and in_flight.until_ms > now_ms
        )

    def _settle(self, offset: int, kind: AcknowledgeType, now_ms: int) -> bool:
        """Returns whether any state that must be persisted changed."""
        index = offset - self.start_offset
        in_flight = self._window[index]
        if kind is AcknowledgeType.RENEW:
            self._window[index] = in_flight._replace(until_ms=now_ms + self._limits().lock_ms)
            return False
        if kind is AcknowledgeType.RELEASE:
            self._window[index] = self._back(in_flight, offset)
            self._taken_to = min(self._taken_to, offset)
        elif kind is AcknowledgeType.REJECT and self._limits().has_dead_letters:
            self._window[index] = self._bury(in_flight, offset, is_rejected=True)
        else:
            state = RecordState.ACKNOWLEDGED if kind is AcknowledgeType.ACCEPT else RecordState.ARCHIVED
            self._window[index] = _InFlight(state, in_flight.delivery_count)
        return self._window[index].state is not RecordState.ARCHIVING

    def _bury(self, record: _InFlight, offset: int, *, is_rejected: bool) -> _InFlight:
        self._dead.append(DeadRecord(offset, record.delivery_count, is_rejected))
        return _InFlight(RecordState.ARCHIVING, record.delivery_count)

    def _back(self, record: _InFlight, offset: int) -> _InFlight:
        """Makes the record available again, unless it was delivered as often as it may be."""
        limits = self._limits()
        given_up = record.delivery_count >= limits.delivery_count_max
        if given_up and limits.has_dead_letters:
            return self._bury(record, offset, is_rejected=False)
        return _InFlight(RecordState.ARCHIVED if given_up else RecordState.AVAILABLE, record.delivery_count)

    def _give_back(self, belongs: Callable[[_InFlight], bool]) -> list[StateBatch]:
        changed = []
        for index, record in enumerate(self._window):
            if record.state is RecordState.ACQUIRED and belongs(record):
                self._window[index] = self._back(record, self.start_offset + index)
                self._taken_to = min(self._taken_to, self.start_offset + index)
                if self._window[index].state is not RecordState.ARCHIVING:
                    changed.append(self.start_offset + index)
        return self._changes(changed)

    # -- the window

    def _grow(self, last_offset: int) -> None:
        self._reach(min(last_offset + 1, self.end_offset + self._growth))

    def _reach(self, end_offset: int) -> None:
        """Extends the window to the offset, with the known states of the new offsets."""
        while self.end_offset < end_offset:
            if not self._ahead or self._ahead[0].first_offset >= end_offset:
                self._window.extend([_FRESH] * (end_offset - self.end_offset))
                return
            batch = self._ahead.popleft()
            self._window.extend([_FRESH] * (batch.first_offset - self.end_offset))
            count = min(batch.last_offset + 1, end_offset) - batch.first_offset
            self._window.extend([_InFlight(batch.state, batch.delivery_count)] * count)
            if self.end_offset <= batch.last_offset:
                self._ahead.appendleft(batch._replace(first_offset=self.end_offset))

    def _shrink(self) -> None:
        """Removes fresh offsets at the end that no one got: they are not in flight."""
        while self._window and self._window[-1] is _FRESH:
            self._window.pop()

    def _advance(self) -> None:
        """Moves the start over settled records, one by one in the window and a range at a time after it."""
        while True:
            while self._window and self._window[0].is_settled:
                self._window.popleft()
                self.start_offset += 1
            if not self._ahead:
                return
            batch, limit = self._ahead[0], self.start_offset + RECORD_LOCKS_MAX
            if batch.first_offset == self.start_offset and batch.state in _SETTLED:
                self.start_offset = self._ahead.popleft().last_offset + 1
            elif batch.first_offset < limit:
                self._reach(min(batch.last_offset + 1, limit))
            else:
                return

    def _changes(self, offsets: Sequence[int]) -> list[StateBatch]:
        batches = self._batches(offsets)
        self._advance()
        return batches

    def _batches(self, offsets: Sequence[int]) -> list[StateBatch]:
        records = [(offset, self._window[offset - self.start_offset]) for offset in sorted(offsets)]
        return _merged((offset, record.state, record.delivery_count) for offset, record in records)


def _ascending(batches: Iterable[StateBatch], start_offset: int) -> Iterator[StateBatch]:
    """Yields batches from the start on, each offset in one. Batches that were acquired become available: their locks are
    unknown."""
    for batch in sorted(batches):
        first_offset = max(batch.first_offset, start_offset)
        if first_offset <= batch.last_offset:
            state = RecordState.AVAILABLE if batch.state in _OPEN else batch.state
            yield batch._replace(first_offset=first_offset, state=state)
            start_offset = batch.last_offset + 1


def _check_ranges(ranges: Sequence[AcknowledgedRange]) -> None:
    """Raises INVALID_REQUEST unless the ranges ascend, as Kafka requires, and have types that exist. Walks over no range:
    one may name more offsets than any log has."""
    free_from = 0
    for first_offset, last_offset, types in ranges:
        if not free_from <= first_offset <= last_offset:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"offsets {first_offset} to {last_offset} cannot follow offset {free_from - 1}: acknowledged ranges ascend, "
                "and no record is acknowledged twice in one request",
            )
        count = last_offset - first_offset + 1
        if len(types) not in (1, count):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"offsets {first_offset} to {last_offset} need 1 or {count} acknowledge types, not {len(types)}",
            )
        unknown = set(types) - _ACKNOWLEDGE_TYPES
        if unknown:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no acknowledge type {min(unknown)}")
        free_from = last_offset + 1


def _each(span: AcknowledgedRange, start_offset: int) -> Iterator[tuple[int, AcknowledgeType]]:
    """Yields the type of each offset from the window's start on: offsets below it take no step."""
    is_one = len(span.types) == 1
    for offset in range(max(span.first_offset, start_offset), span.last_offset + 1):
        yield offset, AcknowledgeType(span.types[0 if is_one else offset - span.first_offset])


def _merged(offsets: Iterable[tuple[int, RecordState, int]]) -> list[StateBatch]:
    batches: list[StateBatch] = []
    for offset, state, delivery_count in offsets:
        if batches:
            last = batches[-1]
            if (last.last_offset + 1, last.state, last.delivery_count) == (offset, state, delivery_count):
                batches[-1] = last._replace(last_offset=offset)
                continue
        batches.append(StateBatch(offset, offset, state, delivery_count))
    return batches
