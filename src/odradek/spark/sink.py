"""Writing a DataFrame, at least once or exactly once.

At least once: each task sends its rows through an idempotent producer, and is done when all are acknowledged. A task that
Spark runs again writes its rows again; within one attempt the producer's own retries make no duplicates. Exactly once:
`exactly_once/`. `abort` undoes nothing, since Spark may call it after a commit that failed half-way.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.spark.dead_letters.left_out import LeftOutRecords
from odradek.spark.engine.plain_errors import errors_in_one_line
from odradek.spark.engine.prompt_input import PromptInput
from odradek.spark.engine.worker_garbage import loaded_modules
from odradek.spark.options.options import WriteOptions
from odradek.spark.writing.outgoing import Marks, RowFormat, row_format

if TYPE_CHECKING:
    import pyarrow as pa
    import pyspark

    from odradek.spark.clients import connections
    from odradek.spark.exactly_once import write as two_phase
    from odradek.spark.writing import outgoing_rows, packed_rows, row_traces
else:
    connections = lazy("odradek.spark.clients.connections")
    outgoing_rows = lazy("odradek.spark.writing.outgoing_rows")
    packed_rows = lazy("odradek.spark.writing.packed_rows")
    two_phase = lazy("odradek.spark.exactly_once.write")
    pyspark = lazy("pyspark")
    row_traces = lazy("odradek.spark.writing.row_traces")

log: Final = logging.getLogger("odradek.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRows(WriterCommitMessage):
    """The result of a task."""

    record_count: int


class BatchSink(PromptInput, DataSourceArrowWriter):
    """The sink of a batch write.

    `df.write.format("odradek")`, also inside `foreachBatch`: there its records can be marked as a stream's are.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError('a topic cannot be overwritten: use .mode("append")')
        self._write = _write_of(options, schema)

    @errors_in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        loaded_modules.leave_out()
        return self._write.write(iterator, _marks_if(self._write.options))

    @errors_in_one_line()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._write.commit(messages)


class StreamSink(PromptInput, DataSourceStreamArrowWriter):
    """The sink of a streaming query.

    `df.writeStream.format("odradek")` in append and complete mode: each micro-batch is appended.

    Update mode Spark refuses to every sink in Python.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        text = options.packed_rows
        self._packed = None if text is None else packed_rows.PackedRows.of(text)
        self._write = _write_of(options, schema if self._packed is None else self._packed.struct)

    @errors_in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        loaded_modules.leave_out()
        rows = iterator if self._packed is None else self._packed.rows(iterator)
        return self._write.write(rows, _marks_if(self._write.options))

    @errors_in_one_line()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._write.commit(messages)


class AcknowledgedWrite:
    """A write that delivers at least once: a task is done when all its records are acknowledged."""

    def __init__(self, options: WriteOptions, layout: RowFormat) -> None:
        self.options = options
        self._layout = layout

    def write(self, batches: Iterator[pa.RecordBatch], marks: Marks | None) -> WrittenRows:
        """Sends the rows. A task without rows asks no broker."""
        left_out = LeftOutRecords(self.options.left_out_log, self.options.client)
        traces = row_traces.RowTraces(self.options.tracing_endpoint, marks)
        rows = outgoing_rows.OutgoingRows(batches, self._layout, marks, left_out, traces.traced)
        groups = iter(rows)
        with traces:
            first = next(groups, None)
            if first is not None:
                with connections.sending(self.options.client) as producer:
                    outgoing_rows.send_gathered(
                        first, groups, producer.send_arrow, lambda topic: len(producer.partitions_for(topic))
                    )
        left_out.close()
        return WrittenRows(record_count=rows.count)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing: all records are acknowledged already."""


def _write_of(options: WriteOptions, schema: StructType) -> AcknowledgedWrite | two_phase.TwoPhaseWrite:
    layout = row_format(
        schema,
        options.topic,
        options.dead_letter_topic,
        suffix=options.suffix,
        key_format=options.key_format,
        value_format=options.value_format,
    )
    if options.exactly_once is None:
        return AcknowledgedWrite(options, layout)
    return two_phase.TwoPhaseWrite(options, options.exactly_once, layout)


def _marks_if(options: WriteOptions) -> Marks | None:
    return _marks() if options.delivery_headers else None


def _marks() -> Marks:
    context = pyspark.TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context else None
    if context is None or query is None or batch is None:
        raise ConfigError(
            "this write is not part of a streaming query (or Spark does not tell of which), so its records cannot"
            " be marked: set deliveryHeaders=false"
        )
    return Marks(query=query, batch=int(batch), partition=context.partitionId())
