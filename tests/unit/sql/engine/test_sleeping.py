"""Which queries fall asleep, and that a topic that moves wakes them."""

from __future__ import annotations

import asyncio
import json

import pytest

from odradek.client import Admin, NewTopic, Producer
from odradek.model.ids import TopicPartition
from odradek.sql.queries.sleeping import IdleQueries, SleepTerms, SleepWatch, has_moved, read_offsets
from odradek.testing import LocalBroker

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_only_queries_beyond_the_limit_sleep_and_the_longest_idle_first() -> None:
    idle = IdleQueries(SleepTerms(awake_count_max=1, idle_s=10))
    idle.note("a", {FIRST: 5}, 0)
    idle.note("b", {FIRST: 5}, 1)
    assert idle.due(1, 100) == []
    assert idle.due(2, 9) == []
    assert idle.due(2, 100) == [("a", {FIRST: 5})]
    assert idle.due(2, 100) == [("b", {FIRST: 5})]


def test_where_far_too_many_run_they_sleep_sooner() -> None:
    idle = IdleQueries(SleepTerms(awake_count_max=1, idle_s=100, crowded_idle_s=5))
    for name in "abc":
        idle.note(name, {FIRST: 5}, 0)
    assert idle.due(2, 50) == []
    assert idle.due(3, 4) == []
    assert [query_id for query_id, _ in idle.due(3, 5)] == ["a", "b"]


def test_what_a_query_reads_keeps_it_awake() -> None:
    idle = IdleQueries(SleepTerms(awake_count_max=0, idle_s=10))
    for second in range(20):
        idle.note("a", {FIRST: second}, second)
        idle.note("a", None, second)
    assert idle.due(1, 28) == []
    assert idle.due(1, 29) == [("a", {FIRST: 19})]


def test_a_query_that_is_gone_is_forgotten() -> None:
    idle = IdleQueries(SleepTerms(awake_count_max=0, idle_s=10))
    idle.note("a", {FIRST: 1}, 0)
    idle.keep(["b"])
    assert idle.due(1, 100) == []


@pytest.mark.parametrize(
    ("ends", "moves"),
    [
        ({FIRST: 5}, False),
        ({FIRST: 6}, True),
        ({FIRST: 5, SECOND: 0}, False),  # a new partition without records
        ({FIRST: 5, SECOND: 1}, True),
        ({FIRST: 2}, True),  # made again
        ({}, True),  # deleted: the query says so itself
        ({FIRST: 5, TopicPartition("other", 0): 7}, False),
    ],
)
def test_a_topic_that_is_not_what_it_was_has_moved(ends: dict[TopicPartition, int], moves: bool) -> None:
    assert has_moved({FIRST: 5}, ends) is moves


def test_how_far_a_query_is_comes_from_its_progress() -> None:
    joined = [{"endOffset": {"orders": {"0": 7, "1": 2}}}, {"endOffset": {"orders": {"0": 6}}}]
    assert read_offsets(json.dumps({"sources": joined})) == {FIRST: 6, SECOND: 2}
    assert read_offsets(json.dumps({"sources": [*joined, {"endOffset": None}]})) is None


async def test_a_record_wakes_the_query_that_reads_its_topic() -> None:
    with LocalBroker() as broker:
        with Admin(broker.address) as admin:
            admin.create_topics([NewTopic("orders", 1), NewTopic("users", 1)])
        asleep = {"of orders": {FIRST: 0}, "of users": {TopicPartition("users", 0): 0}}
        woken: asyncio.Queue[str] = asyncio.Queue()

        def wake(query_id: str) -> None:
            del asleep[query_id]
            woken.put_nowait(query_id)

        watch = SleepWatch(broker.address, {}, lambda: asleep, wake)
        watch.start()
        try:
            with Producer(broker.address) as producer:
                producer.send_and_wait("orders", b"{}")
            async with asyncio.timeout(30):
                assert await woken.get() == "of orders"
        finally:
            await watch.close()
        assert list(asleep) == ["of users"]
