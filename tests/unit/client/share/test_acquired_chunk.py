"""One partition's part of an answer to ShareFetch: every acquired offset comes out once, as a record, a gap, or unreadable."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.share.acquired_chunk import AcquiredChunk, DeliveredRange, OffsetSpan
from odradek.client.share.share_record import SharePartitionId, ShareSource
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import BatchBuilder, assign

PARTITION = SharePartitionId("t", UUID(int=7), 0)
SOURCE = ShareSource(1, 0)


def batch(base_offset: int, *values: bytes) -> bytearray:
    builder = BatchBuilder()
    for value in values:
        builder.append(1_000, None, value, ())
    built = bytearray(builder.build())
    assign(built, base_offset, 3)
    return built


def chunk_of(records: bytes | bytearray, *acquired: tuple[int, int, int]) -> AcquiredChunk:
    ranges = [DeliveredRange(*each_range) for each_range in acquired]
    return AcquiredChunk(PARTITION, SOURCE, records, ranges, deadline=10.0, check_crcs=True)


def read(chunk: AcquiredChunk, record_count_max: int = 100) -> list[tuple[int, bytes | None, int]]:
    records = []
    while taken := chunk.next_records(record_count_max):
        records += [(record.offset, record.value, count) for record, count in taken]
    return records


def test_only_what_was_acquired_comes_out_with_its_delivery_count() -> None:
    data = batch(10, b"a", b"b", b"c") + batch(13, b"d", b"e")
    chunk = chunk_of(data, (11, 11, 1), (13, 14, 3))
    assert read(chunk) == [(11, b"b", 1), (13, b"d", 3), (14, b"e", 3)]
    assert (chunk.gaps, chunk.unreadable, chunk.is_empty) == ([], [], True)


def test_offsets_without_a_record_are_gaps() -> None:
    chunk = chunk_of(batch(10, b"a"), (8, 12, 2))
    assert read(chunk) == [(10, b"a", 2)]
    assert chunk.gaps == [OffsetSpan(8, 9), OffsetSpan(11, 12)]


def test_acquired_offsets_of_an_answer_without_records_are_gaps_however_many() -> None:
    chunk = chunk_of(b"", (5, 1 << 60, 1))
    assert (read(chunk), chunk.gaps, chunk.is_empty) == ([], [OffsetSpan(5, 1 << 60)], True)


def test_what_is_put_back_comes_again_in_order() -> None:
    chunk = chunk_of(batch(0, b"a", b"b", b"c"), (0, 2, 1))
    taken = chunk.next_records(3)
    chunk.put_back(taken[1:])
    assert read(chunk) == [(1, b"b", 1), (2, b"c", 1)]


def test_a_damaged_batch_is_reported_once_and_the_next_one_is_read() -> None:
    damaged = batch(0, b"a", b"b")
    damaged[-1] ^= 1
    chunk = chunk_of(damaged + batch(2, b"c"), (1, 2, 1))
    with pytest.raises(KafkaError, match=r"t-0: the batch at offset 0 cannot be read.*released") as error:
        chunk.next_records(10)
    assert error.value.code is ErrorCode.CORRUPT_MESSAGE
    assert chunk.unreadable == [OffsetSpan(1, 1)]
    assert read(chunk) == [(2, b"c", 1)]


def test_ranges_that_overlap_return_no_record_twice() -> None:
    chunk = chunk_of(batch(0, b"a", b"b", b"c"), (1, 2, 4), (0, 1, 2))
    assert read(chunk) == [(0, b"a", 2), (1, b"b", 2), (2, b"c", 4)]


RANGES = st.lists(st.tuples(st.integers(0, 25), st.integers(0, 6)), max_size=6)
BATCHES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=5)


@given(spans=RANGES, layout=BATCHES, step=st.integers(1, 5))
def test_every_acquired_offset_comes_out_exactly_once(
    spans: Sequence[tuple[int, int]], layout: Sequence[tuple[int, int]], step: int
) -> None:
    data, offset, present = bytearray(), 0, set()
    for hole, count in layout:
        offset += hole
        data += batch(offset, *([b"v"] * count))
        present |= set(range(offset, offset + count))
        offset += count
    acquired = {number for first, more in spans for number in range(first, first + more + 1)}
    chunk = chunk_of(data, *((first, first + more, 1) for first, more in spans))
    offsets = [number for number, _, _ in read(chunk, step)]
    gaps = [number for first, last in chunk.gaps for number in range(first, last + 1)]
    assert offsets == sorted(acquired & present)
    assert sorted(gaps) == sorted(acquired - present)
    assert chunk.is_empty
