"""Large reads for a socket are ranges of the file, and hold what plain reads hold."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.config.topic import LogConfig
from odradek.model.ids import TopicPartition
from odradek.records import BatchBuilder, read_header, split_batches
from odradek.runtime.mapped_range import MappedRange
from odradek.runtime.real import real_runtime
from odradek.storage.log.log import Log

MAP_BYTES_MIN = 256 * 1024


@pytest.fixture(params=[1, 2, 3])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """6 MB in three segments; batches of 100 bytes to 400 KB."""
    rng = random.Random(request.param)
    sizes = rng.choice([(100, 3_000), (20_000,), (100, 400_000), (150_000, 300_000)])
    config = LogConfig(segment_bytes=2_500_000, index_interval_bytes=rng.choice([1, 4096, 100_000]))
    directory = tmp_path / "t-0"
    directory.mkdir()
    opened = Log.open(
        real_runtime(),
        str(directory),
        config,
        topic_partition=TopicPartition("t", 0),
        clean=True,
        recovery_point=0,
    )
    while opened.size_bytes < 6_000_000:
        builder = BatchBuilder()
        builder.append(1_700_000_000_000, b"k", rng.randbytes(rng.choice(sizes)), ())
        batch = memoryview(builder.build())
        opened.append([(read_header(batch), batch)], leader_epoch=0, now_ms=1_700_000_000_000)
    yield opened
    opened.close()


def test_a_reader_that_sends_gets_the_same_batches_as_one_that_reads(log: Log) -> None:
    offset, mapped, whole, pieces = 0, 0, bytearray(), bytearray()
    while offset < log.end_offset:
        read = log.read(offset, 700_000, end_offset=log.end_offset, at_least_one=True, to_send=True)
        assert read.next_offset > offset
        if isinstance(read.records, memoryview) and isinstance(read.records.obj, MappedRange):
            mapped += 1
            assert MAP_BYTES_MIN <= len(read.records) <= 700_000
        last, _ = split_batches(read.records)[-1]
        assert last.next_offset == read.next_offset
        whole += read.records
        offset = read.next_offset
    offset = 0
    while offset < log.end_offset:
        read = log.read(offset, 100_000, end_offset=log.end_offset, at_least_one=True)
        pieces += read.records
        offset = read.next_offset
    assert mapped > 5
    assert whole == pieces


def test_nothing_beyond_the_end_that_a_reader_may_see_is_mapped(log: Log) -> None:
    end = log.end_offset // 2 + 1
    offset, last = 0, -1
    while offset < end:
        read = log.read(offset, 1 << 20, end_offset=end, at_least_one=True, to_send=True)
        last, offset = split_batches(read.records)[-1][0].last_offset, read.next_offset
    assert last == end - 1


def test_reads_that_do_not_go_to_a_socket_are_never_mapped(log: Log) -> None:
    read = log.read(0, 1 << 20, end_offset=log.end_offset)
    assert not isinstance(read.records, memoryview) or not isinstance(read.records.obj, MappedRange)


@pytest.mark.parametrize("max_bytes", [0, 1000, 1 << 20])
def test_a_first_batch_larger_than_is_wanted_is_sent_from_the_file_too(
    tmp_path: Path, max_bytes: int
) -> None:
    directory = tmp_path / "t-0"
    log = Log.open(
        real_runtime(),
        str(directory),
        LogConfig(max_message_bytes=4 << 20),
        topic_partition=TopicPartition("t", 0),
        clean=True,
        recovery_point=0,
    )
    for _ in range(3):
        builder = BatchBuilder()
        builder.append(1_700_000_000_000, b"k", bytes(1_900_000), ())
        batch = memoryview(builder.build())
        log.append([(read_header(batch), batch)], leader_epoch=0, now_ms=1_700_000_000_000)
    for offset in (0, 1, 2):
        read = log.read(offset, max_bytes, end_offset=3, at_least_one=True, to_send=True)
        assert isinstance(read.records, memoryview)
        assert isinstance(read.records.obj, MappedRange)
        assert [header.base_offset for header, _ in split_batches(read.records)] == [offset]
        assert read.next_offset == offset + 1
    assert len(log.read(1, max_bytes, end_offset=3, to_send=True).records) == 0
    log.close()
