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


def test_the_options_of_a_wait() -> None:
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "triggerWaitTopics": "a,b"}
    read = read_options(options, Use.STREAM_READ)
    assert (read.trigger_wait_ms, read.trigger_wait_topics) == (0, ("a", "b"))
