"""One shard of `__share_group_state`: the progress of share groups in partitions. Implements
`shards.Machine`.

A change is written as an update, and after a number of updates as a snapshot, which replaces all earlier
records. So the topic is not compacted, which would lose updates: records before the oldest snapshot in use
are deleted (`needed_from`). A partition without acknowledgements is written again from time to time, so that
deletion proceeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from uuid import UUID

from odradek.groups.shard.formats import read, version_of, versioned
from odradek.groups.share import state_formats as formats
from odradek.groups.share.partition import RECORD_LOCKS_MAX, RecordState, StateBatch
from odradek.groups.share.state_formats import SharePartitionKey, read_key
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import MalformedMessage, UnknownVersion
from odradek.shards import Moment, NewRecord, Outcome, StoredRecord, Ticket
from odradek.telemetry import events

_log = events.caused_by_peers("groups")
_SNAPSHOT_BYTES_A_TICK: Final = 256 * 1024
_DELETIONS_A_STEP: Final = 500
_COMPLETE_COUNT_MAX: Final = 2**31 - 1
"""The largest count for which records have room."""
UNKNOWN_OFFSET: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """Settings of the share coordinator, with Kafka's defaults."""

    updates_per_snapshot: int = 500
    cold_interval_ms: int = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """The state of one group in one partition."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    """The share-partition start offset; -1: the group has not begun to read."""
    batches: tuple[StateBatch, ...] = ()
    complete_count: int = 0
    snapshot_epoch: int = 0
    update_count: int = 0
    snapshot_offset: int = -1
    """The offset of its snapshot in the shard's log."""
    created_ms: int = 0
    written_ms: int = 0


