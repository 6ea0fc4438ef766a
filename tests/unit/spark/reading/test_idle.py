"""Queries that have read everything wait for records, on one look at the brokers for all of them."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import pytest
from tests.unit.spark.logs import FIRST_ID, Logs

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.real import SystemClock
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options
from odradek.spark.options.positions import LATEST
from odradek.spark.reading import idle
from odradek.spark.reading.idle import (
    SHAPES_EVERY_LOOKS,
    EndsWatch,
    IdleWait,
    IdleWaits,
    QueryEnds,
    TopicShape,
)
from odradek.spark.reading.offsets import StreamOffset
from odradek.spark.reading.progress import StreamProgress

A, B = TopicPartition("t", 0), TopicPartition("u", 0)
LONG_S = 60.0
SHAPE = TopicShape(topic_id=FIRST_ID, partition_count=1)
LATER_ID = UUID(int=2)
MADE_AGAIN = TopicShape(topic_id=LATER_ID, partition_count=1)


@dataclass
class SteppedLogs(Logs):
    """Logs whose every look at ends waits until the test allows it. `asked`: the partitions of each look."""

    asked: list[set[TopicPartition]] = field(default_factory=list)
    is_down: bool = False

    def offsets(self, questions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.asked.append(set(questions))
        if self.is_down:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "no broker answers")
        return super().offsets(questions)


@dataclass
class Steps:
    """The pauses between looks: each ends when the test says so."""

    allowed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def pause(self, seconds: float) -> None:
        self.begun.release()
        assert self.allowed.acquire(timeout=LONG_S)

    def look_until(self, holds: Callable[[], bool]) -> None:
        """Lets the first looks happen: threads that are to wait may begin late."""
        assert self.begun.acquire(timeout=LONG_S)
        for _ in range(10_000):
            self.look()
            if holds():
                return
        raise AssertionError("those that wait have not begun")

    def look(self) -> None:
        """Lets one look happen, and returns when the pause after it has begun."""
        self.allowed.release()
        assert self.begun.acquire(timeout=LONG_S)

    def end(self) -> None:
        """Lets the last pause end, when nothing waits any more."""
        self.allowed.release()


def waiting(
    watch: EndsWatch, known: dict[TopicPartition, int], shapes: Sequence[tuple[str, TopicShape]] = ()
) -> threading.Thread:
    thread = threading.Thread(target=watch.wait, args=(known, LONG_S, shapes))
    thread.start()
    return thread


def test_one_look_is_for_all_that_wait_and_wakes_those_whose_topics_moved() -> None:
    logs, steps = SteppedLogs({A: (0, 5), B: (0, 7)}), Steps()
    watch = EndsWatch(logs, steps.pause)
    first, second = waiting(watch, {A: 5}), waiting(watch, {B: 7})
    steps.look_until(lambda: logs.asked[-1] == {A, B})
    logs.spans[A] = (0, 6)
    steps.look()
    first.join(LONG_S)
    assert not first.is_alive()
    assert second.is_alive()
    logs.spans[B] = (0, 8)
    steps.look()
    second.join(LONG_S)
    assert not second.is_alive()
    steps.end()
    assert {A, B} in logs.asked, "both have waited at the same time"
    assert logs.asked[-1] == {B}


def test_a_partition_that_is_gone_and_a_broker_that_does_not_answer_end_the_wait() -> None:
    logs, steps = SteppedLogs({A: (0, 5), B: (0, 7)}), Steps()
    watch = EndsWatch(logs, steps.pause)
    first, second = waiting(watch, {A: 5}), waiting(watch, {B: 7})
    steps.look_until(lambda: logs.asked[-1] == {A, B})
    del logs.spans[A]
    steps.look()
    first.join(LONG_S)
    assert not first.is_alive()
    assert second.is_alive()
    logs.is_down = True
    steps.look()
    second.join(LONG_S)
    assert not second.is_alive()
    steps.end()


def test_a_wait_ends_when_its_time_is_up() -> None:
    watch = EndsWatch(Logs({A: (0, 5)}), time.sleep)
    began = time.monotonic()
    watch.wait({A: 5}, 0.01)
    assert time.monotonic() - began >= 0.01, "nothing has moved: it waits for all of its time"


def test_what_one_source_has_not_seen_keeps_the_others_of_its_query_from_waiting() -> None:
    class Source:
        pass

    ends, mine, other = QueryEnds(), Source(), Source()
    ends.note(mine, {A: 5, B: 3}, {"t": SHAPE, "u": SHAPE})
    ends.note(other, {B: 2}, {"u": MADE_AGAIN})
    assert ends.known() == {A: 5, B: 2}
    assert sorted(ends.shapes(), key=repr) == sorted(
        [("t", SHAPE), ("u", SHAPE), ("u", MADE_AGAIN)], key=repr
    ), "a wait of either source ends when its own view of the topic is old"
    del other
    gc.collect()
    assert ends.known() == {A: 5, B: 3}
    assert ends.shapes() == [("t", SHAPE), ("u", SHAPE)]


@pytest.mark.parametrize("change", ["partitions", "made again"])
def test_a_topic_with_another_shape_ends_the_wait_though_its_known_partitions_end_where_they_did(
    change: str,
) -> None:
    logs, steps = SteppedLogs({A: (0, 5), B: (0, 7)}), Steps()
    watch = EndsWatch(logs, steps.pause)
    first, second = waiting(watch, {A: 5}, [("t", SHAPE)]), waiting(watch, {B: 7}, [("u", SHAPE)])
    steps.look_until(lambda: logs.asked[-1] == {A, B})
    if change == "partitions":
        logs.spans[TopicPartition("t", 1)] = (0, 0)
    else:
        logs.ids["t"] = LATER_ID
    for _ in range(SHAPES_EVERY_LOOKS):
        steps.look()
    first.join(LONG_S)
    assert not first.is_alive()
    for _ in range(SHAPES_EVERY_LOOKS):
        steps.look()
    assert second.is_alive(), "its topic is as it was"
    logs.spans[B] = (0, 8)
    steps.look()
    second.join(LONG_S)
    steps.end()


def test_a_query_of_partitions_that_it_names_does_not_wake_for_others() -> None:
    assert TopicShape(topic_id=FIRST_ID, partition_count=None).is_still(SHAPE)
    assert not TopicShape(topic_id=FIRST_ID, partition_count=None).is_still(MADE_AGAIN)
    for option, count in (("subscribe", 2), ("assign", None)):
        topics = {"subscribe": "t"} if option == "subscribe" else {"assign": '{"t": [1]}'}
        logs = Logs({A: (0, 5), TopicPartition("t", 1): (0, 5)})
        progress, watch = idle_stream(logs, **topics)
        start = StreamOffset(
            next_offsets={at: 5 for at in logs.spans if count or at.partition}, topic_ids={"t": FIRST_ID}
        )
        for _ in range(2):
            progress.latest(start, None)
        assert watch.shapes == [[("t", TopicShape(topic_id=FIRST_ID, partition_count=count))]]


def test_sources_share_a_watch_by_cluster_and_ends_by_query() -> None:
    waits = IdleWaits(lambda client: EndsWatch(Logs({}), lambda seconds: None))
    here, there = {"bootstrap.servers": "a:1"}, {"bootstrap.servers": "b:1"}
    first, second = waits.of(here, "q", 1.0), waits.of(here, "q", 1.0)
    assert first.ends is second.ends
    assert first.watch is second.watch
    assert waits.of(here, "r", 1.0).ends is not first.ends
    assert waits.of(here, None, 1.0).ends is not waits.of(here, None, 1.0).ends
    elsewhere = waits.of(there, "q", 1.0)
    assert elsewhere.watch is not first.watch
    assert elsewhere.ends is not first.ends


def test_sources_that_begin_at_once_share_the_waits_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources of a query with waits of their own would not wake for each other's records."""

    class SlowWaits(IdleWaits):
        def __init__(self, watch_of: Callable[[Mapping[str, str]], EndsWatch]) -> None:
            time.sleep(0.02)
            super().__init__(watch_of)

    monkeypatch.setattr(idle, "IdleWaits", SlowWaits)
    monkeypatch.setattr(idle, "PROCESS_WAITS", [])
    together, waits = threading.Barrier(8), list[IdleWaits]()

    def watch_of(client: Mapping[str, str]) -> EndsWatch:
        return EndsWatch(Logs({}), lambda seconds: None)

    def begin() -> None:
        together.wait(LONG_S)
        waits.append(idle.waits_of_process(watch_of))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert len(waits) == 8
    assert len(set(map(id, waits))) == 1


