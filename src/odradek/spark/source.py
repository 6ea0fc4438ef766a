"""`format("odradek")`: what Spark calls, translated into the rest of this room.

Spark makes these objects in one Python process, pickles them, and uses the copies in others. So they hold
options and schemas only; connections live in `connections.py`, one set per process. Importing this module
must stay cheap: Spark does it when it looks for data sources.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from odradek.model.lazy import lazy
from odradek.spark.offsets import OffsetRange, from_document, ranges_between, to_document
from odradek.spark.option_table import Use
from odradek.spark.options import ReadOptions, WriteOptions, read_options, write_options
from odradek.spark.planning import split
from odradek.spark.schema import check_read_schema, read_ddl

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.runtime import real
    from odradek.spark import batch, connections, fetch, progress, sink
    from odradek.spark import schema as spark_schema
    from odradek.spark.progress import StreamProgress
else:
    real = lazy("odradek.runtime.real")
    batch = lazy("odradek.spark.batch")
    connections = lazy("odradek.spark.connections")
    fetch = lazy("odradek.spark.fetch")
    progress = lazy("odradek.spark.progress")
    spark_schema = lazy("odradek.spark.schema")
    sink = lazy("odradek.spark.sink")

log: Final = logging.getLogger("odradek.spark")


class OdradekDataSource(DataSource):
    """Reads topics of any Kafka cluster, and writes to them, in batches and as streams."""

    @classmethod
    def name(cls) -> str:
        return "odradek"

    def schema(self) -> str:
        return read_ddl(read_options(self.options, Use.READ).projection)

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(_checked_read(self.options, Use.BATCH_READ, schema), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        return StreamReader(_checked_read(self.options, Use.STREAM_READ, schema), schema)

    def writer(self, schema: StructType, overwrite: bool) -> sink.BatchSink:
        return sink.BatchSink(_checked_write(self.options, Use.BATCH_WRITE), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> sink.StreamSink:  # noqa: N802 - Spark's name
        # `overwrite` is complete mode: each batch is the whole result, and all of it is appended.
        return sink.StreamSink(_checked_write(self.options, Use.STREAM_WRITE), schema)


def _checked_read(options: Any, use: Use, schema: StructType) -> ReadOptions:
    checked = read_options(options, use)
    check_read_schema(schema, checked.projection)
    connections.check_read_settings(checked.client)
    return checked


def _checked_write(options: Any, use: Use) -> WriteOptions:
    checked = write_options(options, use)
    connections.check_write_settings(checked.client)
    return checked


class RangePartition(InputPartition):
    """One task's share of a read; None where there is nothing to read."""

    def __init__(self, extent: OffsetRange | None) -> None:
        super().__init__(extent)
        self.extent = extent


def _tasks(ranges: Sequence[OffsetRange], options: ReadOptions) -> list[RangePartition]:
    pieces = split(
        ranges, min_tasks=options.min_partitions, max_records_per_task=options.max_records_per_partition
    )
    return [RangePartition(each) for each in pieces]


def _read(partition: InputPartition, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    extent = partition.value
    if isinstance(extent, OffsetRange):
        yield from fetch.read_range(extent, options, spark_schema.arrow_schema(schema))


class BatchReader(DataSourceReader):
    """A batch read: the offsets are settled once, when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        for warning in self._options.warnings:
            log.warning("%s", warning)
        ranges = batch.plan_batch(self._options, connections.catalog(self._options.client))
        return _tasks(ranges, self._options) or [RangePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read. One of these plans, in the driver's Python process; copies of it read, in the
    tasks.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._planner: StreamProgress | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return to_document(self._progress().initial())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        before = from_document(start)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._progress().latest(before, rows, everything=isinstance(limit, ReadAllAvailable))
        return start if end is before else to_document(end)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most, least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        latest = self._progress().known_latest()
        return None if latest is None else to_document(latest)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._progress().prepare_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Pure: after a restart Spark asks again with the offsets it journaled."""
        return _tasks(ranges_between(from_document(start), from_document(end)), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options, self._schema)

    def _progress(self) -> StreamProgress:
        if self._planner is None:
            self._planner = _new_progress(self._options)
        return self._planner


def _new_progress(options: ReadOptions) -> progress.StreamProgress:
    for warning in options.warnings:
        log.warning("%s", warning)
    return progress.StreamProgress(
        options, connections.catalog(options.client), real.SystemClock(), time.sleep
    )
