"""What a stream journals, and the ranges that two journaled offsets mean."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.spark.reading.offsets import (
    OffsetRange,
    StreamOffset,
    from_document,
    ranges_between,
    to_document,
)

A, B, C = TopicPartition("a", 0), TopicPartition("a", 10), TopicPartition("b", 2)
offset_maps = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b", "c.d-e_f"]), st.integers(0, 20)),
    st.integers(0, 2**63 - 1),
)


def test_the_document_is_that_of_sparks_kafka_connector() -> None:
    document = to_document(StreamOffset(next_offsets={C: 3, B: 2, A: 1}))
    assert json.dumps(document) == '{"a": {"0": 1, "10": 2}, "b": {"2": 3}}'


@settings(deadline=None, max_examples=50)
@given(offset_maps, offset_maps)
def test_what_was_journaled_comes_back(
    next_offsets: dict[TopicPartition, int], begins: dict[TopicPartition, int]
) -> None:
    offset = StreamOffset(next_offsets=next_offsets, beginnings=begins)
    assert from_document(json.loads(json.dumps(to_document(offset)))) == offset


@pytest.mark.parametrize("document", [{"a": 1}, {"a": {"x": 1}}, {"a": {"0": None}}, {"@from": 3}])
def test_the_offset_of_another_source_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="another source"):
        from_document(document)


def test_a_batch_reads_from_where_the_one_before_it_ended() -> None:
    start, end = StreamOffset(next_offsets={A: 5, C: 9}), StreamOffset(next_offsets={A: 8, C: 9})
    assert ranges_between(start, end) == [OffsetRange(partition=A, start=5, end=8)]


def test_a_partition_without_an_offset_is_read_from_its_first_offset() -> None:
    end = StreamOffset(next_offsets={A: 8})
    assert ranges_between(StreamOffset(next_offsets={}), end) == [OffsetRange(partition=A, start=0, end=8)]


def test_a_journaled_beginning_wins_over_an_initial_offset_that_moved_on() -> None:
    end = StreamOffset(next_offsets={A: 8}, beginnings={A: 5})
    moved = StreamOffset(next_offsets={A: 100})
    assert ranges_between(moved, end) == [OffsetRange(partition=A, start=5, end=8)]


def test_a_log_that_became_shorter_has_nothing_to_read() -> None:
    assert ranges_between(StreamOffset(next_offsets={A: 8}), StreamOffset(next_offsets={A: 3})) == []
