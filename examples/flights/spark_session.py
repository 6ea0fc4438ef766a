"""Spark on this machine, quiet."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from odradek.spark.engine.unpacked_pyspark import PATIENT_WITH_WORKERS, unpacked_pyspark

TASKS = 2
STDERR = 2
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that lives a minute on two cores: compile quickly, not well. Leave them out for a pipeline that stays."""


def start(log: Path) -> SparkSession:
    """A session on two cores that needs no network beyond 127.0.0.1; what the JVM has to say goes to `log`."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    logging.getLogger("py4j").setLevel(logging.ERROR)
    with _errors_to(log), unpacked_pyspark():  # workers start ten times faster
        return (
            SparkSession.builder.appName("odradek-flights")
            .master(f"local[{TASKS}]")
            .config(map={**PATIENT_WITH_WORKERS})
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.extraJavaOptions", SHORT_LIFE)
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", TASKS)
            .config("spark.sql.execution.arrow.pyspark.enabled", "true")
            .getOrCreate()
        )


@contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """Let a process that is started in this block write its standard error to a file, for as long as it lives."""
    sys.stderr.flush()
    kept = os.dup(STDERR)
    with log.open("ab") as file:
        os.dup2(file.fileno(), STDERR)
    try:
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)
