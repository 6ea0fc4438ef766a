"""Spark sessions: how each of ours begins, and what the rest of the house asks of Spark's JVM.

Nothing outside of this room touches PySpark's bridge to Java, except the doors of SQL, which run Java of their own.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, cast

from odradek.model.lazy import lazy
from odradek.spark.engine.jvm import BRIEF, JAVA_OPTIONS, start_jvm
from odradek.spark.engine.local_broadcasts import share_values
from odradek.spark.engine.local_workers import take_last_worker_first
from odradek.spark.engine.own_session import is_local
from odradek.spark.engine.small_batches import interpret_small_batches
from odradek.spark.engine.stopped_queries import expect_ends_of_accumulators
from odradek.spark.engine.unpacked_pyspark import PATIENT_WITH_WORKERS

if TYPE_CHECKING:
    import pyspark.sql as sql
    from py4j import protocol as py4j_protocol
    from py4j.java_gateway import JavaGateway, JavaObject, JVMView
    from pyspark.sql.classic.column import Column as ClassicColumn
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
    from pyspark.sql.streaming.query import StreamingQuery
else:
    sql = lazy("pyspark.sql")
    py4j_protocol = lazy("py4j.protocol")

_log: Final = logging.getLogger("odradek.streams")
LOCAL: Final = "local[*]"
ROCKS_DB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATE_STORE: Final = "spark.sql.streaming.stateStore.providerClass"
SHUFFLES: Final = "spark.sql.shuffle.partitions"
WITHOUT_ORIGINS: Final = {"spark.python.sql.dataFrameDebugging.enabled": "false"}
"""PySpark tells the JVM for each expression where in Python it is made, with seven calls: 98,000 of 102,000 calls of 19 cases
of tests/sql. Those places are in our translation, and errors of programs are one line without them.
"""
_STATE_SERVER: Final = (
    "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer"
)
_SHELL: Final = "org.apache.hadoop.util.Shell"
_TRIGGERS: Final = "org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor"
FAILED_TASKS: Final = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")
_OF_ALL: Final = {
    "spark.sql.session.timeZone": "UTC",
    **PATIENT_WITH_WORKERS,
}
_ROW_CHECKSUM: Final = "spark.sql.shuffle.orderIndependentChecksum"
_OF_LOCAL: Final = {
    "spark.ui.enabled": "false",
    JAVA_OPTIONS: BRIEF,
    # A checksum of each row tells whether a stage that runs again, since an executor was lost, writes other rows. Here no
    # executor can be lost alone, and it would take a fifth of the JVM's time for rows.
    f"{_ROW_CHECKSUM}.enabled": "false",
    f"{_ROW_CHECKSUM}.enableFullRetryOnMismatch": "false",
    f"{_ROW_CHECKSUM}.enableQueryLevelRollbackOnMismatch": "false",
}


def new_session(
    name: str,
    settings: Mapping[str, str] | None = None,
    *,
    master: str = LOCAL,
    output: Callable[[bytes], object] | None = None,
) -> sql.SparkSession:
    """Makes a session, and starts the JVM of this process unless there is one.

    Times are in UTC. On a local master no page is served, and the JVM is one for seconds: set `JAVA_OPTIONS` to `LASTING` for
    one that lives for hours. `settings` go before all of that. `output`: as in `start_jvm`.
    """
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(variable, sys.executable)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    wanted = {
        "spark.master": master,
        "spark.app.name": name,
        **_OF_ALL,
        **(_OF_LOCAL if is_local(master) else {}),
        **(settings or {}),
    }
    of_jvm = start_jvm(wanted, output)
    spark = sql.SparkSession.builder.config(map={**of_jvm, **wanted}).getOrCreate()
    expect_ends_of_accumulators(spark)
    return spark


def session_with_state(
    name: str, existing: sql.SparkSession | None, tasks: int, settings: Mapping[str, str] | None = None
) -> sql.SparkSession:
    """Returns the given session, the active one, or a new local one. Its state stores are RocksDB, which transformWithState
    needs. `settings`: of a new one.
    """
    spark = existing or sql.SparkSession.getActiveSession()
    if spark is None:
        own = {
            SHUFFLES: str(tasks),
            "spark.sql.adaptive.enabled": "false",
            **WITHOUT_ORIGINS,
            **(settings or {}),
        }
        spark = new_session(name, own)
        keep_quiet(spark)
        if is_local(spark.sparkContext.master or ""):
            interpret_small_batches(spark)
            share_values(spark)
            take_last_worker_first(spark)
    if spark.conf.get(STATE_STORE) != ROCKS_DB:
        spark.conf.set(STATE_STORE, ROCKS_DB)
    return spark


def beside(spark: sql.SparkSession) -> sql.SparkSession:
    """Returns another session of the same JVM, for the calling thread, with functions of its own and the same settings.

    Spark looks the session of a thread up in places where none is named: it is that one from now on.
    """
    other = spark.newSession()
    there = other.conf.getAll
    for name, value in spark.conf.getAll.items():
        if there.get(name) != value and spark.conf.isModifiable(name):
            other.conf.set(name, value)
    theirs, ours = (java_session(session).experimental() for session in (other, spark))
    getattr(theirs, "extraOptimizations_$eq")(ours.extraOptimizations())
    jvm_of(spark).org.apache.spark.sql.classic.SparkSession.setActiveSession(other._jsparkSession)
    return other


# -- the lines of its log


def keep_quiet(spark: sql.SparkSession) -> None:
    """Silences loggers of Spark whose lines are of no use, or repeat what our errors contain in one line.

    Spark warns of each name that a state does not have yet. It writes a stack trace of 50 lines for a query that is stopped
    while it writes a file, and twice 3 kB for a task that fails on a local master, whose reason the query's error names. All
    of it is written when Python's logger `odradek.streams` takes lines of level DEBUG.
    """
    if _log.isEnabledFor(logging.DEBUG):
        return
    levels = dict.fromkeys((_STATE_SERVER, _SHELL), "ERROR")
    if is_local(spark.sparkContext.master or ""):
        levels |= dict.fromkeys(FAILED_TASKS, "OFF")
    set_log_levels(spark, levels)


def keep_triggers_quiet(spark: sql.SparkSession) -> None:
    """Silences warnings of triggers that take longer than their interval, as those do whose sources wait for records."""
    if not _log.isEnabledFor(logging.DEBUG):
        set_log_levels(spark, {_TRIGGERS: "ERROR"})


def set_log_levels(spark: sql.SparkSession, levels: Mapping[str, str]) -> None:
    """Sets the levels (of log4j) of loggers of the JVM."""
    log4j = jvm_of(spark).org.apache.logging.log4j
    for logger, level in levels.items():
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.valueOf(level))


# -- its JVM


def jvm_of(spark: sql.SparkSession) -> JVMView:
    """Returns what PySpark calls Java through. A session of Spark Connect has none."""
    return spark.sparkContext._jvm


def jvm_process(spark: sql.SparkSession) -> subprocess.Popen[bytes]:
    """Returns the JVM as the child of this process that it is."""
    gateway: JavaGateway = spark.sparkContext._gateway
    process: subprocess.Popen[bytes] = gateway.proc
    return process


def java_session(spark: sql.SparkSession) -> JavaObject:
    """Returns the session of Java that is inside."""
    return spark._jsparkSession


def java_frame(rows: sql.DataFrame) -> JavaObject:
    """Returns the DataFrame of Java that is inside. One of Spark Connect has none."""
    return cast("ClassicFrame", rows)._jdf


def java_column(column: sql.Column) -> JavaObject:
    """Returns the column of Java that is inside. One of Spark Connect has none."""
    return cast("ClassicColumn", column)._jc


def java_array(spark: sql.SparkSession, length: int) -> JavaObject:
    """Returns a new `Object[length]`."""
    gateway: JavaGateway = spark.sparkContext._gateway
    return gateway.new_array(gateway.jvm.java.lang.Object, length)


def is_jvm_gone(error: Exception) -> bool:
    """Tells whether a call failed because the JVM has ended. A JVM that dies during a call leaves an empty reply, which py4j
    calls an error of no kind, and without a trace.
    """
    if isinstance(error, py4j_protocol.Py4JNetworkError | ConnectionError | EOFError):
        return True
    return type(error) is py4j_protocol.Py4JError and "Trace:" not in str(error)


# -- its queries


class SessionQueries:
    """The running queries of one session, asked without an object of PySpark for each."""

    def __init__(self, spark: sql.SparkSession) -> None:
        session: JavaObject = spark._jsparkSession
        self._manager: Final = session.streams()

    @property
    def active_count(self) -> int:
        """The number of queries that run now."""
        return len(self._manager.active())


def last_progress(query: StreamingQuery) -> str | None:
    """Returns the query's last progress as JSON; None before its first batch. PySpark's own `lastProgress` parses it."""
    running: JavaObject = query._jsq
    progress = running.lastProgress()
    return None if progress is None else str(progress.json())


def has_progress(query: StreamingQuery) -> bool:
    """Tells whether the query has ended a batch, or has seen that there is nothing to read. One call, and no JSON."""
    running: JavaObject = query._jsq
    return running.lastProgress() is not None