@dataclass
class CountedWatch(EndsWatch):
    """Counts waits, and writes a record during each."""

    logs: Logs
    brings_ends: bool = False
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """What the last look has seen."""
    known: list[dict[TopicPartition, int]] = field(default_factory=list)
    shapes: list[list[tuple[str, TopicShape]]] = field(default_factory=list)

    def recent(self) -> Mapping[TopicPartition, int]:
        return self.ends

    def wait(
        self,
        known: Mapping[TopicPartition, int],
        timeout_s: float,
        shapes: Sequence[tuple[str, TopicShape]] = (),
    ) -> Mapping[TopicPartition, int] | None:
        self.known.append(dict(known))
        self.shapes.append(list(shapes))
        start, end = self.logs.spans[A]
        self.logs.spans[A] = (start, end + 1)
        return self.logs.offsets(dict.fromkeys(known, LATEST)) if self.brings_ends else None


def idle_stream(logs: Logs, **options: str) -> tuple[StreamProgress, CountedWatch]:
    topics = {} if {"assign", "subscribePattern"} & set(options) else {"subscribe": "t"}
    given = {"kafka.bootstrap.servers": "h:1", "offsetPollIntervalMs": "0", **topics, **options}
    watch = CountedWatch(logs)
    wait = IdleWait(watch=watch, ends=QueryEnds(), wait_s=1.0)
    clock = SystemClock()
    return StreamProgress(
        read_options(given, Use.STREAM_READ), logs, clock, lambda seconds: None, wait
    ), watch


