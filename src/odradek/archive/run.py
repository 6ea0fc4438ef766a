"""`odradek archive run`: a streaming query that continues an archive where it ends.

The archive itself records where that is, and admits only what continues it. So a run needs no checkpoint of an earlier run: by
default its checkpoint is a directory that it removes at its end.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from odradek.archive.checks.topic_side import EARLIEST, BrokerTopics, LogExtent, TopicSide
from odradek.archive.row_columns import READ_COLUMNS, RowColumns, with_archive_columns, with_stored_headers
from odradek.archive.store.location import ArchiveLocation
from odradek.archive.store.values import ArchiveError, ArchiveState, DataFile
from odradek.archive.tables.port import ArchiveTable, TableFormat
from odradek.model.errors import ConfigError
from odradek.model.exception_text import ERROR_OF_OURS
from odradek.model.ids import TopicPartition
from odradek.model.lazy import lazy
from odradek.spark.engine.jvm import BRIEF, JAVA_OPTIONS, LASTING, StartOutput
from odradek.spark.engine.own_session import is_local
from odradek.spark.engine.session import LOCAL, new_session

if TYPE_CHECKING:
    from pyspark import sql
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from odradek.archive import opening
    from odradek.net.metrics_page import PageTerms
    from odradek.spark import query_metrics
else:
    opening = lazy("odradek.archive.opening")
    query_metrics = lazy("odradek.spark.query_metrics")
    sql = lazy("pyspark.sql")

log: Final = logging.getLogger("odradek.archive")

RECORD_BYTES_GUESS: Final = 200
"""The size of a record in a file, assumed for an archive that holds nothing yet."""
BATCHES_AHEAD: Final = 4
"""A batch that has much to catch up with reads this many times the records that fill the files of one batch."""
POLLS_PER_WAIT: Final = 10
POLL_MAX_S: Final = 10
WAIT_S: Final = 1

Tell = Callable[[str], None]
Decode: TypeAlias = "Callable[[DataFrame], DataFrame]"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """The terms of a run: what it archives, where to, and in which portions."""

    bootstrap: str
    location: ArchiveLocation
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A pattern for topic names. Either it is set, or `topics`."""
    table_format: TableFormat | None = None
    catalog: str | None = None
    columns: RowColumns = field(default_factory=RowColumns)
    sink_id: str = "archive"
    once: bool = False
    every_ms: int = 600_000
    file_bytes: int = 128 << 20
    writers: int | None = None
    """The most tasks of a batch that write, and so the most files of it; None: as many as the machine has cores."""
    skipping_lost: bool = False
    """Whether the run continues after records that retention deleted before they were archived."""
    checkpoint: str | None = None
    master: str | None = None
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    metrics: PageTerms | None = None
    """A listener for the query's metrics; None: there is none."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise ConfigError(
                f"--pattern {self.pattern!r} is not a regular expression: {error}. To archive a topic by its name, use --topic"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizes:
    """The number of records that a batch waits for, and the most that it takes."""

    least: int
    most: int


def portions(files: Sequence[DataFile], file_bytes: int, writers: int) -> BatchSizes:
    """Returns batch sizes with which each writer fills about one file, judged by the records in the archive."""
    row_count = sum(file.row_count for file in files)
    size_bytes = sum(file.size_bytes for file in files)
    record_bytes = max(1, size_bytes // row_count) if row_count else RECORD_BYTES_GUESS
    least = max(1, file_bytes * writers // record_bytes)
    return BatchSizes(least=least, most=least * BATCHES_AHEAD)


def starting_offsets(
    positions: Mapping[TopicPartition, int],
    extents: Mapping[TopicPartition, LogExtent],
    *,
    skipping_lost: bool = False,
) -> str | None:
    """Returns where a query that continues the archive begins, as JSON for the source; None where nothing is archived yet.

    Partitions that are new to the archive begin at their first record; so does, when the user wants to skip what is lost, a
    partition whose first record comes after the archive's last one.
    """
    if not any(partition in positions for partition in extents):
        return None
    document: dict[str, dict[str, int]] = {}
    for partition, extent in sorted(extents.items()):
        offset = positions.get(partition, EARLIEST)
        if skipping_lost and 0 <= offset < extent.start:
            log.warning("%s: offsets %d to %d are lost and skipped", partition, offset, extent.start - 1)
            offset = extent.start
        document.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return json.dumps(document)


def continuation(terms: RunTerms, state: ArchiveState, topics: TopicSide) -> str | None:
    """Returns where the run continues the archive, as JSON for the source; None where nothing of its topics is archived yet.

    ArchiveError when a topic was made again: the archive's offsets mean nothing in the new one.
    """
    if not state.positions:
        return None
    names = topics.names(terms.topics, terms.pattern)
    state.check_topics(topics.topic_ids(names))
    extents = topics.extents(topics.partitions(names))
    return starting_offsets(state.positions, extents, skipping_lost=terms.skipping_lost)


def run_archive(terms: RunTerms, tell: Tell, should_stop: Callable[[], bool]) -> None:
    """Archives until `should_stop`, or with `once` until the present records are archived. `tell` gets a line for each batch.

    ArchiveError, ConfigError or KafkaError in one line, whatever Spark wraps it in. A right that is missing is an error before
    an archive is made.
    """
    if not BrokerTopics(terms.bootstrap, terms.client).check_rights(terms.topics, terms.pattern):
        tell(f"no topic that this user may describe matches {terms.pattern!r} yet")
    with (
        spark_session(terms.master, BRIEF if terms.once else LASTING) as spark,
        _checkpoint_directory(terms) as checkpoint,
        ExitStack() as closing,
    ):
        if terms.metrics is not None:
            page = closing.enter_context(query_metrics.SessionMetrics(spark, terms.metrics))
            tell(f"metrics on {page.url}")
        try:
            query = start_archiving(spark, terms, checkpoint)
            _follow(query, tell, should_stop)
        except Exception as error:
            line = reason_in(str(error))
            if line is None:
                raise
            raise ArchiveError(line) from None


@contextmanager
def spark_session(master: str | None, java_options: str) -> Iterator[SparkSession]:
    """Yields the active session, or starts a light one: on `local[*]` if `master` is None."""
    active = sql.SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    settings = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
    if is_local(master or LOCAL):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {"spark.driver.bindAddress": "127.0.0.1", JAVA_OPTIONS: java_options}
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # they log what is raised, too
        logging.getLogger(name).setLevel(logging.CRITICAL)
    output = StartOutput()
    try:
        session = new_session("odradek-archive", settings, master=master or LOCAL, output=output.keep)
    except BaseException:
        sys.stderr.flush()
        output.end(sys.stderr.buffer.write)
        raise
    output.end()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _checkpoint_directory(terms: RunTerms) -> Iterator[str]:
    if terms.checkpoint is not None:
        yield terms.checkpoint
    elif terms.master is None or terms.master.startswith("local"):
        with tempfile.TemporaryDirectory(prefix="odradek-archive-", ignore_cleanup_errors=True) as directory:
            yield directory
    else:
        raise ConfigError(
            "--master of a cluster needs --checkpoint: a directory that driver and executors share"
        )


def start_archiving(
    spark: SparkSession, terms: RunTerms, checkpoint: str, decode: Decode | None = None
) -> StreamingQuery:
    """Returns the query that continues the archive where it ends. `checkpoint`: an empty directory. `decode` makes other
    columns of the records, before those to partition by are computed.
    """
    writers = terms.writers or spark.sparkContext.defaultParallelism
    table, state = _existing(terms)
    topics = BrokerTopics(terms.bootstrap, terms.client)
    portion = portions(table.files() if table else [], terms.file_bytes, writers)
    reader = (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", terms.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("columns", ",".join(READ_COLUMNS))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(portion.most))
        .options(**{f"kafka.{key}": value for key, value in terms.client.items()})
    )
    reader = (
        reader.option("subscribe", ",".join(terms.topics))
        if terms.topics
        else reader.option("subscribePattern", terms.pattern)
    )
    starting = None if state is None else continuation(terms, state, topics)
    reader = reader if starting is None else reader.option("startingOffsets", starting)
    if not terms.once:
        reader = reader.option("minOffsetsPerTrigger", str(portion.least)).option(
            "maxTriggerDelay", f"{terms.every_ms}ms"
        )
    records = with_stored_headers(reader.load(), terms.columns)
    if decode is not None:
        records = decode(records)
    rows = with_archive_columns(records, terms.columns).coalesce(writers)
    writer = rows.writeStream.format("odradek-archive").options(**sink_options(terms, checkpoint))
    if terms.once:
        return writer.trigger(availableNow=True).start()
    poll_s = min(POLL_MAX_S, max(1, terms.every_ms // 1_000 // POLLS_PER_WAIT))
    return writer.trigger(processingTime=f"{poll_s} seconds").start()


def _existing(terms: RunTerms) -> tuple[ArchiveTable, ArchiveState] | tuple[None, None]:
    table = opening.find_archive(terms.location, terms.catalog)
    return (None, None) if table is None else (table, table.state())


def sink_options(terms: RunTerms, checkpoint: str) -> dict[str, str]:
    """Returns the options of `format("odradek-archive")`."""
    values = {
        "path": terms.location.uri,
        "endpoint": terms.location.endpoint,
        "region": terms.location.region,
        "catalog": terms.catalog,
        "tableFormat": terms.table_format,
        "partitionBy": ",".join(derived.name for derived in terms.columns.partition_by),
        "sinkId": terms.sink_id,
        "fileBytes": str(terms.file_bytes),
        "leaveGaps": "true" if terms.skipping_lost else None,
        "checkpointLocation": checkpoint,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def _follow(query: StreamingQuery, tell: Tell, should_stop: Callable[[], bool]) -> None:
    last_batch_id = -1
    try:
        while not query.awaitTermination(WAIT_S) and not should_stop():
            last_batch_id = _report_progress(query, tell, last_batch_id)
        _report_progress(query, tell, last_batch_id)
    finally:
        query.stop()


def _report_progress(query: StreamingQuery, tell: Tell, last_batch_id: int) -> int:
    for progress in query.recentProgress:
        if progress["batchId"] > last_batch_id and progress["numInputRows"]:
            seconds = progress["durationMs"].get("triggerExecution", 0) / 1_000
            tell(f"batch {progress['batchId']}: {progress['numInputRows']:,} records in {seconds:.1f} s")
            last_batch_id = progress["batchId"]
    return last_batch_id


def reason_in(text: str) -> str | None:
    """Returns our own error's line in Spark's error; None where there is none."""
    match = ERROR_OF_OURS.search(text)
    return None if match is None else match["message"].strip()
