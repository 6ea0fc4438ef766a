"""A log on a simulated disk, with a clock that the test sets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.config.topic import LogConfig
from odradek.model.ids import TopicPartition
from odradek.records import BatchBuilder, BatchHeader, Codec, Record, decode_batch, read_header, split_batches
from odradek.runtime.descriptors import UNLIMITED, DescriptorBudget
from odradek.runtime.ports import Runtime
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.log import AppendResult, Log
from odradek.storage.producers.producer_state import Marker
from odradek.storage.segment.batch_walk import Mark, walk
from odradek.testing.guarded_disk import GuardedDisk, off_loop
from odradek.testing.sim import CrashKind, Medium, SimDisk, SimEntropy

NOW_MS = 1_700_000_000_000
HOME = "/data"
DIRECTORY = "/data/flights-0"
PARTITION = TopicPartition("flights", 0)
TOPIC_ID = UUID(int=7, version=4)

Batches = list[tuple[BatchHeader, memoryview]]


class InlineOffload:
    """Runs work where it is asked for."""

    async def run(self, work: Callable[..., Any], *arguments: object) -> Any:
        await asyncio.sleep(0)
        with off_loop():
            return work(*arguments)


@dataclass
class Lab:
    """Opens logs on one medium and speaks of their content in the terms of a test."""

    medium: Medium = field(default_factory=Medium)
    now_ms: int = NOW_MS
    seconds: float = 0.0
    lives: int = 0
    entropy: SimEntropy = field(default_factory=lambda: SimEntropy(Random(1)))
    descriptors: DescriptorBudget = UNLIMITED
    disk: SimDisk = field(init=False)

    def __post_init__(self) -> None:
        self.medium.make_durable_folder(HOME)
        self.mount()

    def mount(self) -> None:
        self.lives += 1
        self.disk = SimDisk(self.medium, rng=Random(self.lives), now_ms=lambda: self.now_ms)

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.seconds

    @property
    def runtime(self) -> Runtime:
        return Runtime(
            clock=self,
            entropy=self.entropy,
            disk=GuardedDisk(self.disk),
            offload=InlineOffload(),
            descriptors=self.descriptors,
        )

    # ---- logs

    def open(
        self, config: LogConfig | None = None, *, clean: bool = True, recovery_point: int = 0, **more: Any
    ) -> Log:
        more = {"topic_partition": PARTITION, "clean": clean, "recovery_point": recovery_point} | more
        return Log.open(self.runtime, DIRECTORY, config or LogConfig(), **more)

    def directories(self, *paths: str, **more: Any) -> LogManager:
        return LogManager.open(self.runtime, paths or (HOME,), **({"node_id": 1} | more))

    def kill(self) -> None:
        """The process dies; the page cache stays."""
        self.disk.crash(CrashKind.PROCESS_KILL)
        self.mount()

    def cut_power(self) -> None:
        self.disk.crash(CrashKind.POWER_LOSS)
        self.mount()

    # ---- batches

    def batch(
        self,
        *values: bytes | None,
        timestamps: tuple[int, ...] = (),
        producer: tuple[int, int, int] = (-1, -1, -1),
        codec: Codec = Codec.NONE,
        transactional: bool = False,
    ) -> Batches:
        """One batch of records with these values; `producer` is id, epoch and first sequence."""
        builder = BatchBuilder(codec)
        for number, value in enumerate(values or (b"value",)):
            builder.append(timestamps[number] if timestamps else self.now_ms, b"key", value, ())
        producer_id, epoch, sequence = producer
        built = builder.build(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
        )
        return [(read_header(built), memoryview(built))]

    def append(self, log: Log, *values: bytes | None, epoch: int = 0, **more: Any) -> AppendResult:
        return log.append(self.batch(*values, **more), leader_epoch=epoch, now_ms=self.now_ms)

    def end(
        self,
        log: Log,
        producer_id: int,
        *,
        commit: bool,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        version: int = 1,
    ) -> int:
        """Append the marker of a producer's transaction; return its offset."""
        marker = Marker(producer_id, epoch, coordinator_epoch, commit, self.now_ms)
        return log.append_marker(
            marker, transaction_version=version, leader_epoch=0, now_ms=self.now_ms
        ).first_offset

    def fill(self, log: Log, count: int, *, value_bytes: int = 1000, epoch: int = 0) -> None:
        """Append `count` batches of one record each; the value begins with the offset."""
        for _ in range(count):
            self.append(log, b"%d:" % log.end_offset + bytes(value_bytes), epoch=epoch)

    def flush(self, log: Log) -> None:
        job = log.flush_job()
        if job is not None:
            with off_loop():
                job.run()
            log.flushed(job)

    def records(self, log: Log, *, max_bytes: int = 1 << 16) -> list[Record]:
        """Everything from the start offset to the end, as a sequential reader gets it."""
        records: list[Record] = []
        offset = log.start_offset
        while offset < log.end_offset:
            read = log.read(offset, max_bytes, end_offset=log.end_offset, at_least_one=True)
            assert read.next_offset > offset, "the reader is stuck"
            for header, batch in split_batches(read.records):
                assert header.last_offset >= offset
                records += [record for record in decode_batch(batch) if record.offset >= log.start_offset]
            offset = read.next_offset
        return records

    def values(self, log: Log) -> list[bytes | None]:
        return [record.value for record in self.records(log)]

    # ---- files

    def names(self, directory: str = DIRECTORY) -> list[str]:
        return self.disk.list_directory(directory)

    def read(self, name: str) -> bytes:
        return self.disk.read(f"{DIRECTORY}/{name}")

    def write(self, name: str, data: bytes, *, directory: str = DIRECTORY) -> None:
        """Put a file there, durably, as if someone had."""
        self.disk.make_directory(directory)
        self.disk.replace(f"{directory}/{name}", data)

    def marks(self, name: str) -> list[Mark]:
        """The batches of a segment's file."""
        file = self.disk.open(f"{DIRECTORY}/{name}", write=False)
        try:
            return [*walk(file, 0, file.length())]
        finally:
            file.close()

    def segment_names(self, suffix: str = ".log") -> list[str]:
        return [name for name in self.names() if name.endswith(suffix)]


@pytest.fixture
def lab() -> Lab:
    return Lab()


@pytest.fixture
def small() -> LogConfig:
    """Segments of 20 kB with an index entry about every 2 kB."""
    return LogConfig(segment_bytes=20_000, index_interval_bytes=1500)
