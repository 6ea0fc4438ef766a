"""Which batches may be committed: those that continue the archive, once."""

from __future__ import annotations

import pytest

from odradek.archive.store.values import ArchiveError, ArchiveState, BatchId, DataFile, NewBatch
from odradek.archive.tables.admission import is_new
from odradek.model.ids import TopicPartition
from odradek.spark.reading.offsets import OffsetRange

ONE, TWO = TopicPartition("t", 1), TopicPartition("t", 2)


def extent(partition: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(partition=partition, start=start, end=end)


def batch(
    *ranges: OffsetRange, number: int = 7, query: str = "q", files: tuple[DataFile, ...] = ()
) -> NewBatch:
    return NewBatch(id=BatchId(sink="s", query=query, batch=number), files=files, ranges=ranges)


def state(positions: dict[TopicPartition, int], **batches: int) -> ArchiveState:
    return ArchiveState(
        version=1,
        archived={partition: extent(partition, 0, end) for partition, end in positions.items()},
        batches={("s", query): number for query, number in batches.items()},
    )


def test_what_continues_the_archive_is_new() -> None:
    assert is_new(batch(extent(ONE, 10, 20), extent(TWO, 0, 5)), state({ONE: 10}))


def test_a_partition_that_the_archive_does_not_know_may_begin_anywhere() -> None:
    assert is_new(batch(extent(ONE, 500, 600)), state({}))


@pytest.mark.parametrize("last", [7, 8])
def test_a_batch_that_is_named_in_the_archive_is_not_new(last: int) -> None:
    assert not is_new(batch(extent(ONE, 10, 20)), state({ONE: 20}, q=last))


def test_offsets_that_another_query_has_archived_are_not_new() -> None:
    assert not is_new(batch(extent(ONE, 10, 20), number=0, query="fresh"), state({ONE: 20}, q=7))


def test_a_batch_without_offsets_is_not_new() -> None:
    assert not is_new(batch(), state({ONE: 20}))
    assert not is_new(batch(extent(ONE, 20, 20)), state({ONE: 20}))


def test_a_batch_that_would_double_records_is_refused_with_its_offsets() -> None:
    with pytest.raises(
        ArchiveError, match=r"offsets 15 to 24 of t-1, but the archive has everything below 20"
    ):
        is_new(batch(extent(ONE, 15, 25)), state({ONE: 20}))


def test_a_batch_that_is_new_in_one_partition_only_is_refused() -> None:
    with pytest.raises(ArchiveError, match="twice"):
        is_new(batch(extent(ONE, 10, 20), extent(TWO, 0, 5)), state({ONE: 20, TWO: 0}))


def test_a_gap_is_refused_with_its_offsets() -> None:
    with pytest.raises(ArchiveError, match=r"offsets 20 to 29 would be missing"):
        is_new(batch(extent(ONE, 30, 40)), state({ONE: 20}))


def test_a_gap_that_the_user_knows_of_is_left() -> None:
    assert is_new(batch(extent(ONE, 30, 40)), state({ONE: 20}), leaving_gaps=True)
    with pytest.raises(ArchiveError, match="twice"):
        is_new(batch(extent(ONE, 15, 40)), state({ONE: 20}), leaving_gaps=True)


@pytest.mark.parametrize("rows", [extent(ONE, 9, 12), extent(ONE, 12, 21), extent(TWO, 12, 13)])
def test_rows_that_the_batch_has_not_read_are_refused(rows: OffsetRange) -> None:
    file = DataFile(path="f", size_bytes=1, row_count=1, ranges=(rows,))
    with pytest.raises(ArchiveError, match="which the batch has not read"):
        is_new(batch(extent(ONE, 10, 20), files=(file,)), state({ONE: 10}))
    with pytest.raises(ArchiveError, match="which the batch has not read"):
        is_new(batch(files=(file,)), state({ONE: 10}))


@pytest.mark.parametrize("leaving_gaps", [False, True])
def test_a_batch_that_comes_again_with_more_offsets_is_refused(leaving_gaps: bool) -> None:
    with pytest.raises(ArchiveError, match="but not up to offset 24 of"):
        is_new(batch(extent(ONE, 10, 25)), state({ONE: 20}, q=7), leaving_gaps=leaving_gaps)
