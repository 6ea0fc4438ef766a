"""The protocol of a machine: state that only its log's records change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from odradek.shards.outcome import Moment, Outcome, Ticket


class StoredRecord(NamedTuple):
    """A record of the shard's log, as `ShardMachine.replay` sees it: just written, or read back."""

    key: bytes
    value: bytes | None
    offset: int
    timestamp: int
    """Milliseconds since 1970, set by the coordinator that wrote the record."""
    producer_id: int = -1
    producer_epoch: int = -1
    """The producer epoch of the record's transaction; -1 for a record that is in none."""
    age_ms: int | None = None
    """The least age of a record that is read back, by this broker's monotonic clock; None when it is unknown. Wall clocks
    differ, and jump."""


class ShardMachine(Protocol):
    """Replicated state changes in `replay` and `replay_marker` alone, so that a restart and normal running are the same code.

    Soft state (sessions, requests that wait) may change in operations and in `tick`; it is lost with the machine.
    """

    def replay(self, record: StoredRecord) -> None:
        """Takes in one record. It must not refuse: what is in the log is a fact. It skips and reports a record that it
        cannot read."""

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """Called when the producer's transaction ended: its records of this shard count now, or never."""

    def loaded(self, now: Moment) -> None:
        """Called when everything was replayed and this broker coordinates: starts sessions and timers."""

    def next_deadline_ms(self) -> int | None:
        """Returns the time of the next `tick`, by the monotonic clock; None: never. Called after every operation: be cheap.
        A `tick` that comes too early does nothing, and leaves a later time here."""

    def tick(self, now: Moment) -> Outcome[None]:
        """Does what is due. Called again at once while `next_deadline_ms` is not in the future, so do a bounded part."""

    def resigned(self) -> Sequence[Ticket[object]]:
        """Returns the waiting requests: this broker does not coordinate any more and will refuse them."""