class StateChange(NamedTuple):
    """A change of state that a partition's leader wants to persist."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]


class Summary(NamedTuple):
    """How far a group is in a partition, without its batches."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    """-1: it has not begun to read."""
    complete_count: int


class ShareStates:
    """The state machine of one shard of `__share_group_state`. It is used through a shard only."""

    def __init__(self, settings: Callable[[], StateSettings]) -> None:
        self._settings = settings
        self._states: dict[SharePartitionKey, ShareState] = {}
        self._tick_ms: int | None = None

    # -- operations

    def find(self, now: Moment, *, partition_key: SharePartitionKey) -> Outcome[ShareState | None]:
        return Outcome(self._states.get(partition_key))

    def read(
        self, now: Moment, *, partition_key: SharePartitionKey, leader_epoch: int
    ) -> Outcome[ShareState | None]:
        """Returns the state to the partition's leader. From now on earlier leaders may not write: FENCED_LEADER_EPOCH."""
        state = self._states.get(partition_key)
        if state is None:
            return Outcome(None)
        _check_leader(state, leader_epoch)
        if leader_epoch == state.leader_epoch:
            return Outcome(state)
        change = StateChange(state.state_epoch, leader_epoch, state.start_offset, ())
        return Outcome(
            replace(state, leader_epoch=leader_epoch),
            records=[self._recorded(partition_key, state, change, now)],
        )

    def initialize(
        self, now: Moment, *, partition_key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> Outcome[None]:
        """Begins at an offset, whatever was there before. Raises FENCED_STATE_EPOCH unless the epoch is newer than the one
        that is there; the same word again does no harm. INVALID_REQUEST for an offset that no partition has."""
        _check_start(start_offset)
        before = self._states.get(partition_key)
        if before is not None and state_epoch <= before.state_epoch:
            is_same = state_epoch == before.state_epoch
            if is_same and start_offset == before.start_offset and not before.batches:
                return Outcome(None)
            if not is_same or before.start_offset != UNKNOWN_OFFSET:
                raise _fenced(partition_key, state_epoch)
        state = ShareState(
            state_epoch=state_epoch,
            leader_epoch=0 if before is None else before.leader_epoch,
            start_offset=start_offset,
            snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
            created_ms=now.wall_ms if before is None else before.created_ms,
        )
        return Outcome(None, records=[_snapshot(partition_key, state, now)])

    def write(self, now: Moment, *, partition_key: SharePartitionKey, change: StateChange) -> Outcome[None]:
        """Raises FENCED_STATE_EPOCH when the state was set again, or deleted, since the writer read it; FENCED_LEADER_EPOCH;
        INVALID_REQUEST for batches that cannot be.

        A window moves on only: what would move it back was overtaken on its way, and its writer must read again.
        """
        _check_batches(change)
        before = self._states.get(partition_key)
        if (
            before is None
            or before.state_epoch != change.state_epoch
            or UNKNOWN_OFFSET < change.start_offset < before.start_offset
        ):
            raise _fenced(partition_key, change.state_epoch)
        _check_leader(before, change.leader_epoch)
        return Outcome(None, records=[self._recorded(partition_key, before, change, now)])

    def _recorded(
        self, partition_key: SharePartitionKey, before: ShareState, change: StateChange, now: Moment
    ) -> NewRecord:
        after = _changed(before, change)
        if before.update_count + 1 >= self._settings().updates_per_snapshot:
            return _snapshot(partition_key, replace(after, snapshot_epoch=before.snapshot_epoch + 1), now)
        value = formats.ShareUpdateValue(
            snapshot_epoch=before.snapshot_epoch,
            leader_epoch=change.leader_epoch,
            start_offset=change.start_offset,
            delivery_complete_count=after.complete_count,
            state_batches=formats.listed(change.batches),
        )
        return NewRecord(partition_key.update_key(), versioned(value, 0))

    def delete(self, now: Moment, *, partition_key: SharePartitionKey) -> Outcome[None]:
        if partition_key not in self._states:
            return Outcome(None)
        return Outcome(
            None,
            records=[
                NewRecord(partition_key.snapshot_key(), None),
                NewRecord(partition_key.update_key(), None),
            ],
        )

    def delete_topics(self, now: Moment, *, topic_ids: frozenset[UUID]) -> Outcome[bool]:
        """Deletes a part of the state of these topics; returns whether that is all."""
        doomed = [partition_key for partition_key in self._states if partition_key.topic_id in topic_ids]
        records: list[NewRecord] = []
        for partition_key in doomed[:_DELETIONS_A_STEP]:
            records += [
                NewRecord(partition_key.snapshot_key(), None),
                NewRecord(partition_key.update_key(), None),
            ]
        return Outcome(len(doomed) <= _DELETIONS_A_STEP, records=records)

    def needed_from(self, now: Moment) -> Outcome[int | None]:
        """Returns the first offset of the log that a restart needs; None when it needs none of the present ones."""
        return Outcome(min((state.snapshot_offset for state in self._states.values()), default=None))

    # -- the machine's side

    def replay(self, record: StoredRecord) -> None:
        try:
            partition_key = read_key(record.key)
            if record.value is None:
                self._states.pop(partition_key, None)
            elif version_of(record.key) == formats.SNAPSHOT:
                self._replay_snapshot(partition_key, record, read(formats.ShareSnapshotValue, record.value))
            else:
                self._replay_update(partition_key, record, read(formats.ShareUpdateValue, record.value))
        except (MalformedMessage, UnknownVersion) as error:
            _log.warning("record_unreadable", offset=record.offset, reason=str(error))

    def _replay_snapshot(
        self, partition_key: SharePartitionKey, record: StoredRecord, value: formats.ShareSnapshotValue
    ) -> None:
        self._states[partition_key] = ShareState(
            state_epoch=value.state_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            batches=tuple(formats.unlisted(value.state_batches)),
            complete_count=max(value.delivery_complete_count, 0),
            snapshot_epoch=value.snapshot_epoch,
            snapshot_offset=record.offset,
            created_ms=value.create_timestamp,
            written_ms=record.timestamp,
        )

    def _replay_update(
        self, partition_key: SharePartitionKey, record: StoredRecord, value: formats.ShareUpdateValue
    ) -> None:
        before = self._states.get(partition_key)
        if before is None or before.snapshot_epoch != value.snapshot_epoch:
            return  # of a snapshot that was deleted, or that another followed
        change = StateChange(
            before.state_epoch, value.leader_epoch, value.start_offset, formats.unlisted(value.state_batches)
        )
        after = _changed(before, change)
        self._states[partition_key] = replace(after, update_count=before.update_count + 1)

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """Does nothing: there are no transactions here."""

    def loaded(self, now: Moment) -> None:
        self._tick_ms = now.monotonic_ms + self._settings().cold_interval_ms

    def next_deadline_ms(self) -> int | None:
        return self._tick_ms

    def tick(self, now: Moment) -> Outcome[None]:
        """Writes old states once more, so that the beginning of the log can be deleted."""
        interval_ms = self._settings().cold_interval_ms
        cold = [
            partition_key
            for partition_key, state in self._states.items()
            if now.wall_ms - state.written_ms >= interval_ms
        ]
        records: list[NewRecord] = []
        left_bytes = _SNAPSHOT_BYTES_A_TICK
        while cold and left_bytes > 0:
            record = self._again(cold.pop(), now)
            left_bytes -= len(record.key) + len(record.value or b"")
            records.append(record)
        self._tick_ms = now.monotonic_ms + (1 if cold else interval_ms)
        return Outcome(None, records=records)

    def resigned(self) -> Sequence[Ticket[object]]:
        return ()

    def _again(self, partition_key: SharePartitionKey, now: Moment) -> NewRecord:
        state = self._states[partition_key]
        return _snapshot(partition_key, replace(state, snapshot_epoch=state.snapshot_epoch + 1), now)


def _fenced(partition_key: SharePartitionKey, state_epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_STATE_EPOCH,
        f"the state of group {partition_key.group_id!r} in partition {partition_key.partition} of topic"
        f" {partition_key.topic_id} was set again since epoch {state_epoch}",
    )


def _check_batches(change: StateChange) -> None:
    """Checks batches that another broker wrote: the stored state is combined and counted from them."""
    if len(change.batches) > RECORD_LOCKS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{len(change.batches)} batches of a partition: no share group holds more than {RECORD_LOCKS_MAX} records of it",
        )
    free_from = 0
    for batch in change.batches:
        if not free_from <= batch.first_offset <= batch.last_offset or batch.delivery_count < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"a batch of offsets {batch.first_offset} to {batch.last_offset}, delivered {batch.delivery_count} times, "
                f"cannot follow offset {free_from - 1}",
            )
        free_from = batch.last_offset + 1
    _check_start(change.start_offset)


