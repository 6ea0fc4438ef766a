"""Where records come from: producers with a memory of what they sent, outside of every host."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from tests.simulation.ledger import Ledger, SentRecord

from odradek.records import BatchBuilder


class Batch(NamedTuple):
    """Records that travel together. `first` is the number of the first among all of their source."""

    first: int
    values: tuple[bytes, ...]


@dataclass(slots=True, kw_only=True)
class RecordSource:
    """Numbers its records to one partition from 0 on, and remembers across the crashes of brokers.

    An idempotent source sends a batch again until it is acknowledged, and with it all that were sent behind
    it. Another one sends a batch once, and never learns its outcome when the answer is lost.
    """

    name: str
    is_idempotent: bool
    ledger: Ledger
    rng: Random
    record_count: int
    padding_bytes: tuple[int, ...]
    """Values get one of these many random bytes behind their name."""
    key_count: int = 1
    """How many keys its records go round, in a fixed order."""
    tombstone_every: int = 0
    """Each of so many records deletes its key; 0: none does. Its value is then in a header."""
    producer_id: int = -1
    next_number: int = 0
    in_doubt: list[Batch] = field(default_factory=list)
    """Sent and not acknowledged."""
    is_begun: bool = False
    """Something was acknowledged."""

    @property
    def is_drained(self) -> bool:
        """There is nothing new to send."""
        return self.next_number >= self.record_count

    @property
    def is_done(self) -> bool:
        return self.is_drained and not self.in_doubt

    def to_send_again(self) -> list[Batch]:
        """After an interruption: what must be sent first, in order."""
        if not self.is_idempotent:
            self.in_doubt.clear()
        return list(self.in_doubt)

    def next_batch(self) -> Batch:
        """A new batch, in doubt from now on."""
        count = min(self.rng.randint(1, 4), self.record_count - self.next_number)
        first = self.next_number
        self.next_number += count
        batch = Batch(first, tuple(self._value(number) for number in range(first, first + count)))
        self.in_doubt.append(batch)
        return batch

    def _value(self, number: int) -> bytes:
        return f"{self.name}/{number}/".encode() + self.rng.randbytes(self.rng.choice(self.padding_bytes))

    def key_of(self, number: int) -> bytes:
        return b"key" if self.key_count == 1 else f"{self.name}/{number * 7 % self.key_count}".encode()

    def is_tombstone(self, number: int) -> bool:
        return self.tombstone_every > 0 and number % self.tombstone_every == self.tombstone_every - 1

    def build(self, batch: Batch, now_ms: int) -> bytearray:
        """The batch as a producer sends it, with timestamps around `now_ms`."""
        builder = BatchBuilder()
        for number, value in enumerate(batch.values, batch.first):
            self.ledger.send(value, SentRecord(self.name, number, self.is_idempotent))
            at_ms, key = now_ms + self.rng.randint(-50, 50), self.key_of(number)
            if self.is_tombstone(number):
                builder.append(at_ms, key, None, (("value", value),))
            else:
                builder.append(at_ms, key, value, ())
        if not self.is_idempotent:
            return builder.build()
        return builder.build(producer_id=self.producer_id, producer_epoch=0, base_sequence=batch.first)

    def acknowledged(self, batch: Batch, base_offset: int) -> None:
        """The broker said that the batch is safe, from `base_offset` on."""
        for offset, value in enumerate(batch.values, base_offset):
            self.ledger.acknowledge(value, offset)
        self.in_doubt.remove(batch)
        self.is_begun = True
