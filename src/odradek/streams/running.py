"""A program on a broker: a query of Spark for each output, or for those that name the same one. Each has a checkpoint of its
own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
from pyspark.sql.types import StructType

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.spark.clients import connections
from odradek.spark.dead_letters.left_out import LeftOutRecords
from odradek.spark.dead_letters.letters import QUERY_PROPERTY, MicroBatch
from odradek.spark.dead_letters.passing import passing_rows
from odradek.spark.engine.catalyst import simplified
from odradek.spark.engine.jvm import JAVA_OPTIONS, LASTING
from odradek.spark.engine.session import keep_triggers_quiet, session_with_state
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options
from odradek.streams.plan.event_order import EventOrder
from odradek.streams.plan.operators import Called, Operator, TopicSink, TopicSource, walk
from odradek.streams.plan.program import Program
from odradek.streams.plan.queries import PlannedQuery, planned_queries, sink_id
from odradek.streams.plan.sources import can_be_named, source_names
from odradek.streams.processors.failures import LetterRules, Letters
from odradek.streams.processors.records import StreamRecord
from odradek.streams.prompt_batches import prompt_batches
from odradek.streams.queryable_tables import QueryableTable, QueryableTables
from odradek.streams.restore.changelogs import SinkChangelogs, make_compacted
from odradek.streams.restore.checkpoint_directory import CheckpointDirectory
from odradek.streams.translation import Translator
from odradek.streams.translation.frames import (
    STATE,
    RecordFrame,
    passes,
    record_schema,
    scope,
)
from odradek.streams.translation.incoming import incoming, reading_options
from odradek.streams.translation.letters import records_alone
from odradek.streams.translation.outputs import outgoing, packed_output, sink_formats
from odradek.streams.translation.plain_records import plain_records
from odradek.streams.translation.spark_errors import in_one_line
from odradek.streams.translation.translator import Tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from odradek.net.metrics_page import PageTerms
    from odradek.spark import query_metrics
    from odradek.spark.query_metrics import SessionMetrics
    from odradek.views.table_view import TableView
else:
    query_metrics = lazy("odradek.spark.query_metrics")


ROWS_PER_BATCH: Final = 1_000_000
"""The most rows of each topic in a batch. The option maxOffsetsPerTrigger of a source overrides it."""
ROWS_PER_BATCH_WITH_STATE: Final = 200_000
"""The same for a query with state: a task holds its rows of a batch in memory."""

_IDLE_WAIT: Final = "idleWaitMs"
_OF_READERS: Final = frozenset({"kafka.isolation.level", _IDLE_WAIT})
"""Options of a program that its sinks do not know."""


_SOURCES_BY_NAME: Final = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""A checkpoint that began with it takes sources that come, go and move."""

_CHANGELOG_CHECKPOINTS: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
"""A batch writes what it has changed of the state, not the files of RocksDB."""


class Run:
    """Queries that run. Leaving `with` stops them."""

    def __init__(
        self,
        queries: Mapping[str, StreamingQuery],
        tables: QueryableTables,
        with_named_sources: frozenset[str] = frozenset(),
        metrics: SessionMetrics | None = None,
        packing: frozenset[str] = frozenset(),
    ) -> None:
        """`metrics`: the listener that ends with the run."""
        self.queries = dict(queries)
        self._metrics = metrics
        self.with_named_sources: Final = with_named_sources
        """The outputs whose checkpoint knows their sources by names."""
        self.packing: Final = packing
        """The outputs whose sources pack records: Spark's counts of input rows are not counts of records."""
        self._tables = tables

    def __getitem__(self, topic: str) -> TableView:
        """The table that the program writes to a topic, as it is now: `run["totals"]["ann"]`, `run["totals"].range("a", "c")`.

        A view of the topic on this machine, of all keys, whichever instance writes them; `freshness()` tells how far it is.
        """
        return self._tables[topic]

    def serve(self, *, port: int = 8085, host: str = "127.0.0.1") -> str:
        """Serves all tables that the program writes over HTTP, until it is stopped: GET /tables, /tables/TOPIC/KEY
        (docs/views.md has the rest). Returns the URL. Port 0: a free one."""
        return self._tables.serve(host, port)

    @property
    def metrics_url(self) -> str | None:
        """The address of the run's metrics; None without `start(metrics=)`."""
        return None if self._metrics is None else self._metrics.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        for query in self.queries.values():
            query.stop()
        self._tables.close()
        if self._metrics is not None:
            self._metrics.close()
        connections.close_idle()

    def wait(self, timeout_s: int | None = None) -> bool:
        """Waits until all have ended, or the time is over. QueryFailedError gives the cause of a query's end in one line."""
        ended = []
        for name, query in self.queries.items():
            with in_one_line(name):
                if timeout_s is None:
                    query.awaitTermination()
                    ended.append(True)
                else:
                    ended.append(bool(query.awaitTermination(timeout_s)))
        return all(ended)


