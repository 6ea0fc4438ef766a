"""A source that has read everything waits for records within a trigger, and looks the less often the longer none come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from tests.unit.spark.logs import Logs

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options
from odradek.spark.reading.idle import LOOK_EVERY_S
from odradek.spark.reading.offsets import StreamOffset
from odradek.spark.reading.progress import StreamProgress
from odradek.spark.reading.trigger_wait import GATHER_S, LOOK_EVERY_LEAST_S, TriggerWait

A, B = TopicPartition("t", 0), TopicPartition("u", 0)
WAIT_S = 0.475


@dataclass
class Hands:
    """A clock that pauses move on, and what happens at a time."""

    now: float = 100.0
    events: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        while self.events and self.events[0][0] <= self.now:
            self.events.pop(0)[1]()


def wait_of(logs: Logs, hands: Hands, *topics_beside: str) -> TriggerWait:
    return TriggerWait(logs, hands, hands.pause, wait_s=WAIT_S, topics_beside=topics_beside)


def ends(logs: Logs, partition: TopicPartition, end: int) -> Callable[[], None]:
    return lambda: logs.spans.update({partition: (0, end)})


def test_records_end_the_wait_once_those_beside_them_can_be_read() -> None:
    logs, hands = Logs({A: (0, 5)}), Hands()
    hands.events.append((100.2, ends(logs, A, 6)))
    wait_of(logs, hands).wait(None, {A: 5}, {})
    assert 100.2 <= hands.now < 100.2 + LOOK_EVERY_LEAST_S + GATHER_S + 0.01
    assert hands.pauses[-1] == GATHER_S


def test_a_wait_without_records_ends_on_time() -> None:
    logs, hands = Logs({A: (0, 5)}), Hands()
    wait_of(logs, hands).wait(None, {A: 5}, {})
    assert hands.now == pytest.approx(100 + WAIT_S)


def test_records_of_other_topics_end_the_wait() -> None:
    logs, hands = Logs({A: (0, 5), B: (0, 7)}), Hands()
    hands.events.append((100.1, ends(logs, B, 8)))
    wait = wait_of(logs, hands, "u", "gone")
    wait.wait(None, {A: 5}, {})
    assert hands.now < 100.2
    wait.wait(None, {A: 5}, {})  # what has come before does not end the next wait
    assert hands.now > 100.1 + WAIT_S


def test_looks_become_rare_while_nothing_comes_and_frequent_when_something_does() -> None:
    logs, hands = Logs({A: (0, 5)}), Hands()
    wait = wait_of(logs, hands)
    for _ in range(40):  # twenty seconds
        wait.wait(None, {A: 5}, {})
    assert max(hands.pauses) == LOOK_EVERY_S
    assert hands.pauses[0] == LOOK_EVERY_LEAST_S
    looks_before = logs.look_count
    wait.wait(None, {A: 5}, {})
    assert logs.look_count - looks_before <= WAIT_S / LOOK_EVERY_S + 1
    wait.note(None, {A: 5}, {}, has_news=False)
    wait.wait(None, {A: 5}, {})
    assert min(hands.pauses[-2:]) > LOOK_EVERY_LEAST_S
    wait.note(None, {A: 6}, {}, has_news=True)
    hands.pauses.clear()
    wait.wait(None, {A: 5}, {})
    assert hands.pauses[0] == LOOK_EVERY_LEAST_S


class DownLogs(Logs):
    def offsets(self, questions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "no broker answers")


@pytest.mark.parametrize("beside", [(), ("t",)])
def test_a_broker_that_does_not_answer_ends_the_wait(beside: tuple[str, ...]) -> None:
    hands = Hands()
    wait_of(DownLogs({A: (0, 5)}), hands, *beside).wait(None, {A: 5}, {})
    assert hands.now < 100 + WAIT_S


def test_a_partition_that_is_gone_ends_the_wait() -> None:
    logs, hands = Logs({A: (0, 5), B: (0, 7)}), Hands()
    hands.events.append((100.1, lambda: logs.spans.pop(B) and None))
    wait_of(logs, hands).wait(None, {A: 5, B: 7}, {})
    assert hands.now < 100.2


def test_a_query_that_has_read_everything_waits_at_its_second_look() -> None:
    logs, hands = Logs({A: (0, 5)}), Hands()
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "startingOffsets": "earliest"}
    options |= {"triggerWaitMs": "475", "partitionDiscoveryIntervalMs": "0", "offsetPollIntervalMs": "0"}
    wait = wait_of(logs, hands)
    progress = StreamProgress(read_options(options, Use.STREAM_READ), logs, hands, hands.pause, wait)
    read = progress.latest(progress.initial(), None)
    assert progress.latest(read, None) is read
    assert hands.now == 100
    hands.events.append((100.2, ends(logs, A, 9)))
    assert progress.latest(read, None).next_offsets == {A: 9}
    assert 100.2 <= hands.now < 100.3


@dataclass
class TwoSources:
    """A query of two topics as Spark runs it: each trigger asks both, and commits the batch before where it begins one.

    The source of `t` waits for both. That of `u` reads at most ten records in a batch.
    """

    logs: Logs
    hands: Hands = field(default_factory=Hands)
    batches: list[dict[TopicPartition, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        options = {"kafka.bootstrap.servers": "h:1", "startingOffsets": "earliest"}
        options |= {"partitionDiscoveryIntervalMs": "0", "offsetPollIntervalMs": "0"}
        waits = (wait_of(self.logs, self.hands, "u"), None)
        self.sources = [
            StreamProgress(
                read_options({**options, "subscribe": topic}, Use.STREAM_READ),
                self.logs,
                self.hands,
                self.hands.pause,
                wait,
            )
            for topic, wait in zip("tu", waits, strict=True)
        ]
        self.offsets = [source.initial() for source in self.sources]

    def trigger(self) -> float:
        """Returns how long the sources have waited."""
        began_at = self.hands.now
        asked = zip(self.sources, self.offsets, (None, 10), strict=True)
        ends = [source.latest(offset, limit) for source, offset, limit in asked]
        if ends != self.offsets:
            self.offsets = ends
            self.batches.append({at: end for offset in ends for at, end in offset.next_offsets.items()})
            if len(self.batches) > 1:
                for source in self.sources:
                    source.note_batch()
        return self.hands.now - began_at


def test_a_source_does_not_wait_while_another_one_has_records_left_from_earlier_batches() -> None:
    query = TwoSources(Logs({A: (0, 5), B: (0, 75)}))
    waited_s = [query.trigger() for _ in range(8)]
    assert [batch[B] for batch in query.batches] == [10, 20, 30, 40, 50, 60, 70, 75]
    assert sum(waited_s) <= 2 * WAIT_S, "it has to see a batch begin that it did not expect"
    assert waited_s[-1] == 0
    assert query.trigger() == 0, "it does not know yet that all is read"
    assert query.trigger() == pytest.approx(WAIT_S)
    assert len(query.batches) == 8


def test_a_source_goes_on_waiting_for_records_of_others_that_its_looks_have_missed() -> None:
    query = TwoSources(Logs({A: (0, 5), B: (0, 5)}))
    while not query.trigger():
        pass
    query.trigger()
    read, query.sources[1].latest = query.sources[1].latest, lambda *asked: arriving()  # type: ignore[method-assign]

    def arriving() -> StreamOffset:
        query.logs.spans[B] = (0, 6)
        return read(query.offsets[1], 10)

    assert query.trigger() == pytest.approx(WAIT_S)
    assert query.batches[-1] == {A: 5, B: 6}
    query.hands.events.append((query.hands.now + 0.2, ends(query.logs, B, 7)))
    query.sources[1].latest = read  # type: ignore[method-assign]
    assert 0.2 <= query.trigger() < WAIT_S
    assert query.batches[-1] == {A: 5, B: 7}


def test_the_options_of_a_wait() -> None:
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "triggerWaitTopics": "a,b"}
    read = read_options(options, Use.STREAM_READ)
    assert (read.trigger_wait_ms, read.trigger_wait_topics) == (0, ("a", "b"))
