"""`format("odradek")`: what Spark calls, translated into the rest of this room.

Spark makes these objects in one Python process, pickles them, and uses the copies in others. So they hold
options and schemas only; connections live in `connections.py`, one set per process. Importing this module
must stay cheap: Spark does it when it looks for data sources.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from odradek.model.aliases import Json
from odradek.model.errors import ConfigError, ErrorValue, OdradekError
from odradek.model.lazy import lazy
from odradek.model.public import public
from odradek.spark import tables
from odradek.spark.engine.plain_errors import errors_in_one_line
from odradek.spark.engine.planned_rows import answer_in_planner
from odradek.spark.engine.prompt_input import PromptInput
from odradek.spark.engine.stopped_queries import end_planner_in_one_line
from odradek.spark.engine.worker_garbage import loaded_modules
from odradek.spark.engine.zip_directories import share_zip_directories
from odradek.spark.options.option_table import OPTIONS, Use
from odradek.spark.options.options import (
    ArchiveOptions,
    ReadOptions,
    WriteOptions,
    read_options,
    write_options,
)
from odradek.spark.reading.offsets import (
    OffsetRange,
    StreamOffset,
    from_document,
    ranges_between,
    to_document,
)
from odradek.spark.reading.planning import grouped, split
from odradek.spark.reading.schema import check_read_schema, read_ddl
from odradek.spark.reading.task_rows import TASK_ROWS_DDL, TaskRows

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.runtime import real
    from odradek.spark import publishing, sink
    from odradek.spark.clients import connections
    from odradek.spark.publishing import OffsetPublisher
    from odradek.spark.reading import batch, fetch, idle, prefetch, progress, pruning, trigger_wait
    from odradek.spark.reading import schema as spark_schema
    from odradek.spark.reading.catalog import Catalog
    from odradek.spark.reading.history import History
    from odradek.spark.reading.progress import SourceWait, StreamProgress
    from odradek.spark.reading.pruning import Pruning
else:
    pa = lazy("pyarrow")
    real = lazy("odradek.runtime.real")
    batch = lazy("odradek.spark.reading.batch")
    connections = lazy("odradek.spark.clients.connections")
    idle = lazy("odradek.spark.reading.idle")
    fetch = lazy("odradek.spark.reading.fetch")
    prefetch = lazy("odradek.spark.reading.prefetch")
    progress = lazy("odradek.spark.reading.progress")
    pruning = lazy("odradek.spark.reading.pruning")
    publishing = lazy("odradek.spark.publishing")
    spark_schema = lazy("odradek.spark.reading.schema")
    trigger_wait = lazy("odradek.spark.reading.trigger_wait")
    sink = lazy("odradek.spark.sink")

log: Final = logging.getLogger("odradek.spark")

_PUSHING_MODULE: Final = "pyspark.sql.worker.data_source_pushdown_filters"


@public("odradek.spark")
class OdradekDataSource(DataSource):
    """Reads topics of any Kafka cluster, and writes to them, in batches and as streams."""

    @classmethod
    def name(cls) -> str:
        """Returns the name that `format("odradek")` asks for."""
        return "odradek"

    @errors_in_one_line()
    def schema(self) -> str:
        loaded_modules.leave_out()
        if not tables.is_table(self.options):
            checked = read_options(self.options, Use.READ)
            return read_ddl(checked.projection) if checked.task_rows is None else TASK_ROWS_DDL
        options = tables.user_options(self.options)
        readable = {key: value for key, value in options.items() if OPTIONS.applies(key, Use.READ)}
        return read_ddl(read_options(readable, Use.READ).projection, tables.comment_of(options))

    @errors_in_one_line()
    def reader(self, schema: StructType) -> BatchReader:
        loaded_modules.leave_out()
        options = _checked_read(self.options, Use.BATCH_READ, schema)
        kind = FilteringBatchReader if options.pushes_filters and _process_pushes_filters() else BatchReader
        return kind(options, schema, self._history(options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        share_zip_directories()  # this process lives as long as its query
        answer_in_planner()
        try:
            options = _checked_read(self.options, Use.STREAM_READ, schema)
            return StreamReader(options, schema, self._history(options))
        except OdradekError as error:
            return RefusedStreamReader(ErrorValue.of(error))

    @errors_in_one_line()
    def writer(self, schema: StructType, overwrite: bool) -> sink.BatchSink:
        loaded_modules.leave_out()
        return sink.BatchSink(
            _checked_write(self.options, Use.BATCH_WRITE, schema), schema, overwrite=overwrite
        )

    @errors_in_one_line()
    def streamWriter(self, schema: StructType, overwrite: bool) -> sink.StreamSink:  # noqa: N802 - Spark's name
        loaded_modules.leave_out()
        # `overwrite` is complete mode: each batch is the whole result, and all of it is appended.
        return sink.StreamSink(_checked_write(self.options, Use.STREAM_WRITE, schema), schema)

    def _history(self, options: ReadOptions) -> History | None:
        if options.archive is None:
            return None
        return self.archive_history(options.archive, options)

    def archive_history(self, archive: ArchiveOptions, options: ReadOptions) -> History:
        """Returns the records that an archive keeps. `odradek.archive`, a room above this one, overrides it."""
        raise ConfigError(
            "option archive needs the data source of odradek.archive: pip install 'odradek[delta]'"
        )


def _checked_read(options: Any, use: Use, schema: StructType) -> ReadOptions:
    checked = read_options(tables.read_from_table(options, schema, use), use)
    if checked.task_rows is None:
        check_read_schema(schema, checked.projection)
    connections.check_read_settings(checked.client)
    return checked


def _checked_write(options: Any, use: Use, schema: StructType) -> WriteOptions:
    checked = write_options(tables.written_to_table(options, schema, use), use)
    connections.check_write_settings(checked.client)
    return checked


class RangePartition(InputPartition):
    """One task's share of a read: ranges of different partitions, none where there is nothing to read."""

    def __init__(self, extents: tuple[OffsetRange, ...]) -> None:
        super().__init__(extents)
        self.extents = extents


