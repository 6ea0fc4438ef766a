"""Writing a DataFrame: each task sends its rows through an idempotent producer, and is done when all are
acknowledged.

At least once: a task that Spark runs again writes its rows again. Within one attempt the producer's own
retries make no duplicates. `commit` has nothing left to do, and `abort` undoes nothing, since Spark may call
it after a commit that failed half-way.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.model.errors import ConfigError
from odradek.spark.options import WriteOptions
from odradek.spark.outgoing import Marks, RowFormat, outgoing_records, row_format

if TYPE_CHECKING:
    import pyarrow as pa

log: Final = logging.getLogger("odradek.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(WriterCommitMessage):
    """What a task did."""

    record_count: int


class BatchSink(DataSourceArrowWriter):
    """`df.write.format("odradek")`, also inside `foreachBatch`: there its records can be marked as a stream's are."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError('a topic cannot be overwritten: use .mode("append")')
        self._options = options
        self._layout = row_format(schema, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _send_all(iterator, self._options, self._layout)


class StreamSink(DataSourceStreamArrowWriter):
    """`df.writeStream.format("odradek")` in append and complete mode: each micro-batch is appended.

    Update mode Spark refuses to every sink in Python.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._layout = row_format(schema, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _send_all(iterator, self._options, self._layout)


def _marks() -> Marks:
    from pyspark import TaskContext

    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context else None
    if context is None or query is None or batch is None:
        raise ConfigError(
            "this write is not part of a streaming query (or Spark does not say of which), so its records cannot"
            " be marked: set deliveryHeaders=false"
        )
    return Marks(query=query, batch=int(batch), partition=context.partitionId())


def _send_all(batches: Iterator[pa.RecordBatch], options: WriteOptions, layout: RowFormat) -> Written:
    from odradek.spark.connections import sending

    marks = _marks() if options.delivery_headers else None
    count = 0
    with sending(options.client) as send:
        for batch in batches:
            for record in outgoing_records(batch, layout, marks=marks, first_sequence=count):
                send(record)
            count += batch.num_rows
    return Written(record_count=count)
