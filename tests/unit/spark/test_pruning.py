"""Filters make a batch read smaller, and never drop a row that they would keep."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from odradek.model.ids import TopicPartition
from odradek.records.partition import partition_of
from odradek.spark.reading.offsets import OffsetRange
from odradek.spark.reading.pruning import pruned, pruning_of

UTC = datetime.UTC


class OneRecordAMillisecond:
    """Record n was written at n ms; four partitions a topic."""

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 4)

    def offsets(self, questions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {topic: moment if moment < 100 else -1 for topic, moment in questions.items()}


def whole(partition: int = 0, topic: str = "t", start: int = 10, end: int = 100) -> OffsetRange:
    return OffsetRange(partition=TopicPartition(topic, partition), start=start, end=end)


def read(
    *filters: Filter, ranges: list[OffsetRange] | None = None, keys_choose_partitions: bool = False
) -> list[tuple[str, int, int, int]]:
    left = pruned(
        [whole()] if ranges is None else ranges,
        pruning_of(filters),
        OneRecordAMillisecond(),
        keys_choose_partitions=keys_choose_partitions,
    )
    return [(span.partition.topic, span.partition.partition, span.start, span.end) for span in left]


def at_ms(moment: float) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(milliseconds=moment)


@pytest.mark.parametrize(
    ("filters", "start", "end"),
    [
        ([GreaterThan(("offset",), 20)], 21, 100),
        ([GreaterThanOrEqual(("offset",), 20), LessThan(("offset",), 30)], 20, 30),
        ([LessThanOrEqual(("offset",), 30)], 10, 31),
        ([EqualTo(("offset",), 42)], 42, 43),
        ([In(("offset",), (42, 55, 7))], 42, 56),
        ([GreaterThan(("offset",), 5)], 10, 100),
        ([GreaterThanOrEqual(("timestamp",), at_ms(50))], 50, 100),
        ([GreaterThan(("timestamp",), at_ms(50.5))], 50, 100),
        ([EqualTo(("timestamp",), at_ms(50))], 50, 100),
        ([LessThan(("timestamp",), at_ms(50))], 10, 100),
        ([IsNotNull(("offset",))], 10, 100),
        ([Not(EqualTo(("offset",), 42))], 10, 100),
        ([EqualTo(("value", "offset"), 42)], 10, 100),
        ([GreaterThan(("offset",), 20.5)], 10, 100),
    ],
)
def test_bounds_move_start_and_end(filters: list[Filter], start: int, end: int) -> None:
    assert read(*filters) == [("t", 0, start, end)]


@pytest.mark.parametrize(
    "filters",
    [
        [GreaterThan(("offset",), 99)],
        [EqualTo(("offset",), 500)],
        [GreaterThan(("offset",), 50), LessThan(("offset",), 40)],
        [In(("offset",), ())],
        [GreaterThanOrEqual(("timestamp",), at_ms(100))],
        [EqualTo(("partition",), 1)],
        [EqualTo(("topic",), "u")],
        [EqualTo(("key",), b"a"), EqualTo(("key",), b"b")],
    ],
)
def test_what_no_record_satisfies_reads_nothing(filters: list[Filter]) -> None:
    assert read(*filters) == []


def test_partitions_and_topics_are_left_out() -> None:
    ranges = [whole(number, topic) for topic in "tu" for number in range(4)]
    chosen = read(In(("partition",), (1, 3)), EqualNullSafe(("topic",), "u"), ranges=ranges)
    assert [(topic, number) for topic, number, *_ in chosen] == [("u", 1), ("u", 3)]
    assert len(read(GreaterThan(("partition",), 1), ranges=ranges)) == 4


@pytest.mark.parametrize("key", [b"k1", "k1", bytearray(b"k1")])
def test_a_key_leads_to_one_partition_if_keys_place_records(key: object) -> None:
    ranges = [whole(number) for number in range(4)]
    only = partition_of(b"k1", 4)
    assert [
        entry[1] for entry in read(EqualTo(("key",), key), ranges=ranges, keys_choose_partitions=True)
    ] == [only]
    assert len(read(EqualTo(("key",), key), ranges=ranges)) == 4


def test_a_key_that_is_no_text_is_not_understood() -> None:
    assert pruning_of([EqualTo(("key",), (1, "a"))]).keys is None
    assert pruning_of([EqualNullSafe(("key",), None)]).keys is None


bounds = st.one_of(
    *(
        st.builds(kind, st.just(("offset",)), st.integers(-5, 120))
        for kind in (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    ),
    st.builds(In, st.just(("offset",)), st.lists(st.integers(-5, 120), max_size=4).map(tuple)),
)


def holds(record: Filter, offset: int) -> bool:
    value = record.value  # type: ignore[attr-defined]
    if isinstance(record, In):
        return offset in value
    return {
        EqualTo: offset == value,
        GreaterThan: offset > value,
        GreaterThanOrEqual: offset >= value,
        LessThan: offset < value,
        LessThanOrEqual: offset <= value,
    }[type(record)]


@given(st.lists(bounds, max_size=4))
def test_no_offset_is_lost_that_all_filters_keep(filters: list[Filter]) -> None:
    kept = {
        offset for offset in range(10, 100) if all(holds(pushed_filter, offset) for pushed_filter in filters)
    }
    left = {offset for _, _, start, end in read(*filters) for offset in range(start, end)}
    assert kept <= left <= set(range(10, 100))
