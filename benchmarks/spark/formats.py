"""One Spark session, two formats in turn, on the same topics: what `benchmarks.spark.connector` runs with the older Spark.

    python -m benchmarks.spark.formats HOST:PORT JARS ROUNDS SCALE MINUTES tcp|unix ONLY

It prints JSON: for each case and format the rows per second of each round, and the memory of an idle query's Python processes.
After so many minutes no round begins any more, unless there was none yet.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark.connector import READY_MADE
from benchmarks.spark.ready_made import ReadyMadeSource
from benchmarks.watch import memory
from odradek.client import Admin, NewTopic, Producer

CONNECTOR: Final = "kafka"
OURS: Final = "odradek"
FORMATS: Final = (CONNECTOR, OURS)
IDLE_SECONDS: Final = 5.0
_FILL_ROWS: Final = 20_000
_STREAM_SECONDS: Final = 300


def main() -> None:
    servers, jars, rounds, scale = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    minutes, sockets, only = float(sys.argv[5]), sys.argv[6], sys.argv[7]
    spark = session(jars, sockets)
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as temporary:
        cases = Cases(spark, servers, scale, Path(temporary))
        cases.fill()
        figures = measured(chosen(cases.all(), only), formats_of, rounds, minutes)
        idle = cases.idle_memory()
    sys.stdout.write(json.dumps({"spark": spark.version, "rows/s": figures, "idle": idle}) + "\n")
    spark.stop()


def session(jars: str, sockets: str) -> SparkSession:
    """Starts the session in which both formats run; `jars` are the connector's, separated by commas."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.jars", jars)
        .config("spark.python.unix.domain.socket.enabled", str(sockets == "unix").lower())
        .getOrCreate()
    )
    spark.dataSource.register(ReadyMadeSource)
    return spark


def chosen(cases: Mapping[str, Callable[[str], float]], only: str) -> dict[str, Callable[[str], float]]:
    """Returns the cases whose name contains a text. ValueError if there are none."""
    some = {name: case for name, case in cases.items() if only in name}
    if not some:
        raise ValueError(f"no row has {only!r} in its name; there are: {'; '.join(cases)}")
    return some


def measured(
    cases: Mapping[str, Callable[[str], float]],
    formats_of: Callable[[str], tuple[str, ...]],
    rounds: int,
    minutes: float,
    once: Collection[str] = (),
) -> dict[str, dict[str, list[float]]]:
    """Returns rows per second of every round, by case and format.

    The formats of a case run in turn; the first round warms up. Those in `once` take minutes: they run in the second
    round alone.
    """
    last_start = time.monotonic() + 60 * minutes
    figures: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds + 1):
        if number > 1 and time.monotonic() > last_start:
            break
        for name, case in cases.items():
            if name in once and number != 1:
                continue
            formats = formats_of(name)
            for spark_format in formats if number % 2 else formats[::-1]:
                rows_per_second = case(spark_format)
                if number:
                    figures.setdefault(name, {}).setdefault(spark_format, []).append(rows_per_second)
    return figures


def formats_of(case: str) -> tuple[str, ...]:
    return FORMATS if case.startswith("batch write") else (*FORMATS, READY_MADE)


