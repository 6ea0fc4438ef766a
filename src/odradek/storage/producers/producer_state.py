"""A log's state of idempotent and transactional producers (KIP-98, KIP-360, KIP-890). Pure.

For each producer id: its epoch and its last five batches, so that a batch sent again is recognised and
answered with the offset that it already has, and a batch that comes too early is refused; and where its
transaction began, if one is open. `check` and `check_marker` decide about a batch before its append and
return the states after it; nothing is changed until it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import BatchHeader, ControlKind, ControlMarker
from odradek.records.batch import TRANSACTIONAL_BIT
from odradek.storage.producers.open_transactions import EndedTransaction, LogTransactions
from odradek.storage.producers.verification import Guard, Verifications

BATCHES_KEPT: Final = 5
SEQUENCE_MAX: Final = 2**31 - 1
_NO_EPOCH: Final = -1
_BUMPS_EPOCH: Final = 2
"""The transaction version from which on every transaction has an epoch of its own."""


class WrittenBatch(NamedTuple):
    """A batch of a producer that is in the log."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerState(NamedTuple):
    """The state of one producer id in one log. `batches` contains only this epoch's, the newest last."""

    producer_id: int
    epoch: int
    batches: tuple[WrittenBatch, ...]
    seen_ms: int
    """The time of its last write, by the broker's clock; expiry uses it."""
    coordinator_epoch: int = -1
    transaction_first_offset: int = -1
    """The first offset of the open transaction; -1 when there is none."""
    last_timestamp: int = -1
    """The largest timestamp of its newest batch, or its newest marker's. A snapshot has `seen_ms` in its place."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1


def duplicate_of(state: ProducerState | None, header: BatchHeader) -> WrittenBatch | None:
    """Returns the batch in the log that `header` repeats, if it is one of the last five."""
    if state is None or header.producer_epoch != state.epoch or header.base_sequence < 0:
        return None
    first, last = header.base_sequence, header.last_sequence
    for batch in state.batches:
        if batch.first_sequence == first and batch.last_sequence == last:
            return batch
    return None


def check_sequence(state: ProducerState | None, header: BatchHeader) -> None:
    """Raises unless a producer in `state` may write a batch with this epoch and sequence now.

    A producer id that the log does not know may begin with any sequence: its state may have expired (KIP-360). What
    coordinators write in a producer's name has no sequence: only its epoch counts.
    """
    if state is None:
        return
    sequence, epoch = header.base_sequence, header.producer_epoch
    if epoch < state.epoch:
        raise _stale_epoch(state, header.producer_id, epoch)
    if sequence < 0:
        return
    if epoch != state.epoch:
        if sequence != 0 and state.epoch != _NO_EPOCH:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} begins epoch {epoch} with sequence {sequence}, not 0",
            )
        return
    expected = following(state.last_sequence)
    if sequence != expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {sequence}, expected {expected}",
        )


def _stale_epoch(state: ProducerState, producer_id: int, epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} is at epoch {state.epoch}, this is of epoch {epoch}",
    )


def following(sequence: int) -> int:
    """Returns the sequence number after `sequence`: they wrap."""
    return 0 if sequence == SEQUENCE_MAX else sequence + 1


def written(state: ProducerState | None, header: BatchHeader, base_offset: int, now_ms: int) -> ProducerState:
    """Returns the state once the batch is in the log at `base_offset`. No checks: what is in the log is a fact."""
    batch = WrittenBatch(
        header.base_sequence,
        header.last_sequence,
        base_offset + header.last_offset_delta,
        header.last_offset_delta,
        header.max_timestamp,
    )
    if state is None or state.epoch != header.producer_epoch:
        batches: tuple[WrittenBatch, ...] = (batch,)
    else:
        batches = (*state.batches[-(BATCHES_KEPT - 1) :], batch)
    first_offset = -1 if state is None else state.transaction_first_offset
    return ProducerState(
        header.producer_id,
        header.producer_epoch,
        batches,
        now_ms,
        -1 if state is None else state.coordinator_epoch,
        base_offset if first_offset < 0 and header.attributes & TRANSACTIONAL_BIT else first_offset,
        header.max_timestamp,
    )


class Marker(NamedTuple):
    """The end of a producer's transaction, as its coordinator writes it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    timestamp: int

    @classmethod
    def of_batch(cls, header: BatchHeader, control: ControlMarker) -> Marker | None:
        """Returns None for control records that end no transaction."""
        if control.kind is None:
            return None
        return cls(
            header.producer_id,
            header.producer_epoch,
            control.coordinator_epoch,
            control.kind is ControlKind.COMMIT,
            control.timestamp,
        )


