"""The process that runs queries: one JVM, one Spark session. `python -m odradek.sql.queries.engine_process DESCRIPTOR TASKS`.

It is started with the first query that needs Spark. It knows nothing by itself: the server orders what runs. It ends when the
server ends; when its JVM dies it ends, too, and the server starts another one and repeats the orders.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from odradek.model.lazy import lazy
from odradek.runtime.real_clock import SystemClock
from odradek.spark.engine import jvm_end
from odradek.spark.engine import session as spark_sessions
from odradek.sql.queries.channel import (
    EngineChannel,
    EngineFigures,
    MeasureQueries,
    QueryEnded,
    QueryHasStopped,
    QueryProgressed,
    QueryRows,
    QueryRunning,
    QuerySlept,
    StartArchive,
    StartPush,
    StartQuery,
    StopQuery,
    UnreadableMessage,
)
from odradek.sql.queries.engine_sessions import EngineSessions
from odradek.sql.queries.lanes import Lanes
from odradek.sql.queries.scratch import EngineScratch
from odradek.sql.queries.sleeping import IdleQueries, Offsets, SleepTerms, read_offsets
from odradek.telemetry import events
from odradek.values.rows import SqlValue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.pipelines import failure_line
    from odradek.runtime.ports import Clock
    from odradek.sql.queries.archive_run import ArchiveRun
    from odradek.streams import app as streams_app
    from odradek.streams.running import Run
else:
    failure_line = lazy("odradek.pipelines.failure_line")
    streams_app = lazy("odradek.streams.app")

StartOrder: TypeAlias = StartQuery | StartArchive | StartPush

_log = events.get("sql")
JVM_IS_GONE: Final = 70
_WAITING: Final = {"idleWaitMs": "60000"}
"""A query with nothing to read waits for records: fifty that ask for offsets at each trigger take a third of a core, and a
trigger of each in ten seconds takes three hundredths. What ends a wait is looked up for all queries (`spark/reading/idle.py`).
"""
_WAITING_ALONE: Final = {"idleWaitMs": "1000"}
"""Spark asks the sources of a join one after another. In processes of their own they do not know of each other, so a record of
one waits for the wait of the other."""
_WATCH_S: Final = 0.25
_WATCH_EACH_S: Final = 0.02
"""The interval per query: many queries are checked less often, as each check calls the JVM."""
_LOOK_EVERY_S: Final = 5.0
"""The interval for looking up how far queries have read, while more are awake than should be."""
_SIDE_BY_SIDE: Final = 4
"""The number of queries that start at the same time. Those that end have as many threads of their own."""


def _threads(name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix=f"odradek-sql-{name}")


@dataclass(slots=True)
class _Running:
    query_id: str
    run: Run | ArchiveRun
    checkpoint: Path | None = None
    """The checkpoint to remove with the query: a push query's, or an archive's, which stores its own position."""
    tells_progress: bool = False
    """The server waits for a report that a batch has ended."""
    is_reported: bool = False
    """A thread reports its end to the server."""

    @property
    def may_sleep(self) -> bool:
        """The query may sleep. One that fills an archive may not: it waits for its files to become large, despite its input."""
        return self.checkpoint is None

    @property
    def has_ended(self) -> bool:
        return not all(query.isActive for query in self.run.queries.values())

    @property
    def has_progressed(self) -> bool:
        """Tells whether each of its queries has ended a batch, or has found nothing to read."""
        return all(spark_sessions.has_progress(query) for query in self.run.queries.values())

    @property
    def has_work(self) -> bool:
        """Spark's last status reports unread input."""
        return any(query.status["isDataAvailable"] for query in self.run.queries.values())


