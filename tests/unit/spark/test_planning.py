"""Sharing a limit fairly, and cutting ranges into tasks, without losing or repeating a record."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.model.ids import TopicPartition
from odradek.spark.reading.offsets import OffsetRange
from odradek.spark.reading.planning import advance, grouped, lost_records, share, split

A, B, C = (TopicPartition("t", number) for number in range(3))
partitions = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 5))
backlogs = st.dictionaries(partitions, st.integers(0, 10_000))


@settings(deadline=None, max_examples=200)
@given(backlogs, st.integers(1, 5_000))
def test_shares_add_up_to_the_limit_and_none_exceeds_its_backlog(
    backlog: dict[TopicPartition, int], limit: int
) -> None:
    shares = share(backlog, limit)
    assert sum(shares.values()) == min(limit, sum(backlog.values()))
    assert all(0 < size <= backlog[partition] for partition, size in shares.items())


@settings(deadline=None, max_examples=100)
@given(backlogs, st.integers(12, 5_000))
def test_nothing_that_waits_starves(backlog: dict[TopicPartition, int], limit: int) -> None:
    assert set(share(backlog, limit)) == {partition for partition, size in backlog.items() if size > 0}


def test_after_one_record_each_shares_follow_the_backlog() -> None:
    assert share({A: 9_001, B: 1_001}, 102) == {A: 91, B: 11}


def test_without_a_limit_a_batch_takes_everything() -> None:
    assert advance({A: 5}, {A: 50, B: 7}, None) == {A: 50, B: 7}


def test_partitions_take_turns_when_the_limit_is_below_one_each() -> None:
    ends, available = {A: 0, B: 0, C: 0}, {A: 9, B: 9, C: 9}
    for _ in range(6):
        ends = advance(ends, available, 1)
    assert ends == {A: 2, B: 2, C: 2}


def test_batch_after_batch_the_whole_backlog_is_read() -> None:
    ends, available = {A: 3}, {A: 100, B: 1, C: 0}
    for _ in range(10):
        ends = advance(ends, available, 10)
    assert ends == {A: 100, B: 1}


def test_a_shorter_log_sends_the_stream_back_to_its_end() -> None:
    assert advance({A: 50, B: 2}, {A: 10, B: 4}, None) == {A: 10, B: 4}


def test_a_vanished_partition_stays_where_it_was() -> None:
    assert advance({A: 50, B: 2}, {B: 4}, None) == {A: 50, B: 4}


def whole(start: int, end: int, partition: TopicPartition = A) -> OffsetRange:
    return OffsetRange(partition=partition, start=start, end=end)


def test_ranges_stay_whole_unless_more_tasks_are_wanted() -> None:
    ranges = [whole(0, 100), whole(5, 10, B)]
    assert split(ranges, min_tasks=None, max_records_per_task=None) == ranges
    assert split(ranges, min_tasks=2, max_records_per_task=None) == ranges


def test_the_largest_range_is_cut_first() -> None:
    pieces = split([whole(0, 100), whole(5, 10, B)], min_tasks=4, max_records_per_task=None)
    assert pieces == [whole(0, 33), whole(33, 66), whole(66, 100), whole(5, 10, B)]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 300)), max_size=5),
    st.one_of(st.none(), st.integers(1, 50)),
    st.one_of(st.none(), st.integers(1, 50)),
)
def test_pieces_cover_every_offset_once(
    spans: list[tuple[int, int]], min_tasks: int | None, most: int | None
) -> None:
    ranges = [whole(start, start + size, TopicPartition("t", n)) for n, (start, size) in enumerate(spans)]
    pieces = split(ranges, min_tasks=min_tasks, max_records_per_task=most)

    def offsets(of: list[OffsetRange]) -> list[tuple[TopicPartition, int]]:
        return [(span.partition, offset) for span in of for offset in range(span.start, span.end)]

    assert offsets(pieces) == offsets(ranges)
    assert all(0 < span.size <= (most or span.size) for span in pieces)
    assert len(pieces) >= min(min_tasks or 0, len(offsets(ranges)))


def test_small_partitions_share_a_task() -> None:
    pieces = [whole(0, 100), whole(5, 10, B), whole(0, 20, C)]
    assert grouped(pieces, max_tasks=None, max_records_per_task=None) == [(span,) for span in pieces]
    assert grouped(pieces, max_tasks=2, max_records_per_task=None) == [
        (whole(0, 100),),
        (whole(5, 10, B), whole(0, 20, C)),
    ]
    assert grouped(pieces, max_tasks=1, max_records_per_task=None) == [tuple(pieces)]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(0, 300), max_size=8),
    st.one_of(st.none(), st.integers(1, 6)),
    st.one_of(st.none(), st.integers(1, 50)),
    st.one_of(st.none(), st.integers(1, 6)),
)
def test_tasks_have_each_piece_once_and_no_partition_twice(
    sizes: list[int], min_tasks: int | None, most: int | None, max_tasks: int | None
) -> None:
    ranges = [whole(0, size, TopicPartition("t", number)) for number, size in enumerate(sizes)]
    pieces = split(ranges, min_tasks=min_tasks, max_records_per_task=most)
    tasks = grouped(pieces, max_tasks=max_tasks, max_records_per_task=most)

    def place(piece: OffsetRange) -> tuple[TopicPartition, int]:
        return piece.partition, piece.start

    assert sorted((span for task in tasks for span in task), key=place) == sorted(pieces, key=place)
    assert all(len({span.partition for span in task}) == len(task) > 0 for task in tasks)
    assert all(sum(span.size for span in task) <= (most or 10**9) for task in tasks)
    if max_tasks is not None and most is None and min_tasks is None:
        assert len(tasks) <= max_tasks


def test_every_way_of_losing_records_is_reported() -> None:
    losses = lost_records({A: 5, B: 50, C: 7}, {A: 9, B: 0}, {A: 20, B: 10})
    assert losses == [
        "t-0 now begins at offset 9, after offset 5",
        "t-1 ends at offset 10, before offset 50",
        "t-2 no longer exists, or is no longer among what is read (offset 7 was next)",
    ]
    assert lost_records({A: 5}, {A: 5}, {A: 5}) == []
