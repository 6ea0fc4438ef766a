"""One transactional id's state, and which state may follow which (KIP-98, KIP-360, KIP-890). Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from odradek.model.ids import TopicPartition

NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
NOT_STARTED: Final = -1
EPOCH_MAX: Final = 2**15 - 1
TIMEOUT_NEVER: Final = 2**31 - 1
"""The timeout of a transaction that an outside coordinator decides (KIP-939): it never times out."""


class TransactionVersion(IntEnum):
    """The levels of the feature `transaction.version`."""

    CLASSIC = 0
    FLEXIBLE_RECORDS = 1
    """The coordinator's records have tagged fields."""
    EPOCH_FOR_EACH = 2
    """Every transaction has an epoch of its own, so that what arrives late cannot be taken for the next one's (KIP-890)."""

    @property
    def bumps_epochs(self) -> bool:
        return self >= TransactionVersion.EPOCH_FOR_EACH


class TransactionState(IntEnum):
    """The numbers are those in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The state's name in Kafka's answers, as in PrepareCommit."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """True when the end is decided, but not all partitions know it yet."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """True when no transaction is under way: the id may expire."""
        return self in _IDLE


_IDLE: Final = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)
STATES_BY_TITLE: Final[Mapping[str, TransactionState]] = {state.title: state for state in TransactionState}

MAY_FOLLOW: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: _IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: _IDLE | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: _IDLE,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}
"""State -> the states that it may come after. An idle id may go to PREPARE_ABORT: a client of KIP-890 that does not know
whether its transaction had begun aborts to be sure. PREPARE_EPOCH_FENCE and DEAD are never written: fencing goes to
PREPARE_ABORT in one step, and an id that expires gets a tombstone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """A producer's id and epoch, as the producer states them."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The state of one transactional id in the log: all of it, and nothing else, survives a restart."""

    producer_id: int
    producer_epoch: int
    state: TransactionState
    timeout_ms: int
    updated_ms: int
    """Wall clock of the last change; what expiry of the id goes by."""
    started_ms: int = NOT_STARTED
    """Wall clock of the transaction's first partition."""
    partitions: frozenset[TopicPartition] = frozenset()
    previous_producer_id: int = NO_PRODUCER
    """The producer id before the last change; differs from `producer_id` only right after its epochs were used up."""
    next_producer_id: int = NO_PRODUCER
    """Takes over when the transaction is complete, because the epochs are used up."""
    client_version: TransactionVersion = TransactionVersion.CLASSIC
    """How the client speaks that caused the last change."""

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(producer_id=self.producer_id, producer_epoch=self.producer_epoch)

    @property
    def epochs_used_up(self) -> bool:
        return epochs_used_up(self.producer_epoch)

    @property
    def is_commit(self) -> bool:
        """The decision about a prepared transaction: True for commit."""
        return self.state is TransactionState.PREPARE_COMMIT


def epochs_used_up(epoch: int) -> bool:
    """Clients never get the largest epoch, so that there is always one left to fence them with."""
    return epoch >= EPOCH_MAX - 1
