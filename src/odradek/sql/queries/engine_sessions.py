"""Engine sessions: one Spark session for each thread that starts queries, in one JVM."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy
from odradek.runtime import real_process
from odradek.runtime.real_clock import SystemClock
from odradek.spark.engine.jvm import BRIEF, JAVA_OPTIONS
from odradek.spark.engine.own_session import DIRECTORIES
from odradek.sql.queries.scratch import EngineScratch
from odradek.telemetry import events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.spark import query_metrics
    from odradek.spark.engine import session as spark_sessions
    from odradek.spark.engine import shared_planners
    from odradek.spark.engine.session import SessionQueries
    from odradek.spark.query_metrics import QueryProgressListener
    from odradek.sql.functions import registering
else:
    query_metrics = lazy("odradek.spark.query_metrics")
    registering = lazy("odradek.sql.functions.registering")
    shared_planners = lazy("odradek.spark.engine.shared_planners")
    spark_sessions = lazy("odradek.spark.engine.session")

_log = events.get("sql")
_WORKERS_USE: Final = (
    "odradek.archive.history.read_through",
    "odradek.sql.functions.registering",
    "odradek.sql.planning.building",
    "odradek.streams.translation.translator",
)
_RULES_OF_FILES: Final = (
    "org.apache.spark.sql.execution.datasources.PruneFileSourcePartitions",
    "org.apache.spark.sql.execution.datasources.PushVariantIntoScan",
    "org.apache.spark.sql.execution.datasources.SchemaPruning",
)
"""Rules of Spark's optimizer that only make reads of files cheaper. Queries read topics, and each of these rules collects
the projections and filters of every plan first.
"""
_SETTINGS: Final = {
    "spark.driver.memory": "640m",
    # MetaspaceSize: no full collection just because classes are loaded
    JAVA_OPTIONS: f"{BRIEF} -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=25 -XX:MetaspaceSize=256m",
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "96",
    "spark.sql.streaming.stateStore.numStateStoreInstanceMetricsToReport": "0",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",  # lists that are null cost its square
    "spark.sql.execution.arrow.maxBytesPerBatch": "33554432",  # 2,000 large records at once are more than the heap
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.sql.codegen.cache.maxEntries": "500",  # a query has two to five classes: beyond 100, each batch compiles them again
    "spark.sql.optimizer.excludedRules": ",".join(_RULES_OF_FILES),
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "1000",
    "spark.sql.debug.maxToStringFields": "3",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.ui.retainedDeadExecutors": "1",
}
"""Fifty queries, on two cores and 3 GB: what Spark keeps of batches that have ended is not looked at."""
TASKS_OF_A_CORE: Final = 2
"""A record reaches the last of fifty queries after 4.1 s on two cores; with one task for each after 5.0 s, with four 4.2."""
_PYTHON: Final = "PYSPARK_PYTHON"
_DRIVER_PYTHON: Final = "PYSPARK_DRIVER_PYTHON"
"""Spark plans with this one, and runs tasks with the other."""


_PLAN_TEXTS: Final = "org.apache.spark.sql.catalyst.util.StringUtils"
"""It warns four times in each batch that a plan's text is cut to `maxPlanStringLength`."""


def session_settings(task_count: int) -> dict[str, str]:
    """Returns the settings of the engine's sessions.

    `task_count`: the tasks that run side by side; 0: two for each core, because a task of a small batch waits for its Python
    worker, and that for the broker.
    """
    count = task_count or TASKS_OF_A_CORE * real_process.usable_cpu_count()
    return {**_SETTINGS, "spark.master": f"local[{count}]"}


class EngineSessions:
    """A thread changes settings and functions of its session while it starts a query, and disturbs no other start."""

    def __init__(self, scratch: EngineScratch, task_count: int = 0) -> None:
        """`task_count`: as in `session_settings`."""
        self._settings: Final = session_settings(task_count)
        self._scratch: Final = scratch
        self._lock: Final = threading.Lock()
        self._of_thread: Final = threading.local()
        self._first: SparkSession | None = None
        self.shares_planners = False
        """True if the sources of a query are in one process, where one ends the waits of the others."""
        self._queries: Final[list[SessionQueries]] = []
        self._listener: QueryProgressListener | None = None
        self._measured: Final[list[SparkSession]] = []
        """The sessions that a listener would be added to."""

    def of_this_thread(self) -> SparkSession:
        """Returns the session of the calling thread. The first thread that asks starts the JVM, and the others wait for it."""
        spark = getattr(self._of_thread, "spark", None)
        if spark is None:
            with self._lock:
                if self._first is None:
                    self._first = spark = self._start()
                else:
                    spark = spark_sessions.beside(self._first)
            registering.register(spark)
            with self._lock:
                if self._listener is not None:
                    spark.streams.addListener(self._listener)
                self._measured.append(spark)
            self._of_thread.spark = spark
            self._queries.append(spark_sessions.SessionQueries(spark))
        return spark

    def measure(self) -> QueryProgressListener:
        """Returns the listener of all sessions: those that there are, and those that come."""
        with self._lock:
            if self._listener is None:
                self._listener = query_metrics.QueryProgressListener(SystemClock())
                for spark in self._measured:
                    spark.streams.addListener(self._listener)
            return self._listener

    @property
    def active_count(self) -> int:
        """The number of Spark's queries that run now, of all threads. It costs two calls of the JVM for each of them."""
        return sum(queries.active_count for queries in list(self._queries))

    @property
    def jvm_process_id(self) -> int | None:
        """The process id of the JVM; None before the first session."""
        return None if self._first is None else spark_sessions.jvm_process(self._first).pid

    def _start(self) -> SparkSession:
        if os.environ.get(_PYTHON, sys.executable) == sys.executable:  # a Python of the user's own stays
            try:
                planners = shared_planners.SharedPlanners(
                    self._scratch.directory("planners"), workers_use=_WORKERS_USE
                )
                os.environ[_PYTHON] = os.environ[_DRIVER_PYTHON] = str(planners.python)
                self.shares_planners = True
            except OSError as error:  # such as TMPDIR, whose path is too long for a socket
                _log.warning("sql_planners_not_shared", reason=str(error))
        os.environ.setdefault(DIRECTORIES, str(self._scratch.directory("spark")))
        spark = spark_sessions.session_with_state("odradek-sql", None, 1, self._settings)
        spark_sessions.keep_triggers_quiet(spark)
        spark_sessions.set_log_levels(spark, {_PLAN_TEXTS: "ERROR"})
        return spark
