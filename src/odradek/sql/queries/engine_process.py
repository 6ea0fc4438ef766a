"""The process that runs queries: one JVM, one Spark session. `python -m odradek.sql.queries.engine_process DESCRIPTOR`.

It is started with the first query that needs Spark. It knows nothing by itself: the server says what runs. When the server is
gone it ends; when its JVM is gone it ends, too, and the server starts another one and says again what runs.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.model.lazy import lazy
from odradek.runtime.real_clock import SystemClock
from odradek.spark.own_session import DIRECTORIES
from odradek.sql.queries import jvm_end
from odradek.sql.queries.channel import (
    EngineChannel,
    QueryEnded,
    QueryRows,
    QueryRunning,
    QuerySlept,
    StartArchive,
    StartPush,
    StartQuery,
    StopQuery,
)
from odradek.sql.queries.scratch import EngineScratch
from odradek.sql.queries.sleeping import IdleQueries, Offsets, SleepTerms, read_offsets
from odradek.telemetry import events

if TYPE_CHECKING:
    from py4j import protocol as py4j_protocol

    from odradek.pipelines import failure_line
    from odradek.runtime.ports import Clock
    from odradek.spark import shared_planners
    from odradek.sql.functions import registering
    from odradek.sql.queries.archive_run import ArchiveRun
    from odradek.streams import app as streams_app
    from odradek.streams import session as streams_session
    from odradek.streams.running import Run
else:
    py4j_protocol = lazy("py4j.protocol")
    failure_line = lazy("odradek.pipelines.failure_line")
    registering = lazy("odradek.sql.functions.registering")
    shared_planners = lazy("odradek.spark.shared_planners")
    streams_app = lazy("odradek.streams.app")
    streams_session = lazy("odradek.streams.session")

_log = events.get("sql")
JVM_IS_GONE: Final = 70
_WORKERS_USE: Final = (
    "odradek.archive.history.read_through",
    "odradek.sql.functions.registering",
    "odradek.sql.planning.building",
    "odradek.streams.translation.translator",
)
_SETTINGS: Final = {
    "spark.driver.memory": "640m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=25"
    " -XX:MetaspaceSize=256m",  # no full collection just because classes are loaded
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "96",
    "spark.sql.streaming.stateStore.numStateStoreInstanceMetricsToReport": "0",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",  # lists that are null cost its square
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # half of the calls of a program's start say where in Python it is
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.ui.retainedDeadExecutors": "1",
}
"""Fifty queries, on two cores and 3 GB: what Spark keeps of batches that have ended is not looked at."""
_WATCH_S: Final = 0.25
_WATCH_EACH_S: Final = 0.02
"""Many queries are looked at less often: each costs calls of the JVM."""
_LOOK_EVERY_S: Final = 5.0
"""So often it is looked up how far queries have read, while there are more than shall be awake."""
_PYTHON: Final = "PYSPARK_PYTHON"
_DRIVER_PYTHON: Final = "PYSPARK_DRIVER_PYTHON"
"""Spark plans with this one, and runs tasks with the other."""


@dataclass(slots=True)
class _Running:
    query_id: str
    run: Run | ArchiveRun
    checkpoint: Path | None = None
    """To be removed with the query: of a push query, and of an archive, which says itself how far it is."""

    @property
    def may_sleep(self) -> bool:
        """Not one that fills an archive: it waits for its files to become large, though there is something to read."""
        return self.checkpoint is None

    @property
    def has_ended(self) -> bool:
        return not all(query.isActive for query in self.run.queries.values())

    @property
    def has_work(self) -> bool:
        """As far as the query knows."""
        return any(query.status["isDataAvailable"] for query in self.run.queries.values())


@dataclass(slots=True)
class EngineCore:
    """Starts, watches and stops queries. `start`, `stop` and `rest` run on one thread, that of `pool`: in the order in which
    the server wants it.
    """

    channel: EngineChannel
    scratch: EngineScratch
    pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="odradek-sql")
    )
    clock: Clock = field(default_factory=SystemClock)
    idle: IdleQueries = field(default_factory=lambda: IdleQueries(SleepTerms()))
    _running: dict[str, _Running] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _spark: Any = None
    _is_rest_due: bool = False

    def open(self) -> None:
        """Start the JVM: this process is here because a query needs it. `start` tries again, and says why it cannot."""
        try:
            self._spark = self._new_session()
        except Exception as error:  # noqa: BLE001 - the root of a task
            self._end_without_jvm(error)
            _log.warning("sql_session_not_started", reason=str(error))

    def start(self, order: StartQuery | StartArchive | StartPush) -> None:
        """Answers QueryRunning or QueryEnded."""
        query_id = order.query_id
        checkpoint: Path | None = None
        if query_id in self._running:  # it was woken just before it fell asleep
            self.channel.send(QueryRunning(query_id=query_id))
            return
        try:
            if self._spark is None:
                self._spark = self._new_session()
            self.rest()  # of many that start one after another, those that have read all make room
            run: Run | ArchiveRun
            if isinstance(order, StartPush):
                checkpoint = self.scratch.directory("push")
                run = self._start_push(order, checkpoint)
            elif isinstance(order, StartArchive):
                checkpoint = self.scratch.directory("archive")
                run = order.start(self._spark, str(checkpoint))
            else:
                run = self._start_persistent(order)
            with self._lock:
                self._running[query_id] = _Running(query_id, run, checkpoint)
            self.channel.send(QueryRunning(query_id=query_id))
        except Exception as error:  # noqa: BLE001 - the root of a thread: the server hears of it
            self._end_without_jvm(error)
            if checkpoint is not None:
                shutil.rmtree(checkpoint, ignore_errors=True)
            self.channel.send(QueryEnded(query_id=query_id, problem=_line(error)))

    def _new_session(self) -> Any:
        if _PYTHON not in os.environ:
            try:
                planners = shared_planners.SharedPlanners(
                    self.scratch.directory("planners"), workers_use=_WORKERS_USE
                )
                os.environ[_PYTHON] = os.environ[_DRIVER_PYTHON] = str(planners.python)
            except OSError as error:  # such as TMPDIR, whose path is too long for a socket
                _log.warning("sql_planners_not_shared", reason=str(error))
        os.environ.setdefault(DIRECTORIES, str(self.scratch.directory("spark")))
        spark = streams_session.session("odradek-sql", None, 1, _SETTINGS)
        registering.register(spark)
        return spark

    def _start_persistent(self, order: StartQuery) -> Run:
        app = streams_app.Streams(
            order.name,
            servers=order.servers,
            options=order.options,
            on_error="skip",  # as ksqlDB: a record that cannot be read is left out, and the log says which
            spark=self._spark,
            starting=order.starting,
        )
        order.build(app)
        return app.start(checkpoint=order.checkpoint, interval=f"{order.interval_ms} milliseconds")

    def _start_push(self, order: StartPush, checkpoint: Path) -> Run:
        app = streams_app.Streams(
            order.query_id,
            servers=order.servers,
            options=order.options,
            on_error="skip",  # as ksqlDB: a record that cannot be read is left out, and the log says which
            spark=self._spark,
            starting=order.starting,
        )
        left = [order.limit]

        def give(row: list[Any]) -> None:
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
        """Of a push query: it has all its rows. The query itself ends when the server says so."""
        self.channel.send(QueryEnded(query_id=query_id))

    def stop(self, query_id: str, *, answers: bool = False) -> None:
        """Idempotent."""
        with self._lock:
            running = self._running.pop(query_id, None)
        if running is not None:
            self._stop(running)
        if answers:
            self.channel.send(QueryEnded(query_id=query_id))

    def _stop(self, running: _Running) -> None:
        try:
            running.run.stop()
        except Exception as error:  # noqa: BLE001 - it may have died a moment before
            self._end_without_jvm(error)
        if running.checkpoint is not None:
            shutil.rmtree(running.checkpoint, ignore_errors=True)

    def rest(self) -> None:
        """Put to sleep what may: persistent queries with nothing to read, where there are many."""
        for query_id, read in self._due_to_sleep(self.clock.monotonic()):
            self._sleep(query_id, read)

    def _rest_later(self) -> None:
        """`rest`, as a task of its own."""
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
        """Look how far queries are: which may sleep."""
        with self._lock:
            persistent = [running for running in self._running.values() if running.may_sleep]
        self.idle.keep([running.query_id for running in persistent])
        if len(persistent) <= self.idle.terms.awake_count_max:
            return []
        for running in persistent:
            (query,) = running.run.queries.values()
            progress = query._jsq.lastProgress()
            if progress is not None:
                self.idle.note(running.query_id, read_offsets(progress.json()), now)
        return self.idle.due(len(persistent), now)

    def watch(self, ended: threading.Event) -> None:
        """Until `ended`: tell the server of queries that die, and put to sleep what may."""
        looked_at = self.clock.monotonic()
        while not ended.wait(max(_WATCH_S, _WATCH_EACH_S * len(self._running))):
            try:
                self._report_dead()
                now = self.clock.monotonic()
                if now - looked_at >= _LOOK_EVERY_S:
                    looked_at = now
                    if not self._is_rest_due:
                        self._is_rest_due = True
                        self.pool.submit(self._rest_later)
            except Exception as error:
                self._end_without_jvm(error)
                raise

    def _report_dead(self) -> None:
        with self._lock:
            all_running = list(self._running.values())
        for running in all_running:
            dead = [query for query in running.run.queries.values() if not query.isActive]
            problem = next((query.exception() for query in dead if query.exception()), None)
            if not dead:
                continue
            with self._lock:
                if self._running.pop(running.query_id, None) is None:
                    continue  # it was stopped meanwhile
            self._stop(running)
            line = None if problem is None else _line(problem)
            self.channel.send(QueryEnded(query_id=running.query_id, problem=line))

    def leave_jvm(self) -> None:
        """It ends by itself with this process, or is killed later."""
        if self._spark is not None:
            jvm_end.kill_later(self._spark.sparkContext._gateway.proc.pid)

    def _end_without_jvm(self, error: Exception) -> None:
        if says_jvm_is_gone(error):
            os._exit(JVM_IS_GONE)


def says_jvm_is_gone(error: Exception) -> bool:
    """A JVM that dies during a call leaves an empty answer, which py4j calls an error of no kind, and without a trace."""
    if isinstance(error, py4j_protocol.Py4JNetworkError | ConnectionError | EOFError):
        return True
    return type(error) is py4j_protocol.Py4JError and "Trace:" not in str(error)


def _line(error: Exception) -> str:
    return failure_line.failure_line(str(error))


def main(descriptor: int) -> None:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--conf spark.ui.showConsoleProgress=false pyspark-shell")
    channel = EngineChannel(socket.socket(fileno=descriptor))
    core = EngineCore(channel, EngineScratch())
    ended = threading.Event()
    threading.Thread(target=core.watch, args=[ended], name="odradek-sql-watch", daemon=True).start()
    core.pool.submit(core.open)  # while what queries need is imported here
    for message in channel.messages():
        match message:
            case SleepTerms():
                core.idle = IdleQueries(message)
            case StartQuery() | StartArchive() | StartPush():
                core.pool.submit(core.start, message)
            case StopQuery():
                core.pool.submit(core.stop, message.query_id, answers=message.answers)
    ended.set()
    core.scratch.close()
    core.leave_jvm()
    os._exit(0)  # queries end where they are: they go on from their checkpoints


if __name__ == "__main__":
    main(int(sys.argv[1]))
