"""Failures that the simulator found in the storage, each reduced to the few steps that make it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import KafkaError
from odradek.model.ids import TopicPartition
from odradek.records import BatchBuilder, decode_batch, split_batches
from odradek.runtime.ports import Runtime
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.log import Log
from odradek.storage.log.results import AppendResult
from odradek.testing.sim import (
    CrashKind,
    FailOperations,
    Medium,
    SimClock,
    SimDisk,
    SimEntropy,
    World,
    stream,
)
from odradek.testing.sim.disk_faults import DiskFault

pytestmark = pytest.mark.sim
PARTITION = TopicPartition("topic", 0)
CONFIG = LogConfig(segment_bytes=1300, index_interval_bytes=1)


class Inline:
    """An Offload that runs work where it is asked to."""

    async def run(self, work, *arguments):  # type: ignore[no-untyped-def]
        return work(*arguments)


@dataclass
class Machine:
    """A disk and the one log on it, opened and crashed at will."""

    seed: int = 0
    medium: Medium = field(default_factory=Medium)

    def __post_init__(self) -> None:
        self.medium.make_durable_folder("/data")
        self.disk = self.mount()

    def mount(self) -> SimDisk:
        self.disk = SimDisk(self.medium, rng=stream(self.seed, "disk"), now_ms=lambda: 1_700_000_000_000)
        return self.disk

    def runtime(self) -> Runtime:
        return Runtime(
            clock=SimClock(lambda: 0.0),
            entropy=SimEntropy(stream(self.seed, "entropy")),
            disk=self.disk,
            offload=Inline(),
        )

    def crash(self, kind: CrashKind) -> None:
        self.disk.crash(kind)
        self.mount()

    def fail(self, fault: DiskFault) -> None:
        self.disk.faults.append(fault)

    def open(self, *, clean: bool = False, recovery_point: int = 0) -> Log:
        return Log.open(
            self.runtime(),
            "/data/topic-0",
            CONFIG,
            topic_partition=PARTITION,
            clean=clean,
            recovery_point=recovery_point,
        )


def append(
    log: Log, name: str, *, producer_id: int = -1, sequence: int = -1, time: int = 0, padding: int = 200
) -> AppendResult:
    builder = BatchBuilder()
    builder.append(1_700_000_000_000 + time, None, f"{name}/".encode() + bytes(padding), ())
    batch = builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return log.append(split_batches(batch), leader_epoch=0, now_ms=1_700_000_000_000)


def flush(log: Log) -> None:
    job = log.flush_job()
    if job is not None:
        job.run()
        log.flushed(job)


def names(log: Log) -> list[str]:
    """The names of the records that the log holds, read one by one from the last, so that each is
    looked up.
    """
    results = []
    for offset in reversed(range(log.start_offset, log.end_offset)):
        fetched = log.read(offset, 1, end_offset=log.end_offset, at_least_one=True)
        (header, batch), *_ = split_batches(fetched.records)
        (record,) = decode_batch(batch, header, from_offset=offset)
        assert record.offset == offset
        results.append((record.value or b"").split(b"/")[0].decode())
    return results[::-1]


def test_a_roll_that_a_full_disk_stopped_leaves_nothing_that_a_restart_believes() -> None:
    machine = Machine()
    log = machine.open()
    machine.fail(FailOperations(operations={"create"}, error=errno.ENOSPC, path_test=lambda p: ".index" in p))
    for number in range(3):
        append(log, f"r{number}")
    with pytest.raises(KafkaError):
        append(log, "too long for this segment", padding=1000)
    job = log.jobs.repair_job()
    assert job is not None
    job.run()
    log.jobs.repaired(job)
    append(log, "r3", padding=10)
    flush(log)
    log.close()
    again = machine.open(clean=True, recovery_point=log.end_offset)
    assert names(again) == ["r0", "r1", "r2", "r3"]


def test_a_roll_that_a_crash_stopped_after_a_full_disk_is_forgotten() -> None:
    machine = Machine()
    log = machine.open()
    for number in range(4):
        append(log, f"r{number}")
    flush(log)
    machine.disk.open(
        "/data/topic-0/00000000000000000002.log", create=True
    ).close()  # what a failed roll leaves
    machine.crash(CrashKind.PROCESS_KILL)
    assert names(machine.open()) == ["r0", "r1", "r2", "r3"]


def test_every_batch_that_may_be_in_flight_is_recognised_after_a_restart() -> None:
    machine = Machine()
    log = machine.open()
    offsets = [append(log, f"r{n}", producer_id=7, sequence=n).first_offset for n in range(5)]
    flush(log)
    log.close()
    again = machine.open(clean=True, recovery_point=5)
    for number, offset in enumerate(offsets):
        appended = append(again, f"r{number}", producer_id=7, sequence=number)
        assert (appended.duplicate, appended.first_offset) == (True, offset)
    assert append(again, "r5", producer_id=7, sequence=5).first_offset == 5


def test_what_a_restart_after_a_failed_sync_shows_is_durable() -> None:
    for seed in range(20):
        machine = Machine(seed)
        log = machine.open()
        append(log, "before")
        flush(log)
        append(log, "in doubt")
        machine.fail(FailOperations(operations={"sync"}))
        job = log.flush_job()
        assert job is not None
        with pytest.raises(OSError, match=f"Errno {errno.EIO}"):
            job.run()
        machine.crash(CrashKind.PROCESS_KILL)
        shown = names(machine.open())
        machine.crash(CrashKind.POWER_LOSS)
        assert names(machine.open())[: len(shown)] == shown


def rotten(sound: bytes) -> Iterator[bytes]:
    """An index file with bits flipped, cut short, zeroed to its end, or with entries that no one wrote."""
    for bit in range(0, len(sound) * 8, 5):
        flipped = bytearray(sound)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)
    for length in range(len(sound)):
        yield sound[:length]
        yield sound[:length].ljust(len(sound), b"\0")
    rng = stream(0, "rot")
    for _ in range(100):
        yield sound + rng.randbytes(rng.choice((4, 8, 12, 16, 24)))
        yield sound + bytes((0, 0, 0, rng.randrange(8), 0, 0, *rng.randbytes(2)))


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_a_rotten_index_hides_and_moves_nothing(kind: str) -> None:
    machine = Machine()
    log = machine.open()
    written = []
    for number in range(12):
        append(log, f"r{number}", time=number * 10)
        written.append(f"r{number}")
    flush(log)
    log.close()
    path = next(path for path, _ in machine.disk.files() if path.endswith(f"00.{kind}"))
    sound = machine.disk.read(path)
    assert len(sound) > 20
    for number, content in enumerate(rotten(sound)):
        machine.medium.file(path).overwrite(content)
        machine.crash(CrashKind.PROCESS_KILL)
        again = machine.open(clean=True, recovery_point=12)
        assert names(again) == written, f"rot {number}: {content.hex()}"
        for wanted in range(12):
            timestamped_offset = again.offset_for_timestamp(1_700_000_000_000 + wanted * 10)
            assert timestamped_offset is not None
            assert timestamped_offset.offset == wanted, f"rot {number}: {content.hex()}"


def test_a_partition_survives_though_its_first_life_ended_before_its_first_flush() -> None:
    for seed in range(20):
        machine = Machine(seed)
        append(machine.open(), "r0")
        machine.crash(CrashKind.PROCESS_KILL)
        log = machine.open()
        append(log, "r1")
        flush(log)
        acknowledged = log.flushed_offset
        machine.crash(CrashKind.POWER_LOSS)
        assert machine.open().end_offset >= acknowledged


def test_a_new_data_directory_survives_a_power_cut_with_what_was_acknowledged_in_it() -> None:
    for seed in range(20):
        with World(seed) as world:
            host = world.host("broker")

            async def write(host=host) -> int:  # type: ignore[no-untyped-def]
                directories = LogManager.open(host.life.runtime, ["/var/lib/new"], node_id=1)
                log = await directories.open_log(PARTITION, UUID(int=1), CONFIG)
                append(log, "r0")
                job = log.flush_job()
                assert job is not None
                await host.life.runtime.offload.run(job.run)
                log.flushed(job)
                return int(log.flushed_offset)

            async def look(host=host) -> int:  # type: ignore[no-untyped-def]
                directories = LogManager.open(host.life.runtime, ["/var/lib/new"], node_id=1)
                return int((await directories.open_log(PARTITION, UUID(int=1), CONFIG)).end_offset)

            host.boot()
            assert world.run(lambda host=host, write=write: host.spawn(write())) == 1
            host.crash(CrashKind.POWER_LOSS)
            host.boot()
            assert world.run(lambda host=host, look=look: host.spawn(look())) == 1
