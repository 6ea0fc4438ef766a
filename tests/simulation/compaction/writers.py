"""Producers to a compacted log, with a memory that outlives every host: plain ones that send again, and transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tests.simulation.compaction.history import IDENTITY, CompactionHistory, ProducedRecord

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import BatchBuilder, Codec, read_header
from odradek.replication.partition import Partition
from odradek.runtime.ports import Clock
from odradek.storage.log.log import AppendResult
from odradek.testing.sim.failures import ViolationError

_RETRY_S = 0.05
_KEYS = (b"red", b"green", b"blue", b"", b"a much longer key than all the others")


class KeyedRecord(NamedTuple):
    """A record to be sent; `value` is None for a tombstone."""

    identity: bytes
    key: bytes
    value: bytes | None


class Writer:
    """What both kinds have in common: how a batch is made, sent until the log takes it, and waited for."""

    def __init__(
        self, name: str, producer_id: int, history: CompactionHistory, rng: Random, padding: Sequence[int]
    ) -> None:
        self.name = name
        self.producer_id = producer_id
        self.history = history
        self.rng = rng
        self._padding = padding
        self._number = 0
        self._transaction = ""
        """What is sent now belongs to it."""

    def draw(self) -> list[KeyedRecord]:
        """The records of a new batch."""
        records = []
        for _ in range(self.rng.randint(1, 3)):
            self._number += 1
            identity = f"{self.name}/{self._number}".encode()
            value = None if self.rng.random() < 0.25 else self.rng.randbytes(self.rng.choice(self._padding))
            records.append(KeyedRecord(identity, self.rng.choice(_KEYS), value))
        return records

    async def append(
        self, partition: Partition, clock: Clock, records: Sequence[KeyedRecord], epoch: int, sequence: int
    ) -> AppendResult:
        """Once the log takes it."""
        while True:
            now_ms = clock.wall_ms()
            builder = BatchBuilder(self.rng.choice((Codec.NONE, Codec.NONE, Codec.GZIP)))
            for record in records:
                sent = ProducedRecord(record.key, record.value is None, now_ms, self._transaction)
                self.history.sent.setdefault(record.identity, sent)
                builder.append(now_ms, record.key, record.value, [(IDENTITY, record.identity)])
            built = builder.build(
                producer_id=self.producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=bool(self._transaction),
            )
            try:
                return partition.leader().append([(read_header(built), memoryview(built))], now_ms=now_ms)
            except KafkaError as error:
                await self.acknowledge_gaps(error)

    async def acknowledge_gaps(self, error: KafkaError) -> None:
        """A full disk, or an operator who is on his way; anything else is a violation."""
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            raise ViolationError(f"{self.history.name}: {self.name} was refused: {error}") from error
        await asyncio.sleep(_RETRY_S)

    @staticmethod
    async def durable(partition: Partition, last_offset: int) -> None:
        """Returns once it is, and never if that cannot be known any more."""
        try:
            waiting = partition.leader().acknowledgement(last_offset)
            if waiting is not None:
                await waiting
        except KafkaError:
            await asyncio.get_running_loop().create_future()

    def acknowledge(self, records: Sequence[KeyedRecord], first_offset: int) -> None:
        for offset, record in enumerate(records, first_offset):
            self.history.acknowledge(record.identity, offset)


class IdempotentWriter(Writer):
    """One batch at a time; sends again what was not acknowledged, and now and then what was."""

    def __init__(self, *arguments: object, batch_count: int) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._left = batch_count
        self._sequence = 0
        self._in_doubt: list[KeyedRecord] = []
        self._last: tuple[list[KeyedRecord], int, int] | None = None
        """The newest acknowledged batch: records, sequence, offset."""

    @property
    def is_done(self) -> bool:
        return self._left == 0 and not self._in_doubt

    async def run(self, partition: Partition, clock: Clock) -> None:
        if not self._in_doubt:
            await self.repeat_last(partition, clock)
        while not self.is_done:
            if not self._in_doubt:
                self._in_doubt = self.draw()
                self._left -= 1
            appended = await self.append(partition, clock, self._in_doubt, 0, self._sequence)
            await self.durable(partition, appended.last_offset)
            self.acknowledge(self._in_doubt, appended.first_offset)
            self._last = self._in_doubt, self._sequence, appended.first_offset
            self._sequence += len(self._in_doubt)
            self._in_doubt = []
            await asyncio.sleep(self.rng.uniform(0, 0.03))

    async def repeat_last(self, partition: Partition, clock: Clock) -> None:
        """Whatever was compacted, the log knows what it took last."""
        if self._last is None or self._last[2] < partition.start_offset:
            return
        records, sequence, offset = self._last
        appended = await self.append(partition, clock, records, 0, sequence)
        if not appended.duplicate or appended.first_offset != offset:
            raise ViolationError(
                f"{self.history.name}: {self.name} sent sequence {sequence} again, at {offset}: {appended}"
            )


class TransactionalWriter(Writer):
    """One transaction at a time. In a new life it ends what is open as it had decided, or aborts it."""

    def __init__(self, *arguments: object, transaction_count: int) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._left = transaction_count
        self._life = 0
        self._name = ""
        self._decision: bool | None = None

    @property
    def is_done(self) -> bool:
        return self._left == 0 and not self._name

    async def run(self, partition: Partition, clock: Clock) -> None:
        self._life += 1  # the coordinator gives a producer that comes back a new epoch
        if self._name:
            await self._resolve(partition, clock)
        sequence = 0
        while not self.is_done:
            self._left -= 1
            self._name, self._decision = f"{self.name}#{self._left}", None
            self._transaction = self._name
            for _ in range(self.rng.randint(1, 3)):
                records = self.draw()
                appended = await self.append(partition, clock, records, self._life, sequence)
                sequence += len(records)
                await self.durable(partition, appended.last_offset)
                self.acknowledge(records, appended.first_offset)
                await asyncio.sleep(self.rng.uniform(0, self.rng.choice((0.02, 0.3))))
            self._decision = self.rng.random() < 0.6
            await self._end(partition, clock, is_commit=self._decision)

    async def _resolve(self, partition: Partition, clock: Clock) -> None:
        """All of a decided transaction was durable: if it is not open any more, its marker is there."""
        is_open = partition.ongoing_transaction(self.producer_id) is not None
        if is_open:
            await self._end(partition, clock, is_commit=bool(self._decision))
        else:
            self.history.resolved(self._name, is_commit=bool(self._decision))
            self._name = ""

    async def _end(self, partition: Partition, clock: Clock, *, is_commit: bool) -> None:
        while True:
            now_ms = clock.wall_ms()
            try:
                appended = partition.leader().append_marker(
                    self.producer_id,
                    self._life,
                    is_commit=is_commit,
                    coordinator_epoch=1,
                    transaction_version=1,
                    now_ms=now_ms,
                )
                break
            except KafkaError as error:
                await self.acknowledge_gaps(error)
        await self.durable(partition, appended.last_offset)
        self.history.ended(self._name, appended.first_offset, now_ms, is_commit=is_commit)
        self._name = ""
