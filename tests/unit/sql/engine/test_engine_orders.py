"""The engine's process carries out orders side by side. Queries are stand-ins: no JVM is started."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.sql.queries import engine_process
from odradek.sql.queries.builds import program_name
from odradek.sql.queries.channel import (
    EngineChannel,
    QueryEnded,
    QueryHasStopped,
    QueryProgressed,
    QueryRunning,
    StartArchive,
    StartQuery,
    StopQuery,
    UnreadableMessage,
)
from odradek.sql.queries.engine_process import EngineCore
from odradek.sql.queries.engine_sessions import EngineSessions
from odradek.sql.queries.scratch import EngineScratch
from odradek.streams import Streams

PATIENCE_S = 30


class NoSessions(EngineSessions):
    """No Spark."""

    def of_this_thread(self) -> Any:
        return None


@dataclass
class Progress:
    """What Spark's query says after its first batch."""

    value: object = None

    def lastProgress(self) -> object:  # noqa: N802 - Spark's name
        return self.value


@dataclass
class StandIn:
    """A query of Spark, as far as the engine looks at it."""

    isActive: bool = True  # noqa: N815 - Spark's name
    _jsq: Progress = field(default_factory=Progress)
    problem: str | None = None

    def exception(self) -> str | None:
        return self.problem


class StandInRun:
    """A run whose start and stop wait until the test lets them go on."""

    def __init__(self, *, starts: bool = True, stops: bool = True) -> None:
        self.may_start, self.may_stop = threading.Event(), threading.Event()
        self.begun, self.has_stopped = threading.Event(), threading.Event()
        self.queries = {"q": StandIn()}
        if starts:
            self.may_start.set()
        if stops:
            self.may_stop.set()

    def __call__(self, spark: Any, checkpoint: str) -> StandInRun:
        self.begun.set()
        assert self.may_start.wait(PATIENCE_S)
        return self

    def stop(self) -> None:
        assert self.may_stop.wait(PATIENCE_S)
        self.has_stopped.set()


@dataclass
class Lab:
    core: EngineCore
    server: EngineChannel
    ended: threading.Event

    def start(self, query_id: str, run: StandInRun, *, tells_progress: bool = False) -> None:
        self.core.obey(StartArchive(query_id=query_id, start=run, tells_progress=tells_progress))

    def stop(self, query_id: str) -> None:
        self.core.obey(StopQuery(query_id=query_id, answers=True))

    def next(self) -> Any:
        return next(self._messages)

    def __post_init__(self) -> None:
        self._messages = self.server.messages()