@dataclass(slots=True)
class EngineCore:
    """Starts, watches and stops queries. Orders of one query are carried out in their order, and orders of others in parallel:
    a start that waits for a broker delays no other. Each thread that starts queries has a Spark session of its own,
    since settings and functions of a session change while a query starts (decision 0083).
    """

    channel: EngineChannel
    scratch: EngineScratch
    sessions: EngineSessions
    starts: ThreadPoolExecutor = field(default_factory=lambda: _threads("start"))
    stops: ThreadPoolExecutor = field(default_factory=lambda: _threads("stop"))
    clock: Clock = field(default_factory=SystemClock)
    idle: IdleQueries = field(default_factory=lambda: IdleQueries(SleepTerms()))
    _lanes: Lanes = field(default_factory=Lanes)
    _ordered: dict[str, StartOrder] = field(default_factory=dict)
    """The last order to start each query; none of a query that must end."""
    _running: dict[str, _Running] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _idle_lock: threading.Lock = field(default_factory=threading.Lock)
    _is_rest_due: bool = False
    _report_figures_s: float | None = None
    """The interval of reports for the server's metrics listener; None: it has none."""
    _figures_at: float = 0.0

    def begin(self) -> None:
        """Starts the JVM on a thread: this process is here because a query needs it."""
        self.starts.submit(self._open)

    def obey(self, message: StartOrder | StopQuery | UnreadableMessage) -> None:
        """Carries out an order after the earlier ones of the same query. Returns at once."""
        query_id = message.query_id
        match message:
            case UnreadableMessage(problem=problem):
                _log.warning("sql_order_unreadable", query=query_id, reason=problem)
                line = f"the query cannot be read by its engine: {problem}"
                self.channel.send(QueryEnded(query_id=query_id, problem=line))
            case StopQuery():
                self._ordered.pop(query_id, None)
                self._lanes.add([query_id], partial(self.stop, query_id, answers=message.answers), self.stops)
            case _:
                self._ordered[query_id] = message
                self._lanes.add([query_id], partial(self.start, message), self.starts)

    def measure(self, order: MeasureQueries) -> None:
        """Reports the figures of queries from now on."""
        self._report_figures_s = order.interval_s
        self.sessions.measure()

    def _report_figures(self, now: float) -> None:
        if self._report_figures_s is not None and now - self._figures_at >= self._report_figures_s:
            self._figures_at = now
            self.channel.send(EngineFigures(figures=self.sessions.measure().figures()))

    def _open(self) -> None:
        """Opens a session early. `start` tries again, and reports why the JVM does not start."""
        try:
            self.sessions.of_this_thread()
        except Exception as error:  # noqa: BLE001 - the root of a task
            self._end_without_jvm(error)
            _log.warning("sql_session_not_started", reason=str(error))

    def start(self, order: StartOrder) -> None:
        """Starts a query, and tells the server with QueryRunning or QueryEnded; nothing of a query that must end."""
        query_id = order.query_id
        checkpoint: Path | None = None
        if self._ordered.get(query_id) is not order:
            return  # an order to end it, or a newer one to start it, waits in the lane
        if query_id in self._running:  # it was woken just before it fell asleep
            self.channel.send(QueryRunning(query_id=query_id))
            return
        try:
            spark = self.sessions.of_this_thread()
            self.rest()  # of many that start one after another, those that have read all make room
            run: Run | ArchiveRun
            if isinstance(order, StartPush):
                checkpoint = self.scratch.directory("push")
                run = self._start_push(spark, order, checkpoint)
            elif isinstance(order, StartArchive):
                checkpoint = self.scratch.directory("archive")
                run = order.start(spark, str(checkpoint))
            else:
                run = self._start_persistent(spark, order)
            tells_progress = not isinstance(order, StartPush) and order.tells_progress
            with self._lock:
                self._running[query_id] = _Running(query_id, run, checkpoint, tells_progress)
            self.channel.send(QueryRunning(query_id=query_id))
        except Exception as error:  # noqa: BLE001 - the root of a thread: the server hears of it
            self._end_without_jvm(error)
            if checkpoint is not None:
                shutil.rmtree(checkpoint, ignore_errors=True)
            self.channel.send(QueryEnded(query_id=query_id, problem=_line(error)))

    @property
    def _waiting(self) -> dict[str, str]:
        return _WAITING if self.sessions.shares_planners else _WAITING_ALONE

    def _start_persistent(self, spark: SparkSession, order: StartQuery) -> Run:
        app = streams_app.Streams(
            order.name,
            servers=order.servers,
            options={**self._waiting, **order.options},
            on_error="skip",  # as ksqlDB: a record that cannot be read is left out and logged
            spark=spark,
            starting=order.starting,
        )
        app.program.left_out_log = order.left_out_log
        order.build(app)
        return app.start(checkpoint=order.checkpoint, interval=f"{order.interval_ms} milliseconds")

    def _start_push(self, spark: SparkSession, order: StartPush, checkpoint: Path) -> Run:
        app = streams_app.Streams(
            order.query_id,
            servers=order.servers,
            options={**self._waiting, **order.options},
            on_error="skip",  # as ksqlDB: a record that cannot be read is left out and logged
            spark=spark,
            starting=order.starting,
        )
        app.program.left_out_log = order.left_out_log
        left = [order.limit]

        def give(row: list[SqlValue]) -> None:
            if left[0] is not None:
                if left[0] == 0:
                    return
                left[0] -= 1
            self.channel.send(QueryRows(query_id=order.query_id, rows=[row]))
            if left[0] == 0:
                self.limit_reached(order.query_id)

        order.build(app, give)
        return app.start(
            checkpoint=str(checkpoint),
            delivery="at_least_once",
            changelog=False,
            interval=f"{order.interval_ms} milliseconds",
        )

    def limit_reached(self, query_id: str) -> None:
        """Reports that a push query has all its rows. The query itself ends when the server stops it."""
        self.channel.send(QueryEnded(query_id=query_id))

    def stop(self, query_id: str, *, answers: bool = False) -> None:
        """Ends a query if it runs. With `answers`, tells the server when it has ended. Idempotent."""
        with self._lock:
            running = self._running.pop(query_id, None)
        if running is not None:
            self._stop(running)
        if answers:
            self.channel.send(QueryHasStopped(query_id=query_id))

    def _stop(self, running: _Running) -> None:
        try:
            running.run.stop()
        except Exception as error:  # noqa: BLE001 - it may have died a moment before
            self._end_without_jvm(error)
        if running.checkpoint is not None:
            shutil.rmtree(running.checkpoint, ignore_errors=True)

    def rest(self) -> None:
        """Puts to sleep what may: persistent queries with nothing to read, where there are many. Returns before they do."""
        with self._idle_lock:
            due = self._due_to_sleep(self.clock.monotonic())
        for query_id, read in due:
            self._lanes.add([query_id], partial(self._sleep, query_id, read), self.stops)

    def _rest_later(self) -> None:
        """Calls `rest` as a task of its own."""
        self._is_rest_due = False
        try:
            self.rest()
        except Exception as error:  # noqa: BLE001 - the root of a task
            self._end_without_jvm(error)
            _log.warning("sql_queries_not_put_to_sleep", reason=str(error))

    def _sleep(self, query_id: str, read: Offsets) -> None:
        with self._lock:
            running = self._running.get(query_id)
        if running is None or running.has_ended or running.has_work:
            return
        self.stop(query_id)
        self.channel.send(QuerySlept(query_id=query_id, read=read))

    def _due_to_sleep(self, now: float) -> list[tuple[str, Offsets]]:
        """Looks how far queries are: which may sleep."""
        with self._lock:
            persistent = [running for running in self._running.values() if running.may_sleep]
        self.idle.keep([running.query_id for running in persistent])
        if len(persistent) <= self.idle.terms.awake_count_max:
            return []
        for running in persistent:
            (query,) = running.run.queries.values()
            progress = spark_sessions.last_progress(query)
            if progress is not None:
                self.idle.note(running.query_id, read_offsets(progress), now)
        return self.idle.due(len(persistent), now)

    def watch(self, ended: threading.Event) -> None:
        """Reports queries that fail to the server, and puts those to sleep that may sleep, until `ended`."""
        looked_at = self.clock.monotonic()
        while not ended.wait(max(_WATCH_S, _WATCH_EACH_S * len(self._running))):
            try:
                self._report()
                now = self.clock.monotonic()
                self._report_figures(now)
                if now - looked_at >= _LOOK_EVERY_S:
                    looked_at = now
                    if not self._is_rest_due:
                        self._is_rest_due = True
                        self.stops.submit(self._rest_later)
            except Exception as error:
                self._end_without_jvm(error)
                raise

    def _report(self) -> None:
        """Tells the server which queries have died, and which have ended a batch that it waits for."""
        with self._lock:
            all_running = list(self._running.values())
        unreported = [running for running in all_running if not running.is_reported]
        some_ended = self.sessions.active_count != sum(len(running.run.queries) for running in unreported)
        for running in all_running:
            if some_ended and running.has_ended and not running.is_reported:
                running.is_reported = True
                self._lanes.add([running.query_id], partial(self._report_dead, running), self.stops)
            elif running.tells_progress and running.has_progressed:
                running.tells_progress = False
                self.channel.send(QueryProgressed(query_id=running.query_id))

    def _report_dead(self, running: _Running) -> None:
        with self._lock:
            if self._running.get(running.query_id) is not running:
                return  # it was stopped, or reported, meanwhile
            del self._running[running.query_id]
        problems = (query.exception() for query in running.run.queries.values() if not query.isActive)
        problem = next((problem for problem in problems if problem), None)
        self._stop(running)
        line = None if problem is None else _line(problem)
        self.channel.send(QueryEnded(query_id=running.query_id, problem=line))

    def leave_jvm(self) -> None:
        """Leaves the JVM alone: it ends by itself with this process, or is killed later."""
        process_id = self.sessions.jvm_process_id
        if process_id is not None:
            jvm_end.kill_later(process_id)

    def _end_without_jvm(self, error: Exception) -> None:
        if spark_sessions.is_jvm_gone(error):
            os._exit(JVM_IS_GONE)


def _line(error: Exception) -> str:
    return failure_line.failure_line(str(error))


def main(descriptor: int, task_count: int) -> None:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--conf spark.ui.showConsoleProgress=false pyspark-shell")
    channel = EngineChannel(socket.socket(fileno=descriptor))
    scratch = EngineScratch()
    core = EngineCore(channel, scratch, EngineSessions(scratch, task_count))
    ended = threading.Event()
    threading.Thread(target=core.watch, args=[ended], name="odradek-sql-watch", daemon=True).start()
    core.begin()  # while what queries need is imported here
    for message in channel.messages():
        match message:
            case SleepTerms():
                core.idle = IdleQueries(message)
            case MeasureQueries():
                core.measure(message)
            case _:
                core.obey(message)
    ended.set()
    core.scratch.close()
    core.leave_jvm()
    os._exit(0)  # queries end where they are: they go on from their checkpoints


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
