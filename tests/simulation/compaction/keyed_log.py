"""A log under compaction on a simulated disk, beside a plain model of what every reader must still find.

One partition, driven without an event loop of its own: each call runs to its end. The model knows every record that was
written, which transactions ended how, and since when each tombstone may go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, TypeVar
from uuid import UUID

from tests.simulation.compaction.history import committed_records, read_batches

from odradek.config.broker import BrokerConfig
from odradek.config.topic import LogConfig
from odradek.model.ids import TopicPartition
from odradek.records import (
    BatchBuilder,
    BatchHeader,
    Codec,
    Record,
    TimestampType,
    decode_batch,
    read_header,
)
from odradek.runtime.ports import Runtime
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.log import AppendResult, Log
from odradek.storage.log_cleaner import LogCleaner
from odradek.storage.producers.producer_state import Marker
from odradek.testing.guarded_disk import GuardedDisk, off_loop
from odradek.testing.sim.disk import SimDisk
from odradek.testing.sim.disk_faults import CrashKind
from odradek.testing.sim.entropy import SimEntropy
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.medium import Medium

T = TypeVar("T")
Pair = tuple[bytes | None, bytes | None]

HOME: Final = "/data"
PARTITION: Final = TopicPartition("keyed", 0)
_TOPIC_ID: Final = UUID(int=9, version=4)


@dataclass(slots=True)
class Written:
    """A record that was appended."""

    record: Record
    producer_id: int
    transaction: int
    """Its number; -1 outside of any."""


@dataclass(slots=True)
class Model:
    """What was written, and its outcome."""

    written: dict[int, Written] = field(default_factory=dict)
    """By offset."""
    aborted: dict[int, bool] = field(default_factory=dict)
    """How each transaction that ended did: by number, True for aborted."""
    markers: dict[int, int] = field(default_factory=dict)
    """Offset of each transaction's marker, by number."""
    open: dict[int, int] = field(default_factory=dict)
    """The transaction under way, by producer."""
    horizons: dict[int, int] = field(default_factory=dict)
    """From when each tombstone and marker that a compaction met may go, by offset."""

    def is_committed(self, written: Written) -> bool:
        return written.transaction < 0 or self.aborted.get(written.transaction) is False

    def latest(self) -> dict[bytes, Record]:
        """The newest committed record of each key."""
        records: dict[bytes, Record] = {}
        for written in self.written.values():
            if self.is_committed(written) and written.record.key is not None:
                records[written.record.key] = written.record
        return records


class InlineOffload:
    """Runs work where it is asked for."""

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        await asyncio.sleep(0)
        with off_loop():
            return work(*arguments)

    def submit(
        self,
        done: Callable[[T | None, BaseException | None], None],
        work: Callable[..., T],
        *arguments: object,
    ) -> None:
        try:
            with off_loop():
                value = work(*arguments)
        except Exception as error:  # noqa: BLE001 - the caller learns of it, as from another thread
            done(None, error)
        else:
            done(value, None)


@dataclass(slots=True)
class _Partition:
    log: Log

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.log.flushed_offset)

    def flush_if_due(self) -> None:
        flush(self.log)


def flush(log: Log) -> None:
    job = log.flush_job()
    if job is not None:
        with off_loop():
            job.run()
        log.flushed(job)


