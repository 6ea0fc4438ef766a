"""How far a reader is behind in time: the age of the first record that it has yet to read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest

from odradek.client import Admin, NewTopic, Producer
from odradek.client.aio import AsyncConsumer
from odradek.client.consumer.unread_ages import (
    PARTITIONS_MAX,
    READING_SETTINGS,
    furthest_behind,
    unread_ages_ms,
)
from odradek.model.ids import TopicPartition
from odradek.runtime.real_clock import SystemClock
from odradek.testing import LocalBroker

TOPIC = "aged"
NOW_MS = 1_700_000_000_000
PLACES = [TopicPartition(TOPIC, number) for number in range(4)]


class StandingClock(SystemClock):
    """A clock whose wall time stands."""

    def wall_ms(self) -> int:
        return NOW_MS


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """A broker with a topic: ages 50 s and 10 s, a record of the future, nothing, and a transaction that was aborted."""
    with LocalBroker() as running, Admin(running.address) as admin:
        admin.create_topics([NewTopic(TOPIC, 4)])
        with Producer(running.address, transactional_id="t") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for partition, age_ms in ((0, 50_000), (0, 10_000), (1, -60_000)):
                producer.send(TOPIC, b"x", partition=partition, timestamp_ms=NOW_MS - age_ms)
            producer.commit_transaction()
        yield running


def ages(broker: LocalBroker, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    async def read() -> dict[TopicPartition, int]:
        async with AsyncConsumer(broker.address, **READING_SETTINGS) as consumer:
            return await unread_ages_ms(consumer, positions, StandingClock(), limit_s=5.0)

    return asyncio.run(read())


def test_the_age_is_that_of_the_first_record_at_or_behind_the_position(broker: LocalBroker) -> None:
    assert ages(broker, {PLACES[0]: 0}) == {PLACES[0]: 50_000}
    assert ages(broker, {PLACES[0]: 1, PLACES[1]: 0}) == {PLACES[0]: 10_000, PLACES[1]: 0}


def test_a_marker_of_a_transaction_has_no_age(broker: LocalBroker) -> None:
    """Behind two records is the marker of their commit: an offset that is no record."""
    assert ages(broker, {PLACES[0]: 2, PLACES[1]: 0}) == {PLACES[1]: 0}


def test_partitions_with_the_largest_lags_are_read() -> None:
    ends = {TopicPartition(TOPIC, number): number for number in range(2 * PARTITIONS_MAX)}
    positions = dict.fromkeys(ends, 0)
    chosen = furthest_behind(positions, ends)
    assert len(chosen) == PARTITIONS_MAX
    assert min(tp.partition for tp in chosen) == PARTITIONS_MAX
    assert furthest_behind({PLACES[0]: 5, PLACES[1]: 3, PLACES[2]: -1}, {PLACES[0]: 5, PLACES[2]: 9}) == {}
