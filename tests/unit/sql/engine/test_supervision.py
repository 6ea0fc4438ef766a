"""What the server says of queries that fail, end and start again. The engine's process is a stand-in at the same socket."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from tests.kit.waiting import until

from odradek.sql.queries.channel import (
    EngineChannel,
    QueryEnded,
    QueryHasStopped,
    QueryProgressed,
    QueryRows,
    QueryRunning,
    QuerySlept,
    StartArchive,
    StartPush,
    StopQuery,
    UnreadableMessage,
    framed,
    read_message,
)
from odradek.sql.queries.engine import EngineFailed, SqlEngine, SupervisedQuery
from odradek.sql.server.entities import QueryHealth

PATIENCE_S = 30


class EngineStandIn:
    """Reads what the server orders, and says what the test wants."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.has_ended = asyncio.Event()
        self.connected: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()

    async def launch(self, *command: str, pass_fds: list[int], **settings: Any) -> EngineStandIn:
        self.connected.set_result(socket.socket(fileno=os.dup(pass_fds[0])))
        return self

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(sock=await self.connected)
        await read_message(self.reader)  # the terms of sleep

    async def order(self) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await read_message(self.reader)

    def say(self, message: Any) -> None:
        self.writer.write(framed(message))

    async def die(self) -> None:
        self.writer.close()
        self.has_ended.set()

    async def wait(self) -> int:
        await self.has_ended.wait()
        return -9


def nothing(spark: Any, checkpoint: str) -> None:
    """Starts no query: the engine is a stand-in."""


def order(query_id: str) -> StartArchive:
    return StartArchive(query_id=query_id, start=nothing)


def has_failed(query: SupervisedQuery, times: int) -> bool:
    return query.failure_count == times


@pytest.fixture
async def supervised(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[SqlEngine, EngineStandIn]]:
    monkeypatch.setattr("odradek.sql.queries.engine.BACK_OFF_FIRST_S", 0.01)
    stand_in = EngineStandIn()
    monkeypatch.setattr(asyncio, "create_subprocess_exec", stand_in.launch)
    engine = SqlEngine()
    engine.run(order("q"))
    await stand_in.open()
    assert (await stand_in.order()).query_id == "q"
    yield engine, stand_in
    stand_in.has_ended.set()
    stand_in.writer.close()
    await engine.close()


async def test_a_query_that_fails_again_and_again_says_so_until_a_batch_has_ended(
    supervised: tuple[SqlEngine, EngineStandIn],
) -> None:
    engine, stand_in = supervised
    query = engine.wanted["q"]
    stand_in.say(QueryRunning(query_id="q"))
    await until(lambda: query.state == "RUNNING")
    for number in range(1, 4):
        stand_in.say(QueryEnded(query_id="q", problem=f"problem {number}"))
        again = await stand_in.order()
        assert (again.query_id, again.tells_progress) == ("q", True)
        stand_in.say(QueryRunning(query_id="q"))
        stand_in.say(QueryHasStopped(query_id="other"))  # all before it was read
        await until(partial(has_failed, query, number))
        health = QueryHealth.of(query)
        assert (health.state, health.problem) == ("ERROR", f"problem {number}")
        assert health.failing_since_ms == query.failures[0].at_ms
        assert health.members["failureCount"] == number
    stand_in.say(QueryProgressed(query_id="q"))
    await until(lambda: query.state == "RUNNING")
    health = QueryHealth.of(query)
    assert (health.failure_count, health.failing_since_ms, health.problem) == (0, None, None)
    assert [error["errorMessage"] for error in health.errors] == ["problem 1", "problem 2", "problem 3"]
    assert "failureCount" not in health.members


class Unpicklable:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def __reduce__(self) -> Any:
        raise self._error

    def __call__(self, spark: Any, checkpoint: str) -> None:
        raise AssertionError("it was sent")


class SilentError(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    "start",
    [
        lambda spark, checkpoint: None,
        partial(nothing, threading.Lock()),
        *(
            Unpicklable(error)
            for error in (ValueError("a\nb"), RecursionError(), KeyError("k"), SilentError(), MemoryError())
        ),
    ],
    ids=["lambda", "lock", "value", "recursion", "key", "silent", "memory"],
)
async def test_an_order_that_cannot_be_pickled_is_a_failure_of_its_query_alone(
    supervised: tuple[SqlEngine, EngineStandIn], start: Any
) -> None:
    engine, stand_in = supervised
    engine.run(StartArchive(query_id="bad", start=start))
    await until(lambda: engine.wanted["bad"].failure_count > 0)
    problem = QueryHealth.of(engine.wanted["bad"]).problem
    assert problem is not None
    assert problem.startswith("the query cannot be sent to its engine: ")
    assert "\n" not in problem
    engine.terminate("bad")
    engine.run(order("good"))
    while (await stand_in.order()).query_id != "good":
        pass
    with pytest.raises(EngineFailed, match="cannot be sent to its engine"):
        await engine.push(
            StartPush(query_id="push", build=start, servers="", options={}, starting={}, limit=None)
        )
    assert not engine.close_push("push")


def spoilt(error: Exception) -> Any:
    raise error