def _check_start(start_offset: int) -> None:
    if start_offset < UNKNOWN_OFFSET:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{start_offset} is no start offset")


def _check_leader(state: ShareState, leader_epoch: int) -> None:
    if leader_epoch < state.leader_epoch:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"leader epoch {leader_epoch} is over, {state.leader_epoch} has read or written already",
        )


def _snapshot(partition_key: SharePartitionKey, state: ShareState, now: Moment) -> NewRecord:
    value = formats.ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=now.wall_ms,
        state_batches=formats.listed(state.batches),
    )
    return NewRecord(partition_key.snapshot_key(), versioned(value, 0))


def _changed(before: ShareState, change: StateChange) -> ShareState:
    start_offset = change.start_offset if change.start_offset != UNKNOWN_OFFSET else before.start_offset
    batches = combined(before.batches, change.batches, start_offset)
    return replace(
        before,
        leader_epoch=change.leader_epoch,
        start_offset=start_offset,
        batches=batches,
        complete_count=min(
            sum(
                batch.last_offset - batch.first_offset + 1
                for batch in batches
                if batch.state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
            ),
            _COMPLETE_COUNT_MAX,
        ),
    )


def combined(
    old: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Returns the batches after `new`, which wins where both overlap; nothing below the start. Both are ascending."""
    news = list(new)
    pieces = list(news)
    index = 0
    for batch in old:
        first = batch.first_offset
        while index < len(news) and news[index].last_offset < first:
            index += 1
        following = index
        while first <= batch.last_offset and following < len(news):
            state_batch = news[following]
            if state_batch.first_offset > batch.last_offset:
                break
            if state_batch.first_offset > first:
                pieces.append(batch._replace(first_offset=first, last_offset=state_batch.first_offset - 1))
            first = max(first, state_batch.last_offset + 1)
            following += 1
        if first <= batch.last_offset:
            pieces.append(batch._replace(first_offset=first))
    coalesced: list[StateBatch] = []
    for piece in sorted(pieces):
        if piece.last_offset < start_offset:
            continue
        state_batch = piece._replace(first_offset=max(piece.first_offset, start_offset))
        if (
            coalesced
            and coalesced[-1][2:] == state_batch[2:]
            and coalesced[-1].last_offset + 1 == state_batch.first_offset
        ):
            coalesced[-1] = coalesced[-1]._replace(last_offset=state_batch.last_offset)
        else:
            coalesced.append(state_batch)
    return tuple(coalesced)
