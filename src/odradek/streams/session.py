"""A Spark session that is light enough for a laptop and for tests."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from odradek.model.lazy import lazy
from odradek.streams.jvm import BRIEF, JAVA_OPTIONS, start_jvm

if TYPE_CHECKING:
    import pyspark.sql as sql
else:
    sql = lazy("pyspark.sql")

_log: Final = logging.getLogger("odradek.streams")
ROCKS_DB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_STATE_SERVER: Final = (
    "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer"
)
_SHELL: Final = "org.apache.hadoop.util.Shell"
FAILED_TASKS: Final = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")
_STORE: Final = "spark.sql.streaming.stateStore.providerClass"


def session(
    name: str, given: sql.SparkSession | None, tasks: int, settings: Mapping[str, str] | None = None
) -> sql.SparkSession:
    """The given session, the active one, or a new local one. Its state stores are RocksDB, which transformWithState needs.
    `settings`: of a new one.
    """
    spark = given or sql.SparkSession.getActiveSession()
    if spark is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        all_settings: dict[str, Any] = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(tasks),
            "spark.sql.session.timeZone": "UTC",
            JAVA_OPTIONS: BRIEF,
            "spark.sql.adaptive.enabled": "false",
            **(settings or {}),
        }
        all_settings = {**start_jvm({"spark.master": "local[*]", **all_settings}), **all_settings}
        builder = sql.SparkSession.builder.appName(name).master("local[*]")
        spark = builder.config(map=all_settings).getOrCreate()
        keep_quiet(spark)
    if spark.conf.get(_STORE) != ROCKS_DB:
        spark.conf.set(_STORE, ROCKS_DB)
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
    jvm: Any = spark.sparkContext._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(other._jsparkSession)
    return other


def keep_quiet(spark: sql.SparkSession) -> None:
    """Silences loggers of Spark whose lines say nothing, or say again what our errors say in one line.

    Spark warns of each name that a state does not have yet. It writes a stack trace of 50 lines for a query that is stopped
    while it writes a file, and twice 3 kB for a task that fails on a local master, whose reason the query's error names. All
    of it is written when Python's logger `odradek.streams` takes lines of level DEBUG.
    """
    if _log.isEnabledFor(logging.DEBUG):
        return
    jvm: Any = spark.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    levels = dict.fromkeys((_STATE_SERVER, _SHELL), log4j.Level.ERROR)
    if (spark.sparkContext.master or "").startswith("local"):
        levels |= dict.fromkeys(FAILED_TASKS, log4j.Level.OFF)
    for logger, level in levels.items():
        log4j.core.config.Configurator.setLevel(logger, level)