@pytest.fixture
def lab(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server, engine = socket.socketpair()
    server.settimeout(PATIENCE_S)
    scratch = EngineScratch()
    core = EngineCore(EngineChannel(engine), scratch, NoSessions(scratch))
    ended = threading.Event()
    watch = threading.Thread(target=core.watch, args=[ended])
    watch.start()
    yield Lab(core, EngineChannel(server), ended)
    ended.set()
    watch.join(PATIENCE_S)
    core.starts.shutdown()
    core.stops.shutdown()
    scratch.close()
    server.close()
    engine.close()


def test_a_start_that_waits_is_in_the_way_of_no_other(lab: Lab) -> None:
    slow, quick = StandInRun(starts=False), StandInRun()
    lab.start("slow", slow)
    assert slow.begun.wait(PATIENCE_S)
    lab.start("quick", quick)
    assert lab.next() == QueryRunning(query_id="quick")
    lab.stop("quick")
    assert lab.next() == QueryHasStopped(query_id="quick")
    assert quick.has_stopped.is_set()
    slow.may_start.set()
    assert lab.next() == QueryRunning(query_id="slow")


def test_an_order_that_cannot_be_unpickled_fails_alone(lab: Lab) -> None:
    other = StandInRun()
    lab.core.obey(UnreadableMessage(query_id="bad", problem="ImportError: no x"))
    lab.start("other", other)
    ended, running = lab.next(), lab.next()
    assert ended == QueryEnded(
        query_id="bad", problem="the query cannot be read by its engine: ImportError: no x"
    )
    assert running == QueryRunning(query_id="other")
    lab.stop("bad")
    assert lab.next() == QueryHasStopped(query_id="bad")


def test_stopped_is_said_when_the_query_writes_nothing_any_more(lab: Lab) -> None:
    starting = StandInRun(starts=False, stops=False)
    lab.start("q", starting)
    assert starting.begun.wait(PATIENCE_S)
    lab.stop("q")
    lab.stop("other")
    assert lab.next() == QueryHasStopped(query_id="other")
    starting.may_start.set()
    assert lab.next() == QueryRunning(query_id="q")
    assert not starting.has_stopped.is_set()
    starting.may_stop.set()
    assert lab.next() == QueryHasStopped(query_id="q")
    assert starting.has_stopped.is_set()


def test_a_query_that_shall_end_before_it_began_is_not_started(lab: Lab) -> None:
    runs = [StandInRun(starts=False) for _ in range(4)]
    for number, run in enumerate(runs):  # all threads that start queries wait
        lab.start(f"q{number}", run)
        assert run.begun.wait(PATIENCE_S)
    unwanted, wanted = StandInRun(), StandInRun()
    lab.start("late", unwanted)
    lab.stop("late")
    lab.start("late", wanted)
    for run in runs:
        run.may_start.set()
    said = [lab.next() for _ in range(6)]
    assert said.index(QueryHasStopped(query_id="late")) < said.index(QueryRunning(query_id="late"))
    assert wanted.begun.is_set()
    assert not unwanted.begun.is_set()


class StandInApp:
    """A program of streams whose only operator is a stand-in for its run."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.program = SimpleNamespace(left_out_log=None)
        self.run: StandInRun | None = None

    def start(self, **settings: Any) -> StandInRun:
        assert self.run is not None
        return self.run(None, "")


def test_a_query_begins_after_the_statement_before_it_has_ended(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_process, "streams_app", SimpleNamespace(Streams=StandInApp))
    before, after = StandInRun(stops=False), StandInRun()
    lab.start("q", before)
    assert lab.next() == QueryRunning(query_id="q")
    lab.stop("q")
    order = StartQuery(
        query_id="q",
        name="q",
        build=lambda app: setattr(app, "run", after),
        servers="",
        options={},
        checkpoint="",
    )
    lab.core.obey(order)
    lab.start("other", StandInRun())
    assert lab.next() == QueryRunning(query_id="other")
    assert not after.begun.is_set()
    before.may_stop.set()
    assert lab.next() == QueryHasStopped(query_id="q")
    assert lab.next() == QueryRunning(query_id="q")


def test_progress_and_death_are_reported_once(lab: Lab) -> None:
    failing = StandInRun()
    lab.start("q", failing, tells_progress=True)
    assert lab.next() == QueryRunning(query_id="q")
    query = failing.queries["q"]
    query._jsq.value = object()
    assert lab.next() == QueryProgressed(query_id="q")
    query.problem = "out of order"
    query.isActive = False
    assert lab.next() == QueryEnded(query_id="q", problem="out of order")
    lab.stop("q")
    assert lab.next() == QueryHasStopped(query_id="q")


@given(st.lists(st.text(max_size=300), min_size=2, max_size=2, unique=True))
def test_queries_of_any_names_have_programs_of_their_own(names: list[str]) -> None:
    """Names in backquotes may hold anything; those of programs are parts of topics' names."""
    first, second = (program_name(f"sql.default.CSAS_{name}_1") for name in names)
    assert first != second
    assert {Streams(first).program.name, Streams(second).program.name} == {first, second}


def test_a_query_whose_name_a_program_may_have_keeps_it() -> None:
    assert program_name("sql.default.CTAS_TOTALS_7") == "sql.default.CTAS_TOTALS_7"
