"""Logs on a simulated disk; each example of a property makes a `Bench` of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.model.ids import TopicPartition
from odradek.records import BatchBuilder, BatchHeader, Record, decode_batch, read_header, split_batches
from odradek.runtime.ports import Runtime
from odradek.storage.log.log import Log
from odradek.testing.guarded_disk import GuardedDisk, off_loop
from odradek.testing.sim import CrashKind, Medium, SimDisk, SimEntropy

DIRECTORY = "/data/flights-0"


@dataclass
class Bench:
    """One medium, and the log on it."""

    config: LogConfig
    seed: int = 0
    now_ms: int = 1_700_000_000_000
    medium: Medium = field(default_factory=Medium)
    disk: SimDisk = field(init=False)

    def __post_init__(self) -> None:
        self.medium.make_durable_folder("/data")
        self.rng = Random(self.seed)
        self.mount()

    def mount(self) -> None:
        self.disk = SimDisk(self.medium, rng=self.rng, now_ms=lambda: self.now_ms)

    def crash(self, kind: CrashKind) -> None:
        self.disk.crash(kind)
        self.mount()

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def open(self, *, clean: bool = True, recovery_point: int = 0, **more: Any) -> Log:
        runtime = Runtime(clock=self, entropy=SimEntropy(self.rng), disk=GuardedDisk(self.disk), offload=None)  # type: ignore[arg-type]
        partition = TopicPartition("flights", 0)
        return Log.open(
            runtime,
            DIRECTORY,
            self.config,
            topic_partition=partition,
            clean=clean,
            recovery_point=recovery_point,
            **more,
        )

    def batch(
        self,
        values: list[bytes],
        *,
        timestamp: int | None = None,
        producer: tuple[int, int, int] = (-1, -1, -1),
    ) -> list[tuple[BatchHeader, memoryview]]:
        builder = BatchBuilder()
        for value in values:
            builder.append(self.now_ms if timestamp is None else timestamp, None, value, ())
        producer_id, epoch, sequence = producer
        built = builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        return [(read_header(built), memoryview(built))]

    def records(self, log: Log, max_bytes: int = 4096) -> list[Record]:
        records: list[Record] = []
        offset = log.start_offset
        while offset < log.end_offset:
            read = log.read(offset, max_bytes, end_offset=log.end_offset, at_least_one=True)
            assert read.next_offset > offset
            for _, batch in split_batches(read.records):
                records += [record for record in decode_batch(batch) if record.offset >= log.start_offset]
            offset = read.next_offset
        return records

    @staticmethod
    def flush(log: Log) -> None:
        job = log.flush_job()
        if job is not None:
            with off_loop():
                job.run()
            log.flushed(job)

    def remove(self, log: Log) -> None:
        job = log.jobs.removal_job(self.now_ms)
        if job is not None:
            with off_loop():
                job.run()
            log.jobs.removed(job, self.now_ms + log.config.file_delete_delay_ms)


@pytest.fixture(scope="session")
def bench_of() -> type[Bench]:
    return Bench
