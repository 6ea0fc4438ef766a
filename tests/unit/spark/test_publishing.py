"""How far a query has come is published when it changes, now and then, and never at the query's expense."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.spark.publishing import REFRESH_S, RETRY_S, OffsetPublisher
from odradek.spark.reading.offsets import StreamOffset

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class Brokers:
    """Take commits, unless they are down; they are a clock, too."""

    now: float = 1_000_000.0
    is_down: bool = False
    tries: int = 0
    commits: list[dict[TopicPartition, int]] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        assert group == "g"
        self.tries += 1
        if self.is_down:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.commits.append(dict(offsets))


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def publisher(brokers: Brokers) -> OffsetPublisher:
    return OffsetPublisher("g", brokers.commit, brokers)


def test_only_what_changed_is_committed(brokers: Brokers, publisher: OffsetPublisher) -> None:
    for reached in ({A: 1, B: 1}, {A: 1, B: 1}, {A: 1, B: 2}, {A: 0, B: 2}):
        publisher.publish(StreamOffset(next_offsets=reached))
    assert brokers.commits == [{A: 1, B: 1}, {B: 2}, {A: 0}]


def test_an_idle_query_is_committed_again_before_brokers_forget_it(
    brokers: Brokers, publisher: OffsetPublisher
) -> None:
    publisher.publish(StreamOffset(next_offsets={A: 1}))
    brokers.now += REFRESH_S + 1
    publisher.publish(StreamOffset(next_offsets={A: 1}))
    assert brokers.commits == [{A: 1}, {A: 1}]


def test_brokers_that_are_down_are_left_alone_for_a_while_and_reported_once(
    brokers: Brokers, publisher: OffsetPublisher, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.is_down = True
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        for _ in range(3):
            publisher.publish(StreamOffset(next_offsets={A: 1}))
        brokers.now += RETRY_S
        publisher.publish(StreamOffset(next_offsets={A: 2}))
    assert brokers.tries == 2
    assert len(caplog.records) == 1
    assert "group g gets no offsets for now" in caplog.text
    brokers.is_down = False
    brokers.now += RETRY_S
    publisher.publish(StreamOffset(next_offsets={A: 3}))
    assert brokers.commits == [{A: 3}]
