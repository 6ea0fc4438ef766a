"""Files that a real Kafka 4.3.1 wrote: we read them all, and would have written the same bytes.

The directory is what one broker left after a clean stop: a topic with three segments (`segment.ms`), an index entry about
every 1000 bytes, two producers of which one is idempotent, timestamps that jump back and forth.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from odradek.config.topic import LogConfig
from odradek.model.ids import TopicPartition
from odradek.records import decode_batch, split_batches
from odradek.runtime.ports import Runtime
from odradek.runtime.real import PosixDisk, SystemClock, SystemEntropy, ThreadOffload
from odradek.storage.directories.log_directory import MetaProperties
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.dump import check_segment, read_snapshot
from odradek.storage.files import checkpoints
from odradek.storage.log.log import Log
from odradek.storage.producers.snapshot import decode_snapshot, encode_snapshot
from odradek.storage.segment.index_checks import build_index

GOLDEN = Path(__file__).parent / "kafka-4.3.1"
GOLD = TopicPartition("gold", 0)
TOPIC_ID = UUID(
    bytes=checkpoints.parse_partition_metadata((GOLDEN / "gold-0/partition.metadata").read_bytes()).bytes
)
CONFIG = LogConfig(index_interval_bytes=1000)
BASES = (0, 27, 54)
END_OFFSET = 81


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    offload = ThreadOffload(1)
    yield Runtime(clock=SystemClock(), entropy=SystemEntropy(), disk=PosixDisk(), offload=offload)
    offload.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A copy of the directory, as the broker left it."""
    target = tmp_path / "data"
    shutil.copytree(GOLDEN, target)
    (target / "kafka_cleanshutdown").rename(target / ".kafka_cleanshutdown")
    return target


@pytest.mark.parametrize("base", BASES)
def test_our_indexes_of_kafkas_log_are_kafkas_indexes(base: int) -> None:
    disk = PosixDisk()
    path = GOLDEN / f"gold-0/{base:020d}.log"
    file = disk.open(str(path), write=False)
    built = build_index(file, base, path.stat().st_size, CONFIG.index_interval_bytes)
    built.index.seal()
    file.close()
    assert built.index.offset_bytes() == path.with_suffix(".index").read_bytes()
    assert built.index.time_bytes() == path.with_suffix(".timeindex").read_bytes()


@pytest.mark.parametrize("base", BASES)
def test_kafkas_segments_are_sound(base: int) -> None:
    summary = check_segment(PosixDisk(), str(GOLDEN / f"gold-0/{base:020d}.log"))
    assert summary.problems == ()
    assert (summary.offset_entry_count, summary.time_entry_count) == (4, 4)


@pytest.mark.parametrize("offset", [27, 54, 81])
def test_snapshots_are_read_and_written_alike(offset: int) -> None:
    path = GOLDEN / f"gold-0/{offset:020d}.snapshot"
    assert encode_snapshot(decode_snapshot(path.read_bytes(), 2**62)) == path.read_bytes()
    states = read_snapshot(PosixDisk(), str(path))
    assert [state.producer_id for state in states] == sorted(state.producer_id for state in states)


def test_small_files_are_read_and_written_alike() -> None:
    for name in (
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    ):
        content = (GOLDEN / name).read_bytes()
        assert checkpoints.format_offsets(checkpoints.parse_offsets(content)) == content
    content = (GOLDEN / "gold-0/leader-epoch-checkpoint").read_bytes()
    assert checkpoints.format_epochs(checkpoints.parse_epochs(content)) == content
    content = (GOLDEN / "gold-0/partition.metadata").read_bytes()
    assert checkpoints.format_partition_metadata(checkpoints.parse_partition_metadata(content)) == content
    identity = MetaProperties.parse((GOLDEN / "meta.properties").read_bytes(), "meta.properties")
    assert (identity.cluster_id, identity.node_id) == ("AYnSt1-KfD6AAPv______w", 1)


@pytest.mark.parametrize("clean", [True, False])
def test_kafkas_log_opens_and_reads_without_a_repair(
    runtime: Runtime, data: Path, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log.open(
        runtime,
        str(data / "gold-0"),
        CONFIG,
        topic_partition=GOLD,
        clean=clean,
        recovery_point=END_OFFSET,
        topic_id=TOPIC_ID,
    )
    assert (log.start_offset, log.end_offset, log.segment_count) == (0, END_OFFSET, 3)
    records = []
    while len(records) < END_OFFSET:
        read = log.read(len(records), 2000, end_offset=END_OFFSET)
        records += [record for _, batch in split_batches(read.records) for record in decode_batch(batch)]
    assert [record.offset for record in records] == list(range(END_OFFSET))
    assert records[0].value is not None
    assert records[0].value.startswith(b"0-0-0 ")
    for timestamp in range(1_700_000_000_000, 1_700_000_010_200, 333):
        expected = next((record for record in records if record.timestamp >= timestamp), None)
        timestamped_offset = log.offset_for_timestamp(timestamp)
        assert (timestamped_offset and timestamped_offset.offset) == (expected and expected.offset)
    log.close()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


async def test_kafkas_data_directory_is_taken_over(runtime: Runtime, data: Path) -> None:
    directories = LogManager.open(runtime, [str(data)], node_id=1)
    assert directories.cluster_id == "AYnSt1-KfD6AAPv______w"
    log = await directories.open_log(GOLD, TOPIC_ID, CONFIG)
    assert log.end_offset == END_OFFSET
    await directories.close_logs()
    directories.close()
