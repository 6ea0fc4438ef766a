"""Producers of transactions, and what a log may say of them: the plain meaning, kept outside of every host.

A source sends the batches of a transaction until all are acknowledged, has it ended by a marker, and begins the next one. So
after any crash it is known which transactions are open, which are over and how, and which are in doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.simulation.ledger import Ledger, ReadRecord, SentRecord, decoded
from tests.simulation.record_source import Batch

from odradek.records import BatchBuilder, data_batches, split_batches
from odradek.replication.partition import Partition
from odradek.storage.log.log import Log
from odradek.testing.sim.failures import ViolationError


@dataclass(slots=True, kw_only=True, eq=False)
class Transaction:
    """One transaction of a source. `commit` is its coordinator's decision, made at once and sent late."""

    commit: bool
    epoch: int
    batches: list[Batch]
    in_doubt: list[Batch]
    first_offset: int = -1
    """As last reported; final once the first batch is acknowledged."""
    marker_count: int = 0
    """How often a marker was sent."""
    reported_offset: int = -1
    """Of the newest marker that a log took."""
    marker_floor: int = -1
    """No marker is below it. What was sent before a crash may be in the log, or may not, where no one knows."""
    marker_offset: int = -1
    """Once a marker is acknowledged."""

    @property
    def first_is_acknowledged(self) -> bool:
        return self.batches[0] not in self.in_doubt

    @property
    def marker_sent(self) -> bool:
        return self.marker_count > 0

    @property
    def is_over(self) -> bool:
        return self.marker_offset >= 0


@dataclass(slots=True, kw_only=True)
class TransactionSource:
    """Writes transactions to one partition, one after another, under the rules of a transaction version."""

    name: str
    producer_id: int
    version: int
    transaction_count: int
    ledger: Ledger
    rng: Random
    padding_bytes: tuple[int, ...]
    epoch: int = 0
    coordinator_epoch: int = 0
    marked_epoch: int = -1
    """Of the newest marker that is acknowledged."""
    next_sequence: int = 0
    next_number: int = 0
    transactions: list[Transaction] = field(default_factory=list)
    by_value: dict[bytes, Transaction] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    """First sequence by the number of a batch's first record."""

    @property
    def is_done(self) -> bool:
        return len(self.transactions) >= self.transaction_count and self.transactions[-1].is_over

    def current(self) -> Transaction:
        """The one that is not over yet, or a new one."""
        if not self.transactions or self.transactions[-1].is_over:
            self.transactions.append(self._begin())
        return self.transactions[-1]

    def _begin(self) -> Transaction:
        batches = [self.next_batch() for _ in range(self.rng.randint(1, 3))]
        transaction = Transaction(
            commit=self.rng.random() < 0.5, epoch=self.epoch, batches=batches, in_doubt=list(batches)
        )
        self.by_value.update((value, transaction) for batch in batches for value in batch.values)
        return transaction

    def next_batch(self) -> Batch:
        count = self.rng.randint(1, 2)
        first = self.next_number
        self.sequences[first] = self.next_sequence
        self.next_number += count
        self.next_sequence += count
        names = (f"{self.name}/{number}/".encode() for number in range(first, first + count))
        return Batch(
            first, tuple(name + self.rng.randbytes(self.rng.choice(self.padding_bytes)) for name in names)
        )

    def build(self, batch: Batch, now_ms: int) -> bytearray:
        """As the producer sends it."""
        builder = BatchBuilder()
        for number, value in enumerate(batch.values, batch.first):
            self.ledger.send(value, SentRecord(self.name, number, is_idempotent=True))
            builder.append(now_ms + self.rng.randint(-50, 50), b"key", value, ())
        return builder.build(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences[batch.first],
            transactional=True,
        )

    def acknowledged(self, batch: Batch, base_offset: int) -> None:
        for offset, value in enumerate(batch.values, base_offset):
            self.ledger.acknowledge(value, offset)
        self.transactions[-1].in_doubt.remove(batch)

    def build_late(self, now_ms: int) -> bytearray:
        """A batch that was on its way when the transaction ended; it must have no effect."""
        builder = BatchBuilder()
        builder.append(now_ms, b"key", b"late", ())
        return builder.build(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.next_sequence,
            transactional=True,
        )

    @property
    def has_newer_marker(self) -> bool:
        """A marker under the newest coordinator epoch is acknowledged, and one coordinator came before."""
        return self.coordinator_epoch > 0 and self.marked_epoch == self.coordinator_epoch

    @property
    def marker_epoch(self) -> int:
        return self.transactions[-1].epoch + (1 if self.version >= 2 else 0)

    def marks(self, end_offset: int) -> None:
        """A marker is sent, perhaps not for the first time, to a log that ends there."""
        transaction = self.transactions[-1]
        floor = transaction.marker_floor if transaction.marker_sent else end_offset
        transaction.marker_floor = min(floor, end_offset)
        transaction.marker_count += 1

    def ended(self, marker_offset: int) -> None:
        """The marker is acknowledged."""
        self.transactions[-1].marker_offset = marker_offset
        self.marked_epoch = self.coordinator_epoch
        if self.version >= 2:
            self.epoch += 1
            self.next_sequence = 0
        if self.rng.random() < 0.3:
            self.coordinator_epoch += 1