def start(
    program: Program,
    *,
    checkpoint: str,
    delivery: str,
    changelog: bool,
    interval: str,
    until_now: bool,
    options: Mapping[str, str],
    metrics: PageTerms | None = None,
) -> Run:
    """Starts the queries. `interval`: of Spark's trigger; `until_now`: the trigger is availableNow; `metrics`: their listener.

    ConfigError for outputs that one query cannot write, and for a program that writes nothing, or has no servers.
    """
    planned = _planned(program)
    queries: dict[str, StreamingQuery] = {}
    topics, tables, named, packing = dict[str, int](), dict[str, QueryableTable](), set[str](), set[str]()
    queryable = QueryableTables({} if program.servers is None else _client_options(program), tables)
    rules = _letter_rules(program, planned)
    settings = {} if until_now else {JAVA_OPTIONS: LASTING}
    spark = session_with_state(program.name, program.spark, program.partitions, settings)
    page = None if metrics is None else query_metrics.SessionMetrics(spark, metrics).__enter__()
    has_changelog = changelog and delivery == "exactly_once"
    for_now = _SettingsForNow(spark)
    for_now.set_if_absent(_CHANGELOG_CHECKPOINTS, "true")
    try:
        for query in planned:
            sink, directory = query.main, _directory_of(checkpoint, query)
            terms = _query_terms(program, query, directory, changelog=has_changelog, interval=interval)
            changelogs = terms.changelogs
            named.update([query.name] if terms.names else ())
            for_now.set(_SOURCES_BY_NAME, str(bool(terms.names)).lower())
            translator = _translator(program, program.ends, topics, rules[query.name], terms)
            frame = translator.frame(sink.inputs[0])
            if changelogs is not None:
                changelogs.leave_others()
            if isinstance(sink, TopicSink):
                tables.update(_tables_of(program, {sink: frame, **translator.tail_frames}))
                rows, packed_rows, formats = _sink_rows(sink, frame)
                own = {**formats, **packed_rows}
                writer = _topic_writer(program, query, rows, delivery, {**own, **options})
                writer = writer.options(**(changelogs.sink_options if changelogs else {}))
            else:
                assert isinstance(sink, Called)
                packed_rows = {}
                writer = simplified(frame.rows).writeStream.foreachBatch(_Calls(frame, sink, program))
            query_name = f"{program.name}.{query.name}"
            writer = writer.queryName(query_name).option("checkpointLocation", directory.uri)
            writer = writer.trigger(**({"availableNow": True} if until_now else {"processingTime": interval}))
            _note_packing(page, query_name, terms, packed_rows)
            packing.update([query.name] if terms.packed else [])
            with in_one_line(query.name):
                queries[query.name] = writer.outputMode("append").start()
    except BaseException:
        Run(queries, queryable, metrics=page).stop()
        raise
    finally:
        for_now.restore()
    return Run(queries, queryable, frozenset(named), page, frozenset(packing))