def check_marker(state: ProducerState | None, marker: Marker, transaction_version: int) -> None:
    """Raises INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED unless the marker may be written now.

    From transaction version 2 on the coordinator raises a producer's epoch before it ends its transaction. So a marker that
    does not is late: it belongs to an earlier transaction, unless it comes again and finds none open, which does no harm.
    """
    if state is None:
        return
    if marker.producer_epoch < state.epoch:
        raise _stale_epoch(state, marker.producer_id, marker.producer_epoch)
    is_open = state.transaction_first_offset >= 0
    if transaction_version >= _BUMPS_EPOCH and marker.producer_epoch == state.epoch and is_open:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {marker.producer_id} writes under epoch {state.epoch}: "
            "a marker of the same epoch is of an earlier transaction",
        )
    if marker.coordinator_epoch < state.coordinator_epoch:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"producer {marker.producer_id} has a marker of coordinator epoch {state.coordinator_epoch}, "
            f"this one is of {marker.coordinator_epoch}",
        )


def marked(state: ProducerState | None, marker: Marker, now_ms: int) -> ProducerState:
    """Returns the state once the marker is in the log. No checks: what is in the log is a fact."""
    return ProducerState(
        marker.producer_id,
        marker.producer_epoch,
        state.batches if state is not None and state.epoch == marker.producer_epoch else (),
        now_ms,
        marker.coordinator_epoch,
        -1,
        marker.timestamp,
    )


class SequenceCheck(NamedTuple):
    """The effect of an append on the producers' states."""

    states: tuple[ProducerState, ...] = ()
    """New states, valid once the batches are written."""
    repeated: tuple[WrittenBatch, ...] = ()
    """Batches that are in the log already, with their offsets; then nothing is written."""


_NO_PRODUCERS: Final = SequenceCheck()


