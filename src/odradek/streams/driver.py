"""The test driver, in place of TopologyTestDriver: it runs a program's plan over rows of a test, without a broker.

The rows are one batch of Spark. Rows of all topics are handled in the order in which they are fed. Output to a topic that the
program also reads is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
from pyspark.sql import functions as sf

from odradek.model.errors import ConfigError
from odradek.model.near_names import near_hint
from odradek.model.public import public
from odradek.spark.dead_letters.letters import NO_BATCH
from odradek.spark.dead_letters.passing import log_failure, passing_rows
from odradek.spark.engine.session import session_with_state
from odradek.streams.feeding import InputTopic, read_rows
from odradek.streams.language import Stream, Table
from odradek.streams.plan.arguments import checked_text
from odradek.streams.plan.operators import Called, Operator, TopicSink, TopicSource, walk
from odradek.streams.plan.program import Program
from odradek.streams.plan.queries import planned_queries
from odradek.streams.plan.windows import Length, milliseconds
from odradek.streams.processors.failures import LetterRules
from odradek.streams.processors.records import StreamRecord
from odradek.streams.processors.task import ScriptStep
from odradek.streams.translation import Translator
from odradek.streams.translation.frames import (
    META,
    STATE,
    RecordFrame,
    carried,
    columns,
    filtered,
    moved_on,
    passes,
    record_schema,
    scope,
)
from odradek.streams.translation.spark_errors import in_one_line
from odradek.streams.translation.translator import Tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SMALL_DATA: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


@public("odradek.streams")
class TestDriver:
    """The test driver: a program over records that a test feeds.

    `feed` rows, `read` what a topic got. Reading runs the whole plan over all that was fed so far.
    """

    __test__ = False  # for pytest: no test case

    def __init__(self, program: Program, spark: SparkSession | None) -> None:
        planned_queries(program.ends)
        self._program = program
        self._spark = session_with_state(program.name, spark or program.spark, program.partitions)
        self._fed: dict[str, InputTopic] = {}
        self._script: list[ScriptStep] = []
        self._clock_ms = 0
        self._latest_ms = 0
        self._count = 0
        self._rules = LetterRules(program=program)
        self._passed: set[tuple[str, bytes]] = set()
        """Dead letters that were read: several outputs come to the same."""
        self._written_records: dict[str, list[StreamRecord]] | None = None
        sinks = [end for end in program.ends if isinstance(end, TopicSink)]
        self._written_topics = {sink.topic for sink in sinks if sink.topic is not None} | _letter_topics(
            program
        )
        self._writes_any_topic = any(sink.topic is None for sink in sinks)
        self._sources = {
            source.topic: source for source in walk(*program.ends) if isinstance(source, TopicSource)
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._fed.clear()

    def feed(self, topic: str, rows: Iterable[Any]) -> None:
        """Rows are dicts with key, value, timestamp (ms; the driver's clock when absent) and headers, or tuples (key,
        value[, timestamp]). Bytes are decoded like a record's bytes, unless the type is BINARY.
        """
        checked_text(topic, "the topic", "text such as 'orders'")
        source = self._sources.get(topic)
        if source is None:
            raise ConfigError(
                f"the program does not read a topic {topic!r}; it reads {', '.join(sorted(self._sources)) or 'none'}"
                f"{near_hint(topic, self._sources)}"
            )
        if not isinstance(rows, Iterable) or isinstance(rows, (str, bytes, dict)):
            raise ConfigError(f"feed takes a list of rows, such as [('ann', 5)], not {rows!r:.80}")
        fed = self._fed.setdefault(topic, InputTopic(source, len(self._fed)))
        for row in rows:
            self._latest_ms = max(self._latest_ms, fed.add(row, self._count, self._clock_ms))
            self._count += 1
        self._written_records = None

    def cut(self) -> None:
        """Ends a batch here, and stops and starts the program: `emit="latest"` emits what it has, state continues."""
        self._script.append(ScriptStep(self._count - 1, None))
        self._written_records = None

    def advance(self, time: Length) -> None:
        """Lets this much time pass after the latest record: stream time, so windows close and timers come, and the clock that
        stamps rows without a timestamp.
        """
        self._clock_ms = max(self._clock_ms, self._latest_ms) + milliseconds(time, "advance")
        self._script.append(ScriptStep(self._count, self._clock_ms))
        self._count += 1
        self._written_records = None

    def advance_wall_clock(self, time: Length) -> None:
        """Lets this much time pass on the clock alone: wall-clock timers come, idle timeouts end. Stream time stays.

        Rows that are fed later without a timestamp have the clock's.
        """
        self._clock_ms += milliseconds(time, "advance_wall_clock")
        self._script.append(ScriptStep(self._count, self._clock_ms, is_wall_clock=True))
        self._count += 1
        self._written_records = None

    def read(self, topic: str) -> list[StreamRecord]:
        """Returns the records written to a topic, in order. ConfigError for a topic that the program does not write."""
        self._check_written(topic)
        return self.read_all().get(topic, [])

    def _check_written(self, topic: str) -> None:
        """Raises ConfigError where no record can ever come to the topic."""
        checked_text(topic, "the topic", "text such as 'totals'")
        if topic in self._written_topics or self._writes_any_topic:
            return
        raise ConfigError(
            f"the program does not write a topic {topic!r}; it writes {', '.join(sorted(self._written_topics)) or 'none'}"
            f"{near_hint(topic, self._written_topics)}"
        )

    def read_all(self) -> dict[str, list[StreamRecord]]:
        """Returns the records written to each topic, in order."""
        if self._written_records is None:
            with _settings_of_small_data(self._spark), in_one_line():
                self._written_records = self._run()
        return {topic: list(records) for topic, records in self._written_records.items()}

    def _run(self) -> dict[str, list[StreamRecord]]:
        sinks = [end for end in self._program.ends if isinstance(end, (TopicSink, Called))]
        records: dict[str, list[tuple[list[int], StreamRecord]]] = {
            end.topic: [] for end in sinks if isinstance(end, TopicSink) and end.topic is not None
        }
        translator = self._translator(sinks)
        self._passed.clear()
        for number, sink in enumerate(sinks):
            for topic, order, record in self._written(translator, sink):
                if isinstance(sink, Called) and topic == "":
                    sink.call(record)
                else:
                    records.setdefault(topic, []).append(([*order, number], record))
        return {
            topic: [record for _, record in sorted(keyed, key=_order)] for topic, keyed in records.items()
        }

    def table(self, table: Table | str) -> dict[Any, Any]:
        """Returns a table, or a topic read as one: a value for each key. Keys of several columns are tuples."""
        records = self.records(table) if isinstance(table, Table) else self.read(table)
        latest: dict[Any, Any] = {}
        for record in records:
            key = tuple(record.key.values()) if isinstance(record.key, dict) else record.key
            latest.pop(key, None)
            if record.value is not None:
                latest[key] = record.value
        return latest

    def records(self, of: Stream | Table) -> list[StreamRecord]:
        """Returns the records of a stream, or the updates of a table, that the program need not write anywhere."""
        if not isinstance(of, (Stream, Table)):
            raise ConfigError(
                f"records takes a stream or a table of the program, not {of!r:.80}; read takes a topic"
            )
        translator = self._translator([of.operator])
        with _settings_of_small_data(self._spark), in_one_line():
            return [record for _, record in self._collected(translator.frame(of.operator))]

    def _translator(self, ends: Iterable[Operator]) -> Translator:
        frames: dict[str, RecordFrame] = {}

        def read(source: TopicSource) -> RecordFrame:
            known = frames.get(source.name)
            if known is None:
                known = frames[source.name] = self._source(source, translator)
            return known

        tasks = Tasks(
            self._program.partitions,
            script=tuple(self._script),
            letters=self._rules.of,
            topics={source.number: topic for topic, source in self._fed.items()},
        )
        translator = Translator(spark=self._spark, read=read, ends=ends, tasks=tasks)
        return translator

    def _source(self, source: TopicSource, translator: Translator) -> RecordFrame:
        schema = record_schema(source)
        fed = self._fed.get(source.topic, InputTopic(source, 0))
        frame = fed.frame(self._spark, self._rules.of_source(source)).rows
        for sink in self._program.ends:
            if isinstance(sink, TopicSink) and sink.topic == source.topic:
                again = moved_on(translator.frame(sink.inputs[0]), (), 1).rows
                if passes(again):
                    again = filtered(again, sf.col(STATE).isNull())
                same = again.select(
                    sf.col("__key").cast(schema["__key"].dataType).alias("__key"),
                    sf.col("__value").cast(schema["__value"].dataType).alias("__value"),
                    *META,
                    *carried(again),
                )
                frame = frame.unionByName(same, allowMissingColumns=True)
        return RecordFrame(rows=frame)

    def _written(
        self, translator: Translator, sink: TopicSink | Called
    ) -> Iterable[tuple[str, list[int], StreamRecord]]:
        frame = translator.frame(sink.inputs[0])
        if isinstance(sink, TopicSink) and sink.topic_expression is not None:
            (topic,) = columns([sink.topic_expression])
            rows = scope(frame).select(*frame.rows.columns, topic.cast("string").alias("__topic"))
        else:
            name = sink.topic if isinstance(sink, TopicSink) else ""
            rows = frame.rows.withColumn("__topic", sf.lit(name))
        for row, record in self._rows(frame, rows):
            if row.get(STATE) is None:
                yield row["__topic"], row["__order"], record
                continue
            passing = row[STATE]["topic"], row[STATE]["records"]
            if passing not in self._passed:
                self._passed.add(passing)
                for written_to, letter in _letters(row["__timestamp"], *passing):
                    yield written_to, row["__order"], letter

    def _collected(self, frame: RecordFrame) -> list[tuple[list[int], StreamRecord]]:
        collected = []
        for row, record in self._rows(frame, frame.rows):
            if row.get(STATE) is None:
                collected.append((row["__order"], record))
            else:
                log_failure(pa.py_buffer(row[STATE]["records"]))
        return sorted(collected, key=_order)

    def _rows(self, frame: RecordFrame, rows: Any) -> Iterable[tuple[dict[str, Any], StreamRecord]]:
        bare_key = frame.fields("__key") == ("key",) or len(frame.fields("__key")) == 1
        bare_value = frame.fields("__value") == ("value",)
        for row in read_rows(rows):
            if bare_key and row["__key"] is not None:
                row["__key"] = {"key": next(iter(row["__key"].values()))}
            yield row, StreamRecord.of(row, bare_key=bare_key, bare_value=bare_value)


@contextmanager
def _settings_of_small_data(spark: SparkSession) -> Iterator[None]:
    """Some rows are not worth compiling code for, nor a plan that changes while it runs."""
    before = {name: spark.conf.get(name) or "" for name in _SMALL_DATA}
    try:
        for name, value in _SMALL_DATA.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _letters(timestamp: int, topic: str, records: bytes) -> Iterator[tuple[str, StreamRecord]]:
    """Yields dead letters; key and value are bytes, as in the record."""
    for of_topic, rows in passing_rows([(topic, pa.py_buffer(records))], NO_BATCH):
        for row in rows.to_pylist():
            headers = tuple((header["key"], header["value"]) for header in row["headers"])
            yield (
                of_topic,
                StreamRecord(key=row["key"], value=row["value"], timestamp=timestamp, headers=headers),
            )


def _letter_topics(program: Program) -> set[str]:
    """Returns the topics that dead letters may come to."""
    sources = (source for source in walk(*program.ends) if isinstance(source, TopicSource))
    topics = {source.bad for source in sources if source.bad is not None}
    return topics if program.bad is None else topics | {program.bad}


def _order(pair: tuple[list[int], Any]) -> list[int]:
    return pair[0]