def read_committed(log: Log, offset: int, end_offset: int, max_bytes: int) -> tuple[list[ReadRecord], int]:
    """One read as a consumer of committed records makes it: what it hands on, and where it goes on."""
    fetched = log.read(offset, max_bytes, end_offset=end_offset, at_least_one=True)
    aborted = log.aborted_transactions(offset, fetched.next_offset)
    batches = data_batches(split_batches(fetched.records), aborted=aborted)
    return decoded(batches, offset), fetched.next_offset


def check_committed(
    partition: Partition, sources: Iterable[TransactionSource], results: Sequence[ReadRecord]
) -> None:
    """`found` was read as committed: every transaction in it must be, durably."""
    for source in sources:
        for record in results:
            transaction = source.by_value.get(record.value)
            if transaction is None:
                continue
            if not transaction.commit:
                raise ViolationError(f"{partition.name}: {record.value[:40]!r} was aborted and is read")
            if not transaction.marker_sent:
                raise ViolationError(
                    f"{partition.name}: {record.value[:40]!r} is read before it is committed"
                )
            if transaction.marker_count == 1 and transaction.reported_offset >= partition.high_watermark:
                raise ViolationError(
                    f"{partition.name}: {record.value[:40]!r} is read, its marker is in doubt"
                )


def check_at_rest(partition: Partition, sources: Sequence[TransactionSource], rng: Random) -> None:
    """Everything that the log says of transactions while nothing is under way."""
    ongoing = [first for source in sources if (first := _check_ongoing(partition, source)) is not None]
    stable = partition.last_stable_offset
    expected = max(min(ongoing, default=partition.high_watermark), partition.start_offset)
    if stable != expected:
        raise ViolationError(f"{partition.name}: stable up to {stable}, not {expected}; open: {ongoing}")
    _check_aborted(partition, sources, rng)
    _check_view(partition, sources, rng.choice((1, 300, 1 << 20)))


def _check_ongoing(partition: Partition, source: TransactionSource) -> int | None:
    ongoing = partition.ongoing_transaction(source.producer_id)
    last = source.transactions[-1] if source.transactions else None
    if last is None or last.is_over:
        allowed: tuple[int | None, ...] = (None,)
    elif last.marker_sent:
        allowed = (None, last.first_offset)
    elif last.first_is_acknowledged:
        allowed = (last.first_offset,)
    else:
        return ongoing  # its first batch is in doubt: it may be anywhere, or nowhere
    if ongoing not in allowed:
        raise ViolationError(
            f"{partition.name}: {source.name}'s open transaction is at {ongoing}, not {allowed}"
        )
    return ongoing


def _check_aborted(partition: Partition, sources: Sequence[TransactionSource], rng: Random) -> None:
    log = partition.log
    for _ in range(3):
        start = rng.randint(log.start_offset, log.end_offset)
        end = rng.randint(start, log.end_offset)
        transactions = log.aborted_transactions(start, end)
        must: list[tuple[int, int]] = []
        may: list[tuple[int, int]] = []
        for source in sources:
            for transaction in source.transactions:
                named = (source.producer_id, transaction.first_offset)
                if transaction.commit or not transaction.marker_sent or transaction.first_offset >= end:
                    continue
                if not transaction.is_over:
                    may.append(named)
                elif transaction.marker_floor >= start:
                    must.append(named)
                elif transaction.marker_offset >= start:
                    may.append(named)
        if sorted(
            transaction for transaction in transactions if transaction not in may or transaction in must
        ) != sorted(must):
            raise ViolationError(
                f"{partition.name}: aborted from {start} to {end}: {transactions}, should be {must}, perhaps {may}"
            )


def _check_view(partition: Partition, sources: Sequence[TransactionSource], max_bytes: int) -> None:
    """A reader of committed records that begins at the start gets all that is committed, and nothing else."""
    log, stable = partition.log, partition.last_stable_offset
    seen: dict[int, bytes] = {}
    offset = log.start_offset
    while offset < stable:
        results, offset = read_committed(log, offset, stable, max_bytes)
        check_committed(partition, sources, results)
        seen.update((record.offset, record.value) for record in results)
    for source in sources:
        for value, transaction in source.by_value.items():
            at = source.ledger.acknowledged.get(value, -1)
            is_due = transaction.commit and transaction.is_over and log.start_offset <= at < stable
            if is_due and seen.get(at) != value:
                raise ViolationError(f"{partition.name}: {value[:40]!r} at {at} is committed and not read")