class StoredPartition(InputPartition):
    """One task's share of what is kept outside of the topics."""


def _tasks(
    ranges: Sequence[OffsetRange], options: ReadOptions, history: History | None = None
) -> list[InputPartition]:
    if history is None:
        return [*_tasks_of_topics(ranges, options)]
    divided = history.divide(ranges, connections.catalog(options.client), options)
    return [*map(StoredPartition, divided.in_history), *_tasks_of_topics(divided.in_topics, options)]


def _tasks_of_topics(ranges: Sequence[OffsetRange], options: ReadOptions) -> list[RangePartition]:
    pieces = split(
        ranges, min_tasks=options.min_partitions, max_records_per_task=options.max_records_per_partition
    )
    tasks = grouped(
        pieces, max_tasks=options.max_partitions, max_records_per_task=options.max_records_per_partition
    )
    return [RangePartition(task) for task in tasks]


def _read(
    partition: InputPartition,
    options: ReadOptions,
    schema: StructType,
    keys: frozenset[bytes] | None = None,
    history: History | None = None,
) -> Iterator[pa.RecordBatch]:
    loaded_modules.leave_out()
    with errors_in_one_line():
        yield from _rows(
            options, schema, lambda columns: _records(partition, options, columns, keys, history)
        )


def _rows(
    options: ReadOptions, schema: StructType, records_in: Callable[[pa.Schema], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Yields records as rows of the read: `records_in` yields them in columns of a schema."""
    if options.task_rows is None:
        yield from records_in(spark_schema.arrow_schema(schema))
    else:
        task_rows = TaskRows.of(options.task_rows)
        yield from task_rows.packed(records_in(task_rows.records))


def _records(
    partition: InputPartition,
    options: ReadOptions,
    schema: pa.Schema,
    keys: frozenset[bytes] | None,
    history: History | None,
) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, StoredPartition) and history is not None:
        yield from history.read(partition.value, options, schema, keys)
    if isinstance(partition, RangePartition) and partition.extents:
        yield from fetch.read_ranges(partition.extents, options, schema, keys)


def _process_pushes_filters() -> bool:
    """Tells whether Spark made this process to ask for `pushFilters`: in any other one it refuses a reader that has it."""
    running = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHING_MODULE in sys.modules or (running is not None and running.name == _PUSHING_MODULE)


class BatchReader(PromptInput, DataSourceReader):
    """A batch read: the offsets are settled once, when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType, history: History | None = None) -> None:
        self._options = options
        self._schema = schema
        self._history = history
        self._pruning: Pruning | None = None

    @errors_in_one_line()
    def partitions(self) -> Sequence[InputPartition]:
        for warning in self._options.warnings:
            log.warning("%s", warning)
        catalog = _catalog(self._options, self._history)
        ranges = batch.plan_batch(self._options, catalog)
        if self._pruning is not None:
            ranges = pruning.pruned(
                ranges, self._pruning, catalog, keys_choose_partitions=self._options.keys_choose_partitions
            )
        return _tasks(ranges, self._options, self._history) or [RangePartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        keys = None if self._pruning is None else self._pruning.keys
        return _read(partition, self._options, self._schema, keys, self._history)


class FilteringBatchReader(BatchReader):
    """A batch read that the query's filters make smaller.

    Only where the user asks for it: Spark 4 keeps what was planned with the filters of one use of a DataFrame, and gives it to
    every other use of it, too (Spark 5 does not).
    """

    @errors_in_one_line()
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        self._pruning = pruning.pruning_of(filters)
        return filters  # Spark applies all of them: what is pruned is only what none of them would keep


class StreamReader(PromptInput, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read. One of these plans, in the driver's Python process; copies of it read, in the
    tasks.
    """

    def __init__(self, options: ReadOptions, schema: StructType, history: History | None = None) -> None:
        self._options = options
        self._schema = schema
        self._history = history
        self._planner: StreamProgress | None = None
        self._publisher: OffsetPublisher | None = None

    @errors_in_one_line()
    def initialOffset(self) -> dict[str, Json]:  # noqa: N802 - Spark's name
        return to_document(self._progress().initial())

    @errors_in_one_line()
    def latestOffset(self, start: dict[str, Json], limit: ReadLimit) -> dict[str, Json]:  # noqa: N802
        before = from_document(start)
        self._publish(before)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._progress().latest(before, rows, everything=isinstance(limit, ReadAllAvailable))
        return start if end is before else to_document(end)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most, least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def reportLatestOffset(self) -> dict[str, Json] | None:  # noqa: N802 - Spark's name
        latest = self._progress().known_latest()
        return None if latest is None else to_document(latest)

    @errors_in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._progress().prepare_available_now()

    def commit(self, end: Mapping[str, object]) -> None:
        """Notes that a batch of the query has begun: that is when Spark commits the one before it."""
        if self._planner is not None:
            self._planner.note_batch()

    def stop(self) -> None:
        """Ends the reader: Spark has closed the connection, or a method has failed."""
        end_planner_in_one_line()

    @errors_in_one_line()
    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> Sequence[InputPartition]:
        """Returns the partitions of a batch. Pure: after a restart Spark asks again with the offsets that it journaled."""
        ranges = ranges_between(from_document(start), from_document(end))
        return _tasks(ranges, self._options, self._history)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options, self._schema, history=self._history)

    def planned_rows(self, partitions: Sequence[InputPartition]) -> list[pa.RecordBatch] | None:
        """Returns the rows of a small batch that one task would read, as `read` yields them. None: a worker must read them.

        Called as the batch is planned (`engine/planned_rows.py`).
        """
        if len(partitions) != 1 or self._history is not None:
            return None
        partition, options = partitions[0], self._options
        if not isinstance(partition, RangePartition) or not spark_schema.can_be_planned(self._schema):
            return None
        records = prefetch.fetches_of_process().records(partition.extents, options)
        if records is None or prefetch.are_costly(records, options.projection):
            return None
        try:
            return list(
                _rows(options, self._schema, lambda columns: fetch.decoded(records, options, columns))
            )
        except (OdradekError, pa.ArrowException) as error:
            log.debug("a worker decodes the batch again, and reports what is wrong: %s", error)
            return None

    def _progress(self) -> StreamProgress:
        if self._planner is None:
            self._planner = _new_progress(self._options, self._history)
        return self._planner

    def _publish(self, finished: StreamOffset) -> None:
        group = self._options.publish_group
        if group is None:
            return
        if self._publisher is None:
            commit = connections.committing(self._options.client)
            self._publisher = publishing.OffsetPublisher(group, commit, real.SystemClock())
        self._publisher.publish(finished)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the reason why there is no stream, when Spark first asks for something.

    An error while a reader is made would not be seen: PySpark (4.3) stumbles over it.
    """

    def __init__(self, reason: ErrorValue[OdradekError]) -> None:
        self._reason = reason

    @errors_in_one_line()
    def _refuse(self) -> NoReturn:
        raise self._reason.exception()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        self._refuse()

    def initialOffset(self) -> dict[str, Json]:  # noqa: N802 - Spark's name
        self._refuse()

    def latestOffset(self, start: Mapping[str, object], limit: ReadLimit) -> dict[str, Json]:  # noqa: N802
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._refuse()

    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> Sequence[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._refuse()


def _catalog(options: ReadOptions, history: History | None) -> Catalog:
    brokers = connections.catalog(options.client)
    return brokers if history is None else history.over(brokers)


def _new_progress(options: ReadOptions, history: History | None) -> progress.StreamProgress:
    for warning in options.warnings:
        log.warning("%s", warning)
    wait: SourceWait | None = None
    if options.idle_wait_ms:
        waits = idle.waits_of_process(_watch)
        wait = waits.of(options.client, options.idle_wait_query, options.idle_wait_ms / 1_000)
    elif options.trigger_wait_ms:
        wait = trigger_wait.TriggerWait(
            connections.catalog(options.client),
            real.SystemClock(),
            time.sleep,
            wait_s=options.trigger_wait_ms / 1_000,
            topics_beside=options.trigger_wait_topics,
        )
    catalog = _catalog(options, history)
    return progress.StreamProgress(options, catalog, real.SystemClock(), time.sleep, wait)


def _watch(client: Mapping[str, str]) -> idle.EndsWatch:
    return idle.EndsWatch(connections.catalog(client), time.sleep)