def at(offset: int) -> StreamOffset:
    return StreamOffset(next_offsets={A: offset}, topic_ids={"t": FIRST_ID})


def test_the_second_look_that_finds_nothing_waits_and_returns_what_came() -> None:
    logs = Logs({A: (0, 5)})
    progress, watch = idle_stream(logs)
    assert progress.latest(at(3), None).next_offsets == {A: 5}
    assert progress.latest(at(5), None) == at(5)  # a trigger without data may have other work to do
    assert not watch.known
    assert progress.latest(at(5), None).next_offsets == {A: 6}
    assert watch.known == [{A: 5}]


def test_a_source_takes_the_ends_that_the_look_of_all_has_seen_and_asks_no_broker() -> None:
    logs = Logs({A: (0, 5)})
    progress, watch = idle_stream(logs)
    watch.brings_ends = True
    assert progress.latest(at(5), None) == at(5)
    looks = logs.look_count
    assert progress.latest(at(5), None).next_offsets == {A: 6}
    assert logs.look_count == looks + 1, "the look of the watch, and none of its own"
    watch.ends = {A: 5}
    logs.spans[A] = (0, 7)
    assert progress.latest(at(6), None).next_offsets == {A: 7}, "an older look proves nothing: it asks"
    assert logs.look_count == looks + 2
    watch.ends = {A: 7}
    assert progress.latest(at(7), None) == at(7)
    assert logs.look_count == looks + 2, "the last look of the watch has seen that nothing is new"


@pytest.mark.parametrize(
    ("options", "coming"),
    [
        ({"subscribePattern": "t.*"}, TopicPartition("t2", 0)),
        ({"subscribe": "t,later"}, TopicPartition("later", 0)),
        ({"assign": '{"t": [0, 1]}'}, TopicPartition("t", 1)),
    ],
)
def test_a_source_asks_itself_where_topics_may_have_come_that_it_reads(
    options: dict[str, str], coming: TopicPartition
) -> None:
    logs = Logs({A: (0, 5)})
    progress, watch = idle_stream(logs, partitionDiscoveryIntervalMs="0", **options)
    watch.brings_ends = True
    assert progress.latest(at(5), None) == at(5)
    logs.spans[coming] = (0, 2)
    assert progress.latest(at(5), None).next_offsets == {A: 6, coming: 2}


def test_an_end_before_the_start_is_asked_for_again_and_not_believed() -> None:
    logs = Logs({A: (0, 5)})
    progress, watch = idle_stream(logs)
    watch.brings_ends = True
    assert progress.latest(at(5), None) == at(5)
    logs.lag_looks[A] = [3]  # the look of the watch meets a new leader that lags
    assert progress.latest(at(5), None).next_offsets == {A: 6}


@pytest.mark.parametrize("change", ["records", "made again", "partitions"])
def test_a_look_hands_out_ends_only_of_topics_that_are_still_the_same(change: str) -> None:
    logs, steps = SteppedLogs({A: (0, 5)}), Steps()
    watch, seen = EndsWatch(logs, steps.pause), list[Mapping[TopicPartition, int] | None]()
    thread = threading.Thread(target=lambda: seen.append(watch.wait({A: 5}, LONG_S, [("t", SHAPE)])))
    thread.start()
    steps.look_until(lambda: bool(logs.asked))
    assert watch.recent() == {A: 5}
    logs.spans[A] = (0, 6)
    if change == "made again":
        logs.ids["t"] = LATER_ID
    if change == "partitions":
        logs.spans[TopicPartition("t", 1)] = (0, 0)
    steps.look()
    thread.join(LONG_S)
    assert seen == [{A: 6} if change == "records" else None]
    steps.end()


