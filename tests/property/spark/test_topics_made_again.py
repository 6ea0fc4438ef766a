"""A stream over topics that are deleted and made again: every record of the topic that lives is read once.

The model is the list of records in each log of now. Offsets go through JSON and a new planner, as after a restart.
"""

from __future__ import annotations

import json
import logging
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.spark.logs import FIRST_ID, Logs

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options
from odradek.spark.reading.batch import plan_batch
from odradek.spark.reading.offsets import StreamOffset, from_document, ranges_between, to_document
from odradek.spark.reading.progress import StreamProgress

SECOND_ID = UUID(int=2)
A = TopicPartition("t", 0)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 20)),
        st.tuples(st.just("make_again"), st.integers(1, 3)),
        st.tuples(st.sampled_from(["batch", "batch", "restart", "delete"])),
    ),
    max_size=14,
)


class Still:
    """A clock that does not move, and a pause that does not wait."""

    def monotonic(self) -> float:
        return 100.0

    def wall_ms(self) -> int:
        return 100_000

    def pause(self, seconds: float) -> None:
        """Nothing happens meanwhile."""


class Stream:
    """A query, and the records that it has read of the topic that lives."""

    def __init__(self, *, limit: int | None = None, **options: str) -> None:
        self.logs = Logs({A: (0, 0)})
        self._limit = limit
        self._options = options
        self._life = 1
        self.read: list[tuple[int, TopicPartition, int]] = []
        self.restart()
        self.offset = self.journaled(self._progress.initial())

    def append(self, number: int, count: int) -> None:
        partition = TopicPartition("t", number)
        if partition in self.logs.spans:
            self.logs.spans[partition] = (0, self.logs.spans[partition][1] + count)

    def delete(self) -> None:
        self._life += 1  # no topic lives: nothing is wanted, and what was read before no longer counts
        self.logs.spans = {}

    def make_again(self, partitions: int) -> None:
        self._life += 1
        self.logs.ids["t"] = UUID(int=self._life)
        self.logs.spans = {TopicPartition("t", number): (0, 0) for number in range(partitions)}

    def restart(self) -> None:
        clock = Still()
        given = {
            "kafka.bootstrap.servers": "h:1",
            "subscribe": "t",
            "startingOffsets": "earliest",
            "partitionDiscoveryIntervalMs": "0",
            "offsetPollIntervalMs": "0",
            "failOnDataLoss": "false",
            **self._options,
        }
        self._progress = StreamProgress(read_options(given, Use.STREAM_READ), self.logs, clock, clock.pause)

    def batch(self) -> None:
        end = self.journaled(self._progress.latest(self.offset, self._limit))
        if end == self.offset:
            return  # Spark runs no batch
        for extent in ranges_between(self.offset, end):
            assert extent.topic_id == self.logs.ids.get("t", FIRST_ID)
            self.read += [(self._life, extent.partition, at) for at in range(extent.start, extent.end)]
        self.offset = end

    @staticmethod
    def journaled(offset: StreamOffset) -> StreamOffset:
        return from_document(json.loads(json.dumps(to_document(offset))))

    def check(self) -> None:
        wanted = [
            (self._life, partition, at)
            for partition, (_, end) in self.logs.spans.items()
            for at in range(end)
        ]
        read = [at for at in self.read if at[0] == self._life]
        assert sorted(read) == sorted(wanted)


@given(steps=STEPS, limit=st.sampled_from([None, 1, 7]))
@example(steps=[("append", 0, 10), ("batch",), ("make_again", 1), ("append", 0, 14)], limit=None)
@example(steps=[("append", 0, 10), ("batch",), ("make_again", 1), ("append", 0, 4)], limit=None)
@example(
    steps=[("append", 0, 10), ("batch",), ("delete",), ("batch",), ("make_again", 2), ("append", 1, 20)],
    limit=7,
)
@example(steps=[("append", 0, 1), ("batch",), ("delete",)], limit=None)
def test_every_record_of_the_topic_that_lives_is_read_once(
    steps: list[tuple[Any, ...]], limit: int | None
) -> None:
    stream = Stream(limit=limit)
    for name, *arguments in steps:
        getattr(stream, name)(*arguments)
    for _ in range(200):
        before = stream.offset
        stream.batch()
        if stream.offset == before:
            break
    stream.check()


def test_a_topic_that_was_made_again_fails_the_query_with_both_ids_unless_it_may_lose_data() -> None:
    stream = Stream(failOnDataLoss="true")
    stream.append(0, 10)
    stream.batch()
    stream.make_again(1)
    stream.append(0, 14)
    with pytest.raises(
        KafkaError, match=f"'t' was deleted and made again.*{FIRST_ID}.*{SECOND_ID}"
    ) as refused:
        stream.batch()
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_it_is_said_once_that_a_topic_was_made_again(caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream()
    stream.append(0, 10)
    stream.batch()
    stream.make_again(1)
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        stream.batch()
        stream.batch()
    assert [record.message.count("made again") for record in caplog.records] == [1]


def test_a_checkpoint_of_a_former_version_goes_on_and_learns_the_ids() -> None:
    stream = Stream()
    stream.append(0, 10)
    stream.offset = from_document({"t": {"0": 4}})
    stream.batch()
    assert to_document(stream.offset) == {"t": {"0": 10}, "@ids": {"t": str(FIRST_ID)}}
    assert [at for _, _, at in stream.read] == [4, 5, 6, 7, 8, 9]


def test_a_checkpoint_of_a_former_version_is_tied_to_the_topic_that_the_query_saw_first() -> None:
    stream = Stream()
    stream.append(0, 10)
    stream.offset = from_document({"t": {"0": 10}})
    stream.batch()
    stream.make_again(1)
    stream.append(0, 14)
    stream.batch()
    stream.check()


@given(committed=st.integers(0, 30), end=st.integers(0, 30), is_of_now=st.booleans())
@example(committed=10, end=14, is_of_now=False)
def test_a_groups_offset_of_a_topic_that_was_made_again_is_no_place_to_start_at(
    committed: int, end: int, is_of_now: bool
) -> None:
    logs = Logs({A: (0, end), TopicPartition("u", 0): (0, 1)}, ids={"t": SECOND_ID})
    logs.groups = {"g": {A: committed, TopicPartition("u", 0): 1}}
    logs.group_ids = {"t": SECOND_ID if is_of_now else FIRST_ID}
    given = {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "t,u",
        "startingOffsets": "group:g",
        "failOnDataLoss": "false",
    }
    clock = Still()
    stream = StreamProgress(read_options(given, Use.STREAM_READ), logs, clock, clock.pause).initial()
    wanted = min(committed, end) if is_of_now else 0
    assert stream.next_offsets[A] == wanted
    extents = plan_batch(read_options(given, Use.BATCH_READ), logs)
    assert [(extent.partition, extent.start) for extent in extents] == ([(A, wanted)] if wanted < end else [])
