"""What the log knows of idempotent producers (KIP-98, KIP-360). Pure.

For each producer id: its epoch and its last five batches, so that a batch sent again is recognised and answered with the
offset that it already has, and a batch that comes too early is refused. `advance` decides about one batch and returns the
state that will hold once the batch is written; nothing is changed until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import BatchHeader

BATCHES_KEPT: Final = 5
SEQUENCE_MAX: Final = 2**31 - 1
_NO_EPOCH: Final = -1


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
    """One producer id in one log. `batches` are of this epoch, the newest last."""

    producer_id: int
    epoch: int
    batches: tuple[WrittenBatch, ...]
    seen_ms: int
    """When it last wrote, by the broker's clock: what expiry goes by."""
    coordinator_epoch: int = -1
    transaction_first_offset: int = -1
    """Of the transaction under way; -1 when there is none."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1


def duplicate_of(state: ProducerState | None, header: BatchHeader) -> WrittenBatch | None:
    """The batch in the log that `header` repeats, if it is one of the last five."""
    if state is None or header.producer_epoch != state.epoch:
        return None
    first, last = header.base_sequence, header.last_sequence
    for batch in state.batches:
        if batch.first_sequence == first and batch.last_sequence == last:
            return batch
    return None


def check_sequence(state: ProducerState | None, header: BatchHeader) -> None:
    """Raise unless a producer in `state` may write a batch with this epoch and sequence now.

    A producer id that the log does not know may begin with any sequence: its state may have expired (KIP-360).
    """
    if state is None:
        return
    if header.producer_epoch < state.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id} is at epoch {state.epoch}, the batch says {header.producer_epoch}",
        )
    sequence = header.base_sequence
    if header.producer_epoch != state.epoch:
        if sequence != 0 and state.epoch != _NO_EPOCH:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} begins epoch {header.producer_epoch} with sequence {sequence}, not 0",
            )
        return
    expected = following(state.last_sequence)
    if sequence != expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {sequence}, expected {expected}",
        )


def following(sequence: int) -> int:
    """The sequence number behind `sequence`: they wrap."""
    return 0 if sequence == SEQUENCE_MAX else sequence + 1


def written(state: ProducerState | None, header: BatchHeader, base_offset: int, now_ms: int) -> ProducerState:
    """The state once the batch is in the log at `base_offset`. No checks: what is in the log is a fact."""
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
    if state is None:
        return ProducerState(header.producer_id, header.producer_epoch, batches, now_ms)
    return ProducerState(
        header.producer_id,
        header.producer_epoch,
        batches,
        now_ms,
        state.coordinator_epoch,
        state.transaction_first_offset,
    )


class Verdict(NamedTuple):
    """What the producers' states say to an append."""

    states: tuple[ProducerState, ...] = ()
    """To be put once the batches are written."""
    repeated: tuple[WrittenBatch, ...] = ()
    """The batches are in the log already, here: write nothing."""


_NO_PRODUCERS: Final = Verdict()


class Producers:
    """The producers of one log."""

    __slots__ = ("_states",)

    def __init__(self, states: Iterable[ProducerState] = ()) -> None:
        self._states = {state.producer_id: state for state in states}

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        """By producer id, so that a snapshot's bytes depend on nothing else."""
        return iter(sorted(self._states.values()))

    def get(self, producer_id: int) -> ProducerState | None:
        return self._states.get(producer_id)

    def check(self, headers: Iterable[BatchHeader], base_offset: int, now_ms: int) -> Verdict:
        """Whether batches may be appended one after another from `base_offset` on; see `check_sequence`.

        INVALID_RECORD when some of them are in the log already and others are not.
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
                check_sequence(state, header)
                states[producer_id] = written(state, header, base_offset, now_ms)
            fresh_count += 1
            base_offset += header.last_offset_delta + 1
        if repeated and fresh_count:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, "some of the batches are in the log already, others are not"
            )
        return Verdict(tuple(states.values()), tuple(repeated)) if states or repeated else _NO_PRODUCERS

    def put(self, state: ProducerState) -> None:
        self._states[state.producer_id] = state

    def replay(self, header: BatchHeader, now_ms: int) -> None:
        """Take in a batch that is in the log already."""
        if header.producer_id >= 0 and not header.is_control:
            self.put(written(self.get(header.producer_id), header, header.base_offset, now_ms))

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers idle for longer, but for those within a transaction; return how many."""
        idle = [
            state.producer_id
            for state in self._states.values()
            if state.transaction_first_offset < 0 and now_ms - state.seen_ms >= expiration_ms
        ]
        for producer_id in idle:
            del self._states[producer_id]
        return len(idle)