class KeyedLog:
    """Open from the start. The clock stands still unless the test moves it."""

    def __init__(self, config: LogConfig, *, seed: int = 0, broker: BrokerConfig | None = None) -> None:
        self.config = replace(config, cleanup_policy=config.cleanup_policy | {"compact"})
        self.broker = broker or BrokerConfig()
        self.rng = Random(seed)
        self.medium = Medium()
        self.medium.make_durable_folder(HOME)
        self.now_ms = 1_700_000_000_000
        self.model = Model()
        self._sequences: dict[int, int] = {}
        self._touched_below = 0
        """Everything from here on was never offered to compaction."""
        self._mount()
        self.open()

    # ---- lives -----------------------------------------------------------------------------------------------------

    def _mount(self) -> None:
        self.disk = SimDisk(self.medium, rng=self.rng, now_ms=lambda: self.now_ms)

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def open(self) -> None:
        runtime = Runtime(
            clock=self, entropy=SimEntropy(self.rng), disk=GuardedDisk(self.disk), offload=InlineOffload()
        )
        self.directories = LogManager.open(runtime, [HOME], node_id=1)
        self.log = _run(self.directories.open_log(PARTITION, _TOPIC_ID, self.config))
        self.cleaner = LogCleaner(runtime, self.directories)

    def close(self) -> None:
        _run(self.directories.close_logs())
        self.directories.close()

    def crash(self, kind: CrashKind) -> None:
        """The host dies, whatever it was doing. Only `open` helps."""
        self.disk.crash(kind)
        self._mount()

    # ---- writing ---------------------------------------------------------------------------------------------------

    def write(
        self, *pairs: Pair, codec: Codec = Codec.NONE, producer_id: int = -1, transactional: bool = False
    ) -> AppendResult:
        """One batch. A transactional one belongs to the producer's transaction, or begins one."""
        sequence = self._sequences.get(producer_id, 0) if producer_id >= 0 else -1
        appended = self.send(pairs, codec, producer_id, sequence, transactional=transactional)
        self._sequences[producer_id] = sequence + len(pairs)
        number = self._transaction_of(producer_id, appended.first_offset) if transactional else -1
        for offset, (key, value) in enumerate(pairs, appended.first_offset):
            kept = Record(offset, self.now_ms, TimestampType.CREATE_TIME, key, value, (), 0)
            self.model.written[offset] = Written(kept, producer_id, number)
        return appended

    def send(
        self,
        pairs: Sequence[Pair],
        codec: Codec,
        producer_id: int,
        sequence: int,
        *,
        transactional: bool = False,
    ) -> AppendResult:
        """The bare append, of which the model does not hear: what a producer does that sends again."""
        builder = BatchBuilder(codec)
        for key, value in pairs:
            builder.append(self.now_ms, key, value)
        built = builder.build(
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        batches = [(read_header(built), memoryview(built))]
        return self.log.append(batches, leader_epoch=0, now_ms=self.now_ms)

    def last_sequence(self, producer_id: int) -> int:
        """Returns the sequence of the newest record of an idempotent producer."""
        return self._sequences[producer_id] - 1

    def _transaction_of(self, producer_id: int, first_offset: int) -> int:
        return self.model.open.setdefault(producer_id, first_offset)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        marker = Marker(producer_id, 0, 1, is_commit, self.now_ms)
        appended = self.log.append_marker(marker, transaction_version=1, leader_epoch=0, now_ms=self.now_ms)
        number = self.model.open.pop(producer_id, None)
        if number is not None:
            self.model.aborted[number] = not is_commit
            self.model.markers[number] = appended.first_offset

    def flush(self) -> None:
        flush(self.log)

    def roll(self) -> None:
        """End the active segment, whatever is in it."""
        self.log.reconfigure(replace(self.config, max_compaction_lag_ms=1))
        self.log.roll_for_compaction(self.now_ms + 10)
        self.log.reconfigure(self.config)
        self.flush()

    def apply_retention(self) -> None:
        _run(self.directories.apply_retention(self.log, self.now_ms))

    # ---- compaction ------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        """A round of the broker's own cleaner."""
        self.run_round()
        if self.log.cleaning.uncleanable:
            raise ViolationError(f"the log cannot be compacted: {self.log.cleaning.uncleanable}")
        self.note_horizons()

    def run_round(self) -> None:
        """Nothing but the cleaner's work."""
        sealed = self.log.cleaning.sealed()
        self._touched_below = max(
            [self._touched_below, *(segment_view.end_offset for segment_view in sealed)]
        )
        _run(self.cleaner.run_round([_Partition(self.log)], self.broker))

    def compact_again(self) -> None:
        """Compacts as if no compaction had been here before."""
        self.directories.note_cleaned(self.log, self.log.start_offset)
        self.compact()

    @property
    def cleaned_offset(self) -> int:
        return self.directories.cleaned_offset(PARTITION) or 0

    def note_horizons(self) -> None:
        """From what is in the log now: each batch with a horizon has had it at least since this compaction."""
        for header, batch in self.batches():
            if header.has_delete_horizon:
                for record in decode_batch(batch, header):
                    self.model.horizons.setdefault(record.offset, header.base_timestamp)

    # ---- reading ---------------------------------------------------------------------------------------------------

    def batches(self) -> list[tuple[BatchHeader, memoryview]]:
        """All of the log, as a reader gets it; each with a right CRC."""
        return read_batches(self.log)

    def records(self) -> list[Record]:
        """Returns the records of producers, also of aborted transactions."""
        return [
            record
            for header, batch in self.batches()
            if not header.is_control
            for record in decode_batch(batch, header)
        ]

    def committed(self) -> list[Record]:
        """What a read_committed consumer delivers: it goes by the list of aborted transactions and the markers."""
        stable = self.log.last_stable_offset(self.log.flushed_offset)
        return committed_records(self.log, self.batches(), stable)

    # ---- judging ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise `ViolationError` unless the log still holds what it must, and nothing that was never in it."""
        present = {record.offset: record for record in self.records()}
        self._check_known(present)
        self._check_latest(present)
        self._check_tail(present)
        self._check_transactions(present)
        self._check_batches()

    def _check_known(self, present: dict[int, Record]) -> None:
        if list(present) != sorted(present):
            raise ViolationError(f"offsets do not rise: {list(present)}")
        for offset, record in present.items():
            written = self.model.written.get(offset)
            if written is None or written.record != record:
                raise ViolationError(f"offset {offset} holds {record}, written was {written}")

    def _check_latest(self, present: dict[int, Record]) -> None:
        for key, record in self.model.latest().items():
            if record.offset in present or record.offset < self.log.start_offset:
                continue
            if record.value is not None:
                raise ViolationError(f"{key!r} has lost its value at {record.offset}")
            if self.model.horizons.get(record.offset, self.now_ms + 1) > self.now_ms:
                raise ViolationError(f"the tombstone of {key!r} at {record.offset} went too early")

    def _check_tail(self, present: dict[int, Record]) -> None:
        """What was never compacted is all there."""
        for offset in self.model.written:
            if offset >= max(self._touched_below, self.log.start_offset) and offset not in present:
                raise ViolationError(f"offset {offset} is gone, compaction was offered {self._touched_below}")

    def _check_transactions(self, present: dict[int, Record]) -> None:
        markers = {
            header.base_offset for header, _ in self.batches() if header.is_control and header.record_count
        }
        for offset in present:
            number = self.model.written[offset].transaction
            marker = self.model.markers.get(number)
            if marker is not None and marker not in markers:
                raise ViolationError(f"offset {offset} is there, the marker of its transaction is not")
        for number, marker in self.model.markers.items():
            early = self.model.horizons.get(marker, self.now_ms + 1) > self.now_ms
            if marker >= self.log.start_offset and marker not in markers and early:
                raise ViolationError(f"the marker at {marker} of transaction {number} went too early")
        stable = self.log.last_stable_offset(self.log.flushed_offset)
        expected = [
            record
            for offset, record in present.items()
            if self.model.is_committed(self.model.written[offset])
            and self.log.start_offset <= offset < stable
        ]
        if self.committed() != expected:
            raise ViolationError(f"committed are {expected}, a consumer gets {self.committed()}")

    def _check_batches(self) -> None:
        previous = self.log.start_offset - 1
        for number, (header, _) in enumerate(self.batches()):
            if header.base_offset <= previous and number:
                raise ViolationError(f"a batch at {header.base_offset} follows {previous}")
            previous = header.last_offset
        if previous != self.log.end_offset - 1:
            raise ViolationError(f"the last batch ends at {previous}, the log at {self.log.end_offset}")


def _run(work: Awaitable[T]) -> T:
    async def wait() -> T:
        return await work

    return asyncio.run(wait())
