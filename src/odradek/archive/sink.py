"""`df.writeStream.format("odradek-archive")`: tasks write files, the driver commits them, once.

Before a batch runs, Spark's checkpoint holds what it reads, so the commit holds whole ranges of offsets, with the
gaps that aborted transactions, control records and compaction leave in a topic. `abort` undoes nothing: Spark calls it after a
commit that failed, too, and that may have happened. What is left over, `expire` removes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.archive.options import ArchiveWriteOptions
from odradek.archive.store.values import ArchiveError, BatchId, DataFile, NewBatch
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.runtime.real import SystemEntropy
from odradek.spark.engine.prompt_input import PromptInput
from odradek.spark.engine.worker_garbage import loaded_modules
from odradek.spark.exactly_once.checkpoint import source_offsets
from odradek.spark.reading.offsets import OffsetRange, StreamOffset, ranges_between

if TYPE_CHECKING:
    import pyarrow as pa
    import pyspark
    from pyspark.sql.pandas import types as spark_types

    from odradek.archive import opening
    from odradek.archive.files import data_files
    from odradek.archive.tables import commit, table_schema
    from odradek.archive.tables.port import ArchiveTable
else:
    commit = lazy("odradek.archive.tables.commit")
    data_files = lazy("odradek.archive.files.data_files")
    opening = lazy("odradek.archive.opening")
    pyspark = lazy("pyspark")
    spark_types = lazy("pyspark.sql.pandas.types")
    table_schema = lazy("odradek.archive.tables.table_schema")


def batch_ranges(checkpoint: str, batch: int) -> list[OffsetRange]:
    """Returns the range of each partition that the batch's sources read; ConfigError when the checkpoint cannot be read from
    here.

    A partition without a beginning was not read: a batch of `format("odradek")` that reads it reports where it begins.
    """
    ends = source_offsets(checkpoint, batch)
    starts = source_offsets(checkpoint, batch - 1) if batch else []
    ranges: list[OffsetRange] = []
    for index, end in enumerate(ends):
        start = starts[index] if index < len(starts) else StreamOffset(next_offsets={})
        known = start.next_offsets.keys() | end.beginnings.keys()
        ranges += [span for span in ranges_between(start, end) if span.partition in known]
    return ranges


log: Final = logging.getLogger("odradek.archive")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFiles(WriterCommitMessage):
    """The files that a task has written, and their batch."""

    query: str
    files: tuple[DataFile, ...]


class ArchiveSink(PromptInput, DataSourceStreamArrowWriter):
    """The archive's sink, which writes and commits one micro-batch. Spark makes it in the driver, pickles it for the tasks,
    and makes another one for the commit."""

    def __init__(self, options: ArchiveWriteOptions, schema: StructType) -> None:
        if options.checkpoint is None:
            raise ConfigError(
                "the option checkpointLocation is missing: the checkpoint holds what a batch has read"
            )
        self._options = options
        self._checkpoint = options.checkpoint
        self._table: ArchiveTable = opening.open_or_create(
            options.location,
            table_schema.canonical(spark_types.to_arrow_schema(schema, timezone="UTC")),
            table_format=options.table_format,
            partition_by=options.partition_by,
            catalog=options.catalog,
        )
        self._layout = data_files.layout_of(self._table, options.file_bytes)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        loaded_modules.leave_out()
        query, batch, task = _task_in_query()
        name = f"{self._options.sink_id}-{batch:06}-{task:04}-{SystemEntropy().uuid().hex[:12]}"
        location = self._options.location
        files = data_files.write_files(location.file_system(), location.path, name, self._layout, iterator)
        return WrittenFiles(query=query, files=tuple(files))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        written = [message for message in messages if isinstance(message, WrittenFiles)]
        if len(written) < len(messages) or not written:
            raise ArchiveError(f"{len(messages) - len(written)} of {len(messages)} tasks gave no result")
        batch = NewBatch(
            id=BatchId(sink=self._options.sink_id, query=written[0].query, batch=batchId),
            files=tuple(file for written_files in written for file in written_files.files),
            ranges=tuple(batch_ranges(self._checkpoint, batchId)),
        )
        outcome = commit.commit_batch(self._table, batch, leaving_gaps=self._options.leaving_gaps)
        log.info("batch %d of sink %s: %s, %d files", batchId, batch.id.sink, outcome.name, len(batch.files))


def _task_in_query() -> tuple[str, int, int]:
    context = pyspark.TaskContext.get()
    query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if context is None or not query or batch is None:
        raise ArchiveError("an archive is written by tasks of a streaming query")
    return query, int(batch), context.partitionId()