class Unreadable:
    """It is pickled well, and cannot be unpickled."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __reduce__(self) -> Any:
        return spoilt, (self._error,)

    def __call__(self, spark: Any, checkpoint: str) -> None:
        raise AssertionError("it was read")


@pytest.mark.parametrize(
    "error", [ValueError("a\nb"), RecursionError(), MemoryError(), ImportError("no x"), EOFError()]
)
async def test_a_message_that_cannot_be_unpickled_is_of_its_query_alone(error: Exception) -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(framed(StartArchive(query_id="bäd", start=Unreadable(error))) + framed(order("good")))
    ours.close()
    with theirs:
        bad, good = EngineChannel(theirs).messages()
    assert (bad.query_id, good.query_id) == ("bäd", "good")
    assert isinstance(bad, UnreadableMessage)
    assert bad.problem.startswith(type(error).__name__)
    assert "\n" not in bad.problem
    reader = asyncio.StreamReader()
    reader.feed_data(framed(StartArchive(query_id="bäd", start=Unreadable(error))))
    assert await read_message(reader) == bad


async def test_a_query_that_fails_for_ever_keeps_its_last_failures_alone(
    supervised: tuple[SqlEngine, EngineStandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.sql.queries.engine.BACK_OFF_MAX_S", 0.01)
    engine, stand_in = supervised
    for number in range(15):
        stand_in.say(QueryEnded(query_id="q", problem=f"problem {number}"))
        await stand_in.order()
    query = engine.wanted["q"]
    assert query.failure_count == 15
    assert [failure.reason for failure in query.failures] == [f"problem {number}" for number in range(5, 15)]


async def test_who_terminates_waits_until_the_query_has_ended(
    supervised: tuple[SqlEngine, EngineStandIn],
) -> None:
    engine, stand_in = supervised
    engine.terminate("q")
    waits = [asyncio.ensure_future(engine.stopped("q")) for _ in range(2)]
    assert await stand_in.order() == StopQuery(query_id="q", answers=True)
    assert await engine.all_stopped(["q", "unknown"], 0.01) == ["q"]
    waits[0].cancel()
    await asyncio.gather(waits[0], return_exceptions=True)
    assert not waits[1].done()
    stand_in.say(QueryHasStopped(query_id="q"))
    await waits[1]
    assert await engine.all_stopped(["q"], PATIENCE_S) == []


async def test_what_a_query_said_before_its_successor_began_is_not_of_the_successor(
    supervised: tuple[SqlEngine, EngineStandIn],
) -> None:
    engine, stand_in = supervised
    engine.terminate("q")
    engine.run(order("q"))
    assert isinstance(await stand_in.order(), StopQuery)
    assert isinstance(await stand_in.order(), StartArchive)
    stand_in.say(QueryRunning(query_id="q"))
    stand_in.say(QueryEnded(query_id="q", problem="of the first"))
    stand_in.say(QueryHasStopped(query_id="q"))
    await engine.stopped("q")
    assert (engine.wanted["q"].state, engine.wanted["q"].failure_count) == ("STARTING", 0)
    stand_in.say(QueryRunning(query_id="q"))
    await until(lambda: engine.wanted["q"].state == "RUNNING")


async def test_each_order_to_end_is_waited_for(supervised: tuple[SqlEngine, EngineStandIn]) -> None:
    engine, stand_in = supervised
    engine.terminate("q")
    engine.run(order("q"))
    engine.terminate("q")
    second = asyncio.ensure_future(engine.stopped("q"))
    stand_in.say(QueryHasStopped(query_id="q"))
    await asyncio.sleep(0.02)
    assert not second.done()
    stand_in.say(QueryHasStopped(query_id="q"))
    await second


async def test_a_query_that_sleeps_no_longer_fails(supervised: tuple[SqlEngine, EngineStandIn]) -> None:
    engine, stand_in = supervised
    stand_in.say(QueryEnded(query_id="q", problem="once"))
    await stand_in.order()
    stand_in.say(QuerySlept(query_id="q", read={}))
    await until(lambda: engine.wanted["q"].state == "SLEEPING")
    assert engine.wanted["q"].failure_count == 0


async def test_an_engine_that_dies_ends_all_waits_and_fails_what_it_ran(
    supervised: tuple[SqlEngine, EngineStandIn],
) -> None:
    engine, stand_in = supervised
    engine.run(order("other"))
    await stand_in.order()
    engine.terminate("q")
    await stand_in.order()
    await stand_in.die()
    await engine.stopped("q")
    await until(lambda: engine.wanted["other"].failure_count == 1)
    assert QueryHealth.of(engine.wanted["other"]).problem == "the engine ended (exit code -9)"


@pytest.mark.parametrize(
    ("limit", "row_counts", "reached"), [(3, [1, 2], True), (3, [1, 1], False), (None, [5], False)]
)
async def test_a_push_query_has_reached_its_limit_when_so_many_rows_came(
    supervised: tuple[SqlEngine, EngineStandIn], limit: int | None, row_counts: list[int], reached: bool
) -> None:
    engine, stand_in = supervised
    pushed = await engine.push(
        StartPush(query_id="p", build=partial(nothing), servers="", options={}, limit=limit)
    )
    await stand_in.order()
    for count in row_counts:
        stand_in.say(QueryRows(query_id="p", rows=[[1]] * count))
    stand_in.say(QueryEnded(query_id="p"))
    rows: list[Any] = []
    while (some := await pushed.next_rows(PATIENCE_S)) is not None:
        rows += some
    assert len(rows) == sum(row_counts)
    assert pushed.has_reached_limit is reached
