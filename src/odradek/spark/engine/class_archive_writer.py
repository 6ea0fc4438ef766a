"""Writes the archive of Spark's classes now, at installation or in an image.

Run it as `python -m odradek.spark.engine.class_archive_writer`.

A session does what most programs do: it counts a stream of a Python data source, in Spark and in Python, and runs some SQL.
Then its JVM ends, and writes down what it has read (`class_archive.py`).
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from py4j.java_gateway import JavaGateway
from pyspark import SparkContext
from pyspark.sql import DataFrame, Row, SparkSession, functions
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from odradek.spark.engine import java
from odradek.spark.engine.class_archive import ClassArchive
from odradek.spark.engine.session import session_with_state
from odradek.spark.engine.unpacked_pyspark import unpacked_pyspark

_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "OFF",
    "spark.ui.showConsoleProgress": "false",
}
_WAIT_S: Final = 600.0
_ROWS: Final = 100


class _Numbers(DataSource):
    """A hundred rows of JSON, once."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "value STRING"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return _NumbersReader()


class _NumbersReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"at": 0}

    def latestOffset(self, *_: object) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"at": _ROWS}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(None)] if start != end else []

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        for number in range(_ROWS):
            yield (f'{{"n": {number}}}',)


class _Counts(StatefulProcessor):
    """Counts the records of each key, with state in RocksDB."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._counts = handle.getMapState("counts", "name BINARY", "data BINARY")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, N803
        known = self._counts.getValue((b"n",))
        count = (0 if known is None else int(known[0])) + sum(1 for _ in rows)
        self._counts.updateValue((b"n",), (b"%d" % count,))
        yield Row(rest=key[0], n=count)

    def close(self) -> None:
        pass


def _as_it_is(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return iter(batches)


def _count(spark: SparkSession, checkpoint: Path) -> None:
    spark.dataSource.register(_Numbers)
    rows = (
        spark.readStream.format("numbers")
        .load()
        .select(functions.from_json("value", "n BIGINT").alias("row"))
    )
    counts = rows.groupBy((functions.col("row.n") % 3).alias("rest")).agg(functions.count("*").alias("rows"))

    def join(batch: DataFrame, _: int) -> None:
        batch.createOrReplaceTempView("counts")
        batch.sparkSession.sql(
            "SELECT sum(rows) FROM counts JOIN VALUES (1), (2) AS w(rest) USING (rest)"
        ).collect()

    writer = counts.writeStream.outputMode("update").option("checkpointLocation", str(checkpoint / "counts"))
    _run_to_end(writer.foreachBatch(join).start())
    remainders = rows.select((functions.col("row.n") % 3).alias("rest")).mapInArrow(_as_it_is, "rest BIGINT")
    counted = remainders.groupBy("rest").transformWithState(
        _Counts(), outputStructType="rest BIGINT, n BIGINT", outputMode="Append", timeMode="None"
    )
    state = counted.writeStream.option("checkpointLocation", str(checkpoint / "state"))
    _run_to_end(state.foreachBatch(lambda batch, _: batch.toArrow()).start())


def _run_to_end(query: StreamingQuery) -> None:
    query.processAllAvailable()
    query.stop()


def _end_jvm(spark: SparkSession) -> None:
    """Ends the JVM, which writes the archive before it exits."""
    spark.stop()
    gateway: JavaGateway = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_WAIT_S)


def main() -> int:
    argparse.ArgumentParser(
        prog="python -m odradek.spark.engine.class_archive_writer", description=__doc__
    ).parse_args()
    problem = java.find_java().problem
    if problem is not None:
        sys.stderr.write(f"{problem}\n")
        return 1
    with unpacked_pyspark() as home:  # adopts what another process has written
        archive = None if home is None else ClassArchive.of(home)
    if archive is None:
        sys.stdout.write(
            "no archive of classes: SPARK_HOME is set, this Java keeps none, or it is switched off\n"
        )
        return 0
    if not archive.is_there:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        logging.getLogger("py4j").setLevel(logging.ERROR)
        with tempfile.TemporaryDirectory() as directory:
            spark = session_with_state("class archive", None, 1, _SETTINGS)
            _count(spark, Path(directory))
            _end_jvm(spark)
        archive.options_to_read()  # gives the draft its name
    if not archive.is_there:
        sys.stderr.write(f"{archive.path} is not there: another process writes it, or Java ended without\n")
        return 1
    sys.stdout.write(f"{archive.path}: {archive.path.stat().st_size / 1e6:.0f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
