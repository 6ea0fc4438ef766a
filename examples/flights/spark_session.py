"""Spark on this machine, quiet, and the pipeline run to its end with a progress bar."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import hourly_departures
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

TASKS = 2
LOOK_EVERY_S = 0.3
STDERR = 2
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives a minute on two cores: compile quickly rather than well. Leave this out for a pipeline that stays."""


@dataclass(frozen=True)
class Outcome:
    """What the stream said about itself."""

    batch_count: int
    first_batch_s: float
    """Spark compiles what it will run, and starts its Python workers."""
    other_batches_s: float
    late_count: int
    """Flights dropped because their hour had been written already."""


def start(log: Path) -> SparkSession:
    """A session on two cores that needs no network beyond 127.0.0.1; what the JVM has to say goes to `log`."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    logging.getLogger("py4j").setLevel(logging.ERROR)
    with _errors_to(log):
        return (
            SparkSession.builder.appName("odradek-flights")
            .master(f"local[{TASKS}]")
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


def run_pipeline(
    spark: SparkSession, servers: str, checkpoint: Path, record_count: int, console: Console
) -> Outcome:
    """Run the stream over all that is in the topics; raises what it died of."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(" pipeline", total=record_count)
        query = hourly_departures.start(spark, servers, str(checkpoint))
        while query.isActive:
            progress.update(bar, completed=_rows_read(query))
            time.sleep(LOOK_EVERY_S)
        query.awaitTermination()
        progress.update(bar, completed=_rows_read(query))
    return _outcome(query)


def _rows_read(query: StreamingQuery) -> int:
    return sum(batch["numInputRows"] for batch in query.recentProgress)


def _outcome(query: StreamingQuery) -> Outcome:
    batches = query.recentProgress
    seconds = [batch["durationMs"]["triggerExecution"] / 1_000 for batch in batches]
    late = [
        operator["numRowsDroppedByWatermark"] for batch in batches for operator in batch["stateOperators"]
    ]
    return Outcome(
        batch_count=len(batches),
        first_batch_s=seconds[0],
        other_batches_s=sum(seconds[1:]),
        late_count=sum(late),
    )


def read_result(spark: SparkSession, servers: str) -> pd.DataFrame:
    return hourly_departures.read_back(spark, servers).toPandas()
