"""A partition with transactions that a real Kafka 4.3.1 wrote: we know of it what Kafka knew, from its files or without them.

Three segments (`segment.ms`); transactions that were committed and aborted, one that spans two segments, one that was open when
the broker was stopped; and an idempotent producer between them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.config.topic import LogConfig
from odradek.model.ids import TopicPartition
from odradek.records import data_batches, decode_batch, split_batches
from odradek.runtime.ports import Runtime
from odradek.runtime.real import PosixDisk, SystemClock, SystemEntropy, ThreadOffload
from odradek.storage.dump import check_segment
from odradek.storage.log.log import Log
from odradek.storage.producers.producer_state import ProducerState
from odradek.storage.producers.snapshot import decode_snapshot, encode_snapshot
from odradek.storage.segment.transaction_index import decode_aborted

GOLDEN = Path(__file__).parent / "kafka-4.3.1-transactions/txn-0"
BASES = (0, 15, 24)
END_OFFSET = 31
FOR_EVER_MS = 2**62


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    offload = ThreadOffload(1)
    yield Runtime(clock=SystemClock(), entropy=SystemEntropy(), disk=PosixDisk(), offload=offload)
    offload.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A copy of the partition's directory, as the broker left it."""
    target = tmp_path / "txn-0"
    shutil.copytree(GOLDEN, target)
    return target


def opened(runtime: Runtime, directory: Path, *, clean: bool) -> Log:
    return Log.open(
        runtime,
        str(directory),
        LogConfig(index_interval_bytes=1000),
        topic_partition=TopicPartition("txn", 0),
        clean=clean,
        recovery_point=END_OFFSET if clean else 0,
    )


def snapshot(offset: int) -> list[ProducerState]:
    return decode_snapshot((GOLDEN / f"{offset:020d}.snapshot").read_bytes(), FOR_EVER_MS)


def known(state: ProducerState) -> tuple[int, ...]:
    """All but the time, which is the broker's with us."""
    return (
        state.producer_id,
        state.epoch,
        state.last_sequence,
        state.batches[-1].last_offset if state.batches else -1,
        state.batches[-1].offset_delta if state.batches else 0,
        state.coordinator_epoch,
        state.transaction_first_offset,
    )


@pytest.mark.parametrize("clean", [True, False])
def test_the_open_transaction_and_the_aborted_ones_are_those_that_kafka_knew(
    runtime: Runtime, directory: Path, clean: bool
) -> None:
    log = opened(runtime, directory, clean=clean)
    (open_one,) = [state for state in snapshot(END_OFFSET) if state.transaction_first_offset >= 0]
    assert log.last_stable_offset(END_OFFSET) == open_one.transaction_first_offset
    expected = [
        (entry.producer_id, entry.first_offset)
        for base in BASES
        for entry in decode_aborted((GOLDEN / f"{base:020d}.txnindex").read_bytes())
    ]
    assert len(expected) == 4
    assert log.aborted_transactions(0, END_OFFSET) == expected
    log.close()


@pytest.mark.parametrize("has_snapshots", [True, False])
def test_after_a_crash_the_transaction_indexes_are_kafkas_byte_for_byte(
    runtime: Runtime, directory: Path, has_snapshots: bool
) -> None:
    for path in directory.iterdir():
        if path.suffix == ".txnindex" or (path.suffix == ".snapshot" and not has_snapshots):
            path.unlink()
    opened(runtime, directory, clean=False).close()
    for base in BASES:
        name = f"{base:020d}.txnindex"
        assert (directory / name).read_bytes() == (GOLDEN / name).read_bytes()


def test_producers_that_are_read_off_the_batches_are_those_of_kafkas_snapshot(
    runtime: Runtime, directory: Path
) -> None:
    for path in directory.glob("*.snapshot"):
        path.unlink()
    log = opened(runtime, directory, clean=False)
    assert sorted(map(known, log.producers)) == sorted(map(known, snapshot(END_OFFSET)))
    log.close()


@pytest.mark.parametrize("offset", [15, 24, END_OFFSET])
def test_snapshots_with_transactions_are_read_and_written_alike(offset: int) -> None:
    content = (GOLDEN / f"{offset:020d}.snapshot").read_bytes()
    assert encode_snapshot(decode_snapshot(content, FOR_EVER_MS)) == content


def test_a_reader_of_committed_records_gets_what_was_committed(runtime: Runtime, directory: Path) -> None:
    log = opened(runtime, directory, clean=True)
    stable = log.last_stable_offset(END_OFFSET)
    kept, offset = b"", 0
    while offset < stable:
        read = log.read(offset, 1, end_offset=stable, at_least_one=True)
        aborted = log.aborted_transactions(offset, read.next_offset)
        for _, batch in data_batches(split_batches(read.records), aborted=aborted):
            kept += b"".join((record.value or b"")[:1] for record in decode_batch(batch))
        offset = read.next_offset
    assert kept == b"pppAAppppAAA"
    log.close()


@pytest.mark.parametrize("base", BASES)
def test_kafkas_segments_with_transactions_are_sound(base: int) -> None:
    assert check_segment(PosixDisk(), str(GOLDEN / f"{base:020d}.log")).problems == ()