def test_a_look_that_fails_leaves_nothing_to_believe() -> None:
    logs, steps = SteppedLogs({A: (0, 5)}), Steps()
    watch = EndsWatch(logs, steps.pause)
    thread = waiting(watch, {A: 5}, [("t", SHAPE)])
    steps.look_until(lambda: bool(logs.asked))
    logs.is_down = True
    steps.look()
    thread.join(LONG_S)
    assert watch.recent() == {}
    steps.end()


def test_a_look_that_fails_for_a_reason_of_ours_wakes_all_and_does_not_end_the_looks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class BrokenLogs(SteppedLogs):
        def offsets(self, questions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
            if self.is_down:
                raise ZeroDivisionError
            return super().offsets(questions)

    logs, steps = BrokenLogs({A: (0, 5)}), Steps()
    watch = EndsWatch(logs, steps.pause)
    first = waiting(watch, {A: 5})
    steps.look_until(lambda: bool(logs.asked))
    logs.is_down = True
    steps.look()
    first.join(LONG_S)
    assert watch.recent() == {}
    assert "ZeroDivisionError" in caplog.text
    logs.is_down = False
    second = waiting(watch, {A: 4})
    steps.look()
    second.join(LONG_S)
    assert not second.is_alive()
    steps.end()


def test_no_wait_where_time_itself_ends_a_batch() -> None:
    logs = Logs({A: (0, 5)})
    progress, watch = idle_stream(logs, minOffsetsPerTrigger="10")
    for _ in range(3):
        progress.latest(at(4), None)
    progress, watch = idle_stream(logs)
    progress.prepare_available_now()
    for _ in range(3):
        progress.latest(at(5), None)
    assert not watch.known


class BlockingWatch(EndsWatch):
    """A wait that nothing would end but its time fails the test where a source has something to read."""

    def __init__(self, query: JoiningQuery) -> None:
        super().__init__(query.logs, lambda seconds: None)
        self.query = query
        self.wait_count = 0

    def wait(
        self,
        known: Mapping[TopicPartition, int],
        timeout_s: float,
        shapes: Sequence[tuple[str, TopicShape]] = (),
    ) -> Mapping[TopicPartition, int] | None:
        self.wait_count += 1
        unread = {at for at, (_, end) in self.query.logs.spans.items() if self.query.read[at] < end}
        moved = {at for at, end in known.items() if self.query.logs.spans[at][1] != end}
        assert moved or not unread, f"{unread} waits until {timeout_s} s are over"
        self.query.write()
        return None


class JoiningQuery:
    """A query of several sources, as Spark runs it: each trigger asks all of them, and then reads what they have."""

    def __init__(self, random: Random) -> None:
        self.partitions = [TopicPartition(topic, 0) for topic in "tuv"]
        self.logs = Logs(dict.fromkeys(self.partitions, (0, 0)))
        self.read = dict.fromkeys(self.partitions, 0)
        self.random = random
        self.watch = BlockingWatch(self)
        ends = QueryEnds()
        self.sources = {
            partition: StreamProgress(
                read_options(
                    {
                        "kafka.bootstrap.servers": "h:1",
                        "offsetPollIntervalMs": "0",
                        "subscribe": partition.topic,
                    },
                    Use.STREAM_READ,
                ),
                self.logs,
                SystemClock(),
                lambda seconds: None,
                IdleWait(watch=self.watch, ends=ends, wait_s=LONG_S),
            )
            for partition in self.partitions
        }

    def write(self) -> None:
        """Writes a record to one of the topics, or to none."""
        if self.random.random() < 0.4:
            partition = self.random.choice(self.partitions)
            start, end = self.logs.spans[partition]
            self.logs.spans[partition] = (start, end + 1)

    def trigger(self) -> None:
        ends = {}
        for partition, source in self.sources.items():
            start = StreamOffset(
                next_offsets={partition: self.read[partition]}, topic_ids={partition.topic: FIRST_ID}
            )
            ends[partition] = source.latest(start, None).next_offsets[partition]
            self.write()
        self.read = ends


@pytest.mark.parametrize("seed", range(20))
def test_no_source_waits_while_another_one_of_its_query_has_something_to_read(seed: int) -> None:
    query = JoiningQuery(Random(seed))
    for _ in range(300):
        query.trigger()
    assert query.watch.wait_count > 20


def test_a_source_does_not_wait_after_another_one_that_has_found_a_record() -> None:
    query = JoiningQuery(Random(0))
    query.write = lambda: None  # type: ignore[method-assign]
    for _ in range(3):
        query.trigger()
    waits = query.watch.wait_count
    assert waits > 0
    query.logs.spans[query.partitions[0]] = (0, 1)
    query.trigger()
    assert query.read[query.partitions[0]] == 1
    assert query.watch.wait_count <= waits + 1