def _sink_rows(sink: TopicSink, frame: RecordFrame) -> tuple[DataFrame, Mapping[str, str], Mapping[str, str]]:
    """Returns the rows for the sink, and its options: how they are packed, and in which formats it writes them."""
    formats = sink_formats(sink)
    rows = simplified(outgoing(sink, frame, formats))
    if formats:  # it computes no structs from packed rows
        return rows, {}, formats
    return *packed_output(rows), formats


def _planned(program: Program) -> list[PlannedQuery]:
    """Returns the queries of a program. ConfigError for one that writes nothing."""
    planned = planned_queries(program.ends)
    if not planned:
        raise ConfigError(f"{program.name} writes nothing: end a stream with to(...) or foreach(...)")
    return planned


def _note_packing(
    page: SessionMetrics | None, query_name: str, terms: _QueryTerms, packed_rows: Mapping[str, str]
) -> None:
    if page is not None:
        page.note_packing(query_name, sources=bool(terms.packed), output=bool(packed_rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueryTerms:
    """What one query has of its own. `names`: what Spark's checkpoint calls the sources. `has_even_tasks`: whether it calls the
    tasks so that each is in a partition of its own.
    """

    changelogs: SinkChangelogs | None = None
    names: Mapping[TopicSource, str] = field(default_factory=dict)
    tails: Mapping[Operator, tuple[TopicSink, ...]] | None = None
    has_even_tasks: bool = True
    may_pack: bool = False
    """Whether a source may pack records for tasks: nothing else reads it."""
    packed: list[str] = field(default_factory=list)
    """The sources that do."""
    rows_per_batch: int = ROWS_PER_BATCH_WITH_STATE
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Options of all its sources that define how they wait for records."""
    waiting_source: Mapping[TopicSource, Mapping[str, str]] = field(default_factory=dict)
    """The same for the one source that waits for all."""


def _query_terms(
    program: Program, query: PlannedQuery, directory: CheckpointDirectory, *, changelog: bool, interval: str
) -> _QueryTerms:
    """Returns the terms of a query that starts now. `interval`: as `prompt_batches` takes it."""
    changelogs = None
    if isinstance(query.main, TopicSink) and changelog:
        changelogs = SinkChangelogs.open(
            _client_options(program), _sink_id(program, query), program.partitions, directory
        )
    has_state = any(operator.has_state for operator in walk(*query.ends))
    return _QueryTerms(
        changelogs=changelogs,
        names=_names_in(directory, query.main),
        tails=query.tails,
        may_pack=True,
        has_even_tasks=directory.has_even_tasks(),
        rows_per_batch=ROWS_PER_BATCH_WITH_STATE if has_state else ROWS_PER_BATCH,
        waiting={"idleWaitQuery": directory.uri} if _IDLE_WAIT in program.options else {},
        waiting_source=_waiting_source(program, query, interval),
    )


def _waiting_source(
    program: Program, query: PlannedQuery, interval: str
) -> dict[TopicSource, Mapping[str, str]]:
    """Returns the options of the source that waits for records within triggers, which Spark would warn of."""
    waiting = {} if _IDLE_WAIT in program.options else prompt_batches(query.ends, interval)
    if waiting:
        keep_triggers_quiet(session_with_state(program.name, program.spark, program.partitions))
    return waiting


class _SettingsForNow:
    """Settings of a session that count for the queries that start in the meantime."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._before: dict[str, str | None] = {}

    def set(self, name: str, value: str) -> None:
        self._before.setdefault(name, self._spark.conf.get(name, None))
        self._spark.conf.set(name, value)

    def set_if_absent(self, name: str, value: str) -> None:
        if name not in self._before and self._spark.conf.get(name, None) is None:
            self.set(name, value)

    def restore(self) -> None:
        for name, value in self._before.items():
            if value is None:
                self._spark.conf.unset(name)
            else:
                self._spark.conf.set(name, value)


def _tables_of(program: Program, frames: Mapping[TopicSink, RecordFrame]) -> dict[str, QueryableTable]:
    """Returns the queryable tables that outputs write, by topic. Makes topics that do not exist."""
    tables: dict[str, QueryableTable] = {}
    for output, frame in frames.items():
        if output.is_changelog and output.topic is not None:
            tables[output.topic] = QueryableTable.of(output, frame)
            make_compacted(_client_options(program), output.topic)
    return tables


def _directory_of(checkpoint: str, query: PlannedQuery) -> CheckpointDirectory:
    """Returns the path of one query's checkpoint, below the program's."""
    return CheckpointDirectory(
        f"{checkpoint}/{query.name}" if "://" in checkpoint else str(Path(checkpoint) / query.name)
    )


def _names_in(checkpoint: CheckpointDirectory, sink: Operator) -> Mapping[TopicSource, str]:
    """Returns the names of an output's sources in its checkpoint, which never change; empty where they have no names."""
    if not can_be_named(sink) or checkpoint.has_named_sources() is False:
        return {}
    return source_names([sink])


class _Calls:
    """A batch to the user's function, record by record, on the driver."""

    def __init__(self, frame: RecordFrame, sink: Called, program: Program) -> None:
        self._bare_key = len(frame.fields("__key")) == 1
        self._bare_value = frame.fields("__value") == ("value",)
        self._call = sink.call
        self._options = _client_options(program)
        self._left_out_log = program.left_out_log

    def __call__(self, batch: DataFrame, number: int) -> None:
        rows = batch.toArrow().to_pylist()
        for row in sorted(rows, key=lambda row: row["__order"]):
            if row.get(STATE) is not None:
                continue
            if self._bare_key and row["__key"] is not None:
                row["__key"] = {"key": next(iter(row["__key"].values()))}
            self._call(StreamRecord.of(row, bare_key=self._bare_key, bare_value=self._bare_value))
        passing = [row[STATE] for row in rows if row.get(STATE) is not None]
        if passing:
            query = batch.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
            self._send(passing, MicroBatch(query=query, batch=number))

    def _send(self, passing: list[dict[str, Any]], micro_batch: MicroBatch) -> None:
        """Sends dead letters, at least once as the calls are."""
        rows = ((row["topic"], pa.py_buffer(row["records"])) for row in passing)
        client = read_options({**self._options, "subscribe": "-"}, Use.BATCH_READ).client
        left_out = LeftOutRecords(self._left_out_log, client)
        letters = list(passing_rows(rows, micro_batch, left_out))
        left_out.close()
        if not letters:
            return
        with connections.sending(client) as producer:
            for topic, records in letters:
                producer.send_arrow(topic, records)


def _letter_rules(program: Program, planned: list[PlannedQuery]) -> dict[str, LetterRules]:
    """Returns the rules by query. An operator that several queries need runs in each, but only one writes its dead letters:
    outputs to topics, which have transactions, come first.
    """
    rules: dict[str, LetterRules] = {}
    written: set[str] = set()
    for query in sorted(planned, key=lambda query: isinstance(query.main, Called)):
        rules[query.name] = LetterRules(program=program, elsewhere=frozenset(written))
        written.update(operator.name for operator in walk(*query.ends))
    return rules


def _topic_writer(
    program: Program, query: PlannedQuery, rows: DataFrame, delivery: str, options: Mapping[str, str]
) -> Any:
    client_options = {
        name: value for name, value in _client_options(program).items() if name not in _OF_READERS
    }
    writer = rows.writeStream.format("odradek").options(**client_options)
    writer = writer.option("delivery", delivery)
    if program.left_out_log is not None:
        writer = writer.option("leftOutLog", program.left_out_log.text)
    if delivery == "exactly_once":
        writer = writer.option("sinkId", _sink_id(program, query))
    return writer.options(**options)


def _sink_id(program: Program, query: PlannedQuery) -> str:
    return sink_id(program.name, query.name)


def _client_options(program: Program) -> dict[str, str]:
    if program.servers is None:
        raise ConfigError(
            f"Streams({program.name!r}) needs servers= to be started: only tests run without a broker"
        )
    return {"kafka.bootstrap.servers": program.servers, **program.options}


def _translator(
    program: Program,
    ends: list[Operator],
    topics: dict[str, int],
    rules: LetterRules,
    terms: _QueryTerms,
) -> Translator:
    """Returns the translator of a query. `topics` numbers the sources, for all queries of a program."""
    spark = session_with_state(program.name, program.spark, program.partitions)
    read_topics: dict[int, str] = {}
    may_pack = terms.may_pack and EventOrder(ends).is_tree

    def read(source: TopicSource) -> RecordFrame:
        number = topics.setdefault(source.name, len(topics))
        read_topics[number] = source.topic
        return _topic_frame(program, source, number, rules.of_source(source), terms, may_pack=may_pack)

    of_operator = None if terms.changelogs is None else terms.changelogs.of
    tasks = Tasks(
        program.partitions, of_operator, letters=rules.of, topics=read_topics, is_even=terms.has_even_tasks
    )
    return Translator(spark=spark, read=read, ends=ends, tasks=tasks, tails=terms.tails)


def _topic_frame(
    program: Program,
    source: TopicSource,
    number: int,
    letters: Letters | None,
    terms: _QueryTerms,
    *,
    may_pack: bool,
) -> RecordFrame:
    """Returns a topic as a stream from its first record; the first batch has all of a global table."""
    spark = session_with_state(program.name, program.spark, program.partitions)
    limit = {} if source.everywhere else {"maxOffsetsPerTrigger": str(terms.rows_per_batch)}
    resuming = {} if terms.changelogs is None else terms.changelogs.source_options

    def load(more: Mapping[str, str]) -> DataFrame:
        if more:
            terms.packed.append(source.name)
        reader = spark.readStream.format("odradek")
        if (name := terms.names.get(source)) is not None:
            reader = reader.name(name)
        return (
            reader.options(**_client_options(program))
            .option("subscribe", source.topic)
            .option("startingOffsets", "earliest")
            .options(**reading_options(source, letters))
            .options(**limit)
            .options(**terms.waiting, **terms.waiting_source.get(source, {}))
            .options(**{**dict(source.options), **resuming, **more})
            .load()
        )

    rows = load({})
    frame = incoming(rows, source, number, letters)
    if letters is None and may_pack:
        frame = replace(frame, plain=plain_records(source, number, rows.schema, load))
    return frame


def data_frame(program: Program, operator: Operator) -> DataFrame:
    """Returns an operator's records for a program of the user's own, whose checkpoint is not known here: it may be an earlier
    version's, so tasks are called as those called them.
    """
    terms = _QueryTerms(has_even_tasks=False)
    frame = _translator(program, [operator], {}, LetterRules(program=program), terms).frame(operator)
    if passes(frame.rows):
        frame = frame.with_rows(records_alone(frame.rows))
    hidden = [name for name in frame.rows.columns if name.startswith("__")]
    return scope(frame).drop(*hidden)


def schemas(program: Program, operator: Operator) -> tuple[str, str]:
    """Returns the DDL of an operator's keys and values."""
    spark = session_with_state(program.name, program.spark, program.partitions)

    def nothing(source: TopicSource) -> RecordFrame:
        return RecordFrame(rows=spark.createDataFrame([], record_schema(source)))

    translator = Translator(spark=spark, read=nothing, ends=[operator], tasks=Tasks(program.partitions))
    rows = translator.frame(operator).rows
    types = []
    for column, bare in (("__key", "key"), ("__value", "value")):
        kind = rows.schema[column].dataType
        assert isinstance(kind, StructType)
        fields = [f"`{field.name}` {field.dataType.simpleString()}" for field in kind.fields]
        alone = kind.fieldNames() == [bare]
        types.append(kind.fields[0].dataType.simpleString() if alone else ", ".join(fields))
    return types[0], types[1]