class Producers:
    """The producers of one log, and their transactions."""

    __slots__ = ("_states", "transactions", "verifications")

    def __init__(self, states: Iterable[ProducerState] = ()) -> None:
        self._states: dict[int, ProducerState] = {}
        self.transactions = LogTransactions()
        self.verifications = Verifications()
        for state in states:
            self.put(state)

    def become(self, other: Producers) -> None:
        """Takes over the state of `other`, which is not used any more: the log was truncated. Verifications under way are
        void."""
        self._states = other._states
        self.transactions = other.transactions
        self.verifications = other.verifications

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        """Yields the states in the order of producer ids, so that a snapshot's bytes depend on nothing else."""
        return iter(sorted(self._states.values()))

    def get(self, producer_id: int) -> ProducerState | None:
        return self._states.get(producer_id)

    @property
    def oldest_transaction_seen_ms(self) -> int | None:
        """The time of the last write of the producer whose open transaction began first; None without one."""
        producer_id = self.transactions.oldest_producer_id
        state = None if producer_id is None else self._states.get(producer_id)
        return None if state is None else state.seen_ms

    def begin_verification(self, header: BatchHeader, *, bumps_epoch: bool, now_ms: int) -> Guard | None:
        """Returns the guard under which a client's transactional batch may be appended once its coordinator agrees; None when
        the transaction of the batch is already open.
        """
        state = self._states.get(header.producer_id)
        if state is not None and state.transaction_first_offset >= 0 and state.epoch == header.producer_epoch:
            return None
        return self.verifications.begin(header, bumps_epoch=bumps_epoch, now_ms=now_ms)

    def check(
        self, headers: Iterable[BatchHeader], base_offset: int, now_ms: int, guard: Guard | None = None
    ) -> SequenceCheck:
        """Returns whether batches may be appended one after another from `base_offset` on; see `check_sequence`.

        `guard`: of a client's transactional batches; without one they are the broker's own, which knows what it does.
        INVALID_RECORD when some of the batches are in the log already and others are not; INVALID_TXN_STATE for one outside of
        its producer's open transaction, or for the first of a transaction that was not verified.
        """
        states: dict[int, ProducerState] = {}
        repeated: list[WrittenBatch] = []
        fresh_count = 0
        for header in headers:
            producer_id = header.producer_id
            if producer_id >= 0:
                state = states.get(producer_id) or self._states.get(producer_id)
                if (known := duplicate_of(state, header)) is not None:
                    repeated.append(known)
                    continue
                if (
                    header.attributes & TRANSACTIONAL_BIT
                    or self.verifications.under_way
                    or (state is not None and state.transaction_first_offset >= 0)
                ):
                    self._check_transaction(state, header, guard)
                check_sequence(state, header)
                states[producer_id] = written(state, header, base_offset, now_ms)
            fresh_count += 1
            base_offset += header.last_offset_delta + 1
        if repeated and fresh_count:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, "some of the batches are in the log already, others are not"
            )
        return SequenceCheck(tuple(states.values()), tuple(repeated)) if states or repeated else _NO_PRODUCERS

    def _check_transaction(
        self, state: ProducerState | None, header: BatchHeader, guard: Guard | None
    ) -> None:
        """Checks a batch against its producer's transaction, before its sequence is checked."""
        is_open = state is not None and state.transaction_first_offset >= 0
        if not header.is_transactional:
            if is_open:
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"producer {header.producer_id} is in a transaction, the batch is not",
                )
        elif guard is not None and not (is_open and state.epoch == header.producer_epoch):  # type: ignore[union-attr]
            if state is not None and header.producer_epoch < state.epoch:
                raise _stale_epoch(state, header.producer_id, header.producer_epoch)
            self.verifications.check(header, guard)
        if self.verifications.under_way:
            self.verifications.check_sequence(header, is_first=state is None or not state.batches)

    def put(self, state: ProducerState) -> None:
        """Stores the producer's state after its newest batch is in the log."""
        self._states[state.producer_id] = state
        if state.transaction_first_offset >= 0:
            self.transactions.begin(state.transaction_first_offset, state.producer_id)
            self.verifications.wrote(state.producer_id)

    def mark(self, marker: Marker, offset: int, now_ms: int) -> EndedTransaction | None:
        """Notes that the marker is in the log at `offset`; returns the transaction that it ended, if there was one."""
        state = self._states.get(marker.producer_id)
        self._states[marker.producer_id] = marked(state, marker, now_ms)
        self.verifications.marked(marker.producer_id, marker.producer_epoch)
        if state is None or state.transaction_first_offset < 0:
            return None
        first_offset = state.transaction_first_offset
        oldest = self.transactions.oldest_but(first_offset)
        ended = EndedTransaction(
            marker.producer_id,
            first_offset,
            offset,
            marker.is_commit,
            oldest if oldest is not None else offset + 1,
        )
        self.transactions.end(ended)
        return ended

    def replay(self, header: BatchHeader, now_ms: int) -> None:
        """Applies a batch that is in the log already. Markers go to `mark`."""
        if header.producer_id >= 0 and not header.is_control:
            self.put(written(self.get(header.producer_id), header, header.base_offset, now_ms))

    def expire_idle_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producer ids idle for longer (`producer.id.expiration.ms`), except within a transaction; returns how many."""
        self.verifications.expire(now_ms, expiration_ms)
        idle = [
            state.producer_id
            for state in self._states.values()
            if state.transaction_first_offset < 0 and now_ms - state.seen_ms >= expiration_ms
        ]
        for producer_id in idle:
            del self._states[producer_id]
        return len(idle)