class Cases:
    """What is measured; each gives rows per second of a format."""

    def __init__(self, spark: SparkSession, servers: str, scale: float, directory: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._directory = directory
        self._rows = {100: int(2_000_000 * scale), 1024: int(500_000 * scale)}
        self._stream_rows = {100: int(250_000 * scale), 1024: int(75_000 * scale)}

    def fill(self) -> None:
        with Admin(self._servers) as admin:
            admin.create_topics([NewTopic(_topic(size), 1) for size in self._rows])
        for size, count in self._rows.items():
            value = os.urandom(size)
            with Producer(self._servers, linger_ms=5) as producer:
                for start in range(0, count, _FILL_ROWS):
                    keys = [b"%010d" % key for key in range(start, min(start + _FILL_ROWS, count))]
                    columns = {
                        "key": pa.array(keys, pa.binary()),
                        "value": pa.array([value] * len(keys), pa.binary()),
                    }
                    producer.send_arrow(_topic(size), pa.RecordBatch.from_pydict(columns))

    def all(self) -> dict[str, Callable[[str], float]]:
        cases: dict[str, Callable[[str], float]] = {}
        for size in self._rows:
            name = f"{size} B"
            cases[f"batch read, {name}"] = lambda spark_format, size=size: self._batch(spark_format, size)  # type: ignore[misc]
            cases[f"micro-batches of {self._stream_rows[size]:,}, {name}"] = (
                lambda spark_format, size=size: self._stream(spark_format, size)  # type: ignore[misc]
            )
            cases[f"batch write, {name}"] = lambda spark_format, size=size: self._write(spark_format, size)  # type: ignore[misc]
        return cases

    def _batch(self, spark_format: str, size: int) -> float:
        began = time.perf_counter()  # load() of a source in Python calls a worker
        reader = self._spark.read.format(spark_format)
        if spark_format == READY_MADE:
            rows = reader.option("rows", self._rows[size]).option("bytes", size).load()
        else:
            rows = self._options(reader, size).option("minPartitions", "2").load()
        rows.write.format("noop").mode("overwrite").save()
        return self._rows[size] / (time.perf_counter() - began)

    def _stream(self, spark_format: str, size: int) -> float:
        """Returns the median of the rates of the batches between the first and the last."""
        query: Any = (
            self._streamed(spark_format, size)
            .writeStream.format("noop")
            .option("checkpointLocation", str(self._directory / f"c-{time.time_ns()}"))
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(_STREAM_SECONDS):
            raise RuntimeError(f"the stream of {spark_format} did not end within {_STREAM_SECONDS} s")
        batches = [entry for entry in query.recentProgress if entry["numInputRows"]]
        middle = batches[1:-1] or batches
        rates = [
            entry["numInputRows"] / (entry["durationMs"]["triggerExecution"] / 1_000) for entry in middle
        ]
        return float(statistics.median(rates))

    def _streamed(self, spark_format: str, size: int) -> DataFrame:
        reader: Any = self._spark.readStream.format(spark_format)
        if spark_format == READY_MADE:
            ready: DataFrame = (
                reader.option("rows", self._rows[size])
                .option("bytes", size)
                .option("batchRows", self._stream_rows[size])
                .load()
            )
            return ready
        frame: DataFrame = (
            self._options(reader, size)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(self._stream_rows[size]))
            .load()
        )
        return frame

    def _write(self, spark_format: str, size: int) -> float:
        count = self._rows[size] // 5
        target = f"out-{time.time_ns()}"
        rows = self._spark.range(0, count, 1, 2).selectExpr(
            "CAST(id AS STRING) AS key", f"repeat('x', {size}) AS value"
        )
        with Admin(self._servers) as admin:
            admin.create_topics([NewTopic(target, 2)])
            began = time.perf_counter()
            writer = rows.write.format(spark_format).option("kafka.bootstrap.servers", self._servers)
            writer.option("topic", target).mode("append").save()
            seconds = time.perf_counter() - began
            admin.delete_topics([target])
        return count / seconds

    def idle_memory(self) -> dict[str, list[float]]:
        """MB of each Python process that Spark keeps for a query that waits; those of earlier queries are left out."""
        before = {python.pid for python in _pythons()}
        query: Any = (
            self._options(self._spark.readStream.format("odradek"), 100)
            .option("startingOffsets", "latest")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(self._directory / "idle"))
            .start()
        )
        time.sleep(IDLE_SECONDS)
        results = [memory(python.pid) for python in _pythons() if python.pid not in before]
        query.stop()
        return {
            "rss": [round(item.rss_bytes / 1e6, 1) for item in results],
            "pss": [round(item.pss_bytes / 1e6, 1) for item in results],
        }

    def _options(self, reader: Any, size: int) -> Any:
        return reader.option("kafka.bootstrap.servers", self._servers).option("subscribe", _topic(size))


def _topic(size: int) -> str:
    return f"rows-of-{size}"


def _pythons() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if "python" in child.name()]


if __name__ == "__main__":
    main()
