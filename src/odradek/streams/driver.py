"""The test driver: the same plan over rows that a test gives, as one batch of Spark, without a broker.

Rows of all topics are handled in the order in which they are fed. What is written to a topic that the program also reads
is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema

from odradek.model.errors import ConfigError
from odradek.streams.language import Stream, Table
from odradek.streams.plan.operators import Called, Operator, TopicSink, TopicSource, walk
from odradek.streams.plan.program import Program
from odradek.streams.plan.schemas import DeclaredSchema
from odradek.streams.plan.windows import milliseconds
from odradek.streams.records import StreamRecord
from odradek.streams.session import session
from odradek.streams.translation import Translator
from odradek.streams.translation.frames import RecordFrame, columns, record_schema, scope
from odradek.streams.translation.translator import Tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TestDriver:
    """`feed` rows, `read` what a topic got. Reading runs the whole plan over all that was fed so far."""

    __test__ = False  # for pytest: no test case

    def __init__(self, program: Program, spark: SparkSession | None) -> None:
        self._program = program
        self._spark = session(program.name, spark or program.spark, program.partitions)
        self._fed: dict[str, list[dict[str, Any]]] = {}
        self._clock_ms = 0
        self._count = 0
        self._sources = {
            source.topic: source for source in walk(*program.ends) if isinstance(source, TopicSource)
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._fed.clear()

    def feed(self, topic: str, rows: Iterable[Any]) -> None:
        """Rows are dicts with key, value, timestamp (ms; the driver's clock when absent) and headers, or tuples (key,
        value[, timestamp]).
        """
        source = self._sources.get(topic)
        if source is None:
            raise ConfigError(
                f"the program does not read a topic {topic!r}; it reads {', '.join(sorted(self._sources))}"
            )
        fed = self._fed.setdefault(topic, [])
        for row in rows:
            given = _given(row)
            timestamp = given.get("timestamp")
            fed.append(
                {
                    "__key": _struct_of(given.get("key"), source.key, "key"),
                    "__value": _struct_of(given.get("value"), source.value, "value"),
                    "__timestamp": self._clock_ms if timestamp is None else timestamp,
                    "__headers": [{"key": name, "value": value} for name, value in given.get("headers") or ()]
                    or None,
                    "__order": [self._count, 0, 0, self._count],
                }
            )
            self._count += 1

    def advance(self, time: str | int) -> None:
        """Move the clock that stamps rows without a timestamp."""
        self._clock_ms += milliseconds(time, "advance")

    def read(self, topic: str) -> list[StreamRecord]:
        """What was written to a topic, in order."""
        return self.read_all().get(topic, [])

    def read_all(self) -> dict[str, list[StreamRecord]]:
        """What was written to each topic, in order."""
        sinks = [end for end in self._program.ends if isinstance(end, (TopicSink, Called))]
        records: dict[str, list[tuple[list[int], StreamRecord]]] = {
            end.topic: [] for end in sinks if isinstance(end, TopicSink) and end.topic is not None
        }
        translator = self._translator(sinks)
        for number, sink in enumerate(sinks):
            for topic, order, record in self._written(translator, sink):
                if isinstance(sink, Called):
                    sink.call(record)
                else:
                    records.setdefault(topic, []).append(([*order, number], record))
        return {
            topic: [record for _, record in sorted(keyed, key=_order)] for topic, keyed in records.items()
        }

    def table(self, table: Table | str) -> dict[Any, Any]:
        """What is in a table, or in a topic read as one: a value for each key. Keys of several columns are tuples."""
        if isinstance(table, str):
            records = self.read(table)
        else:
            translator = self._translator([table.operator])
            rows = self._collected(translator.frame(table.operator))
            records = [record for _, record in rows]
        latest: dict[Any, Any] = {}
        for record in records:
            key = tuple(record.key.values()) if isinstance(record.key, dict) else record.key
            latest.pop(key, None)
            if record.value is not None:
                latest[key] = record.value
        return latest

    def records(self, of: Stream | Table) -> list[StreamRecord]:
        """The records of a stream, or the updates of a table, that the program need not write anywhere."""
        translator = self._translator([of.operator])
        return [record for _, record in self._collected(translator.frame(of.operator))]

    def _translator(self, ends: Iterable[Operator]) -> Translator:
        made: dict[str, RecordFrame] = {}

        def read(source: TopicSource) -> RecordFrame:
            known = made.get(source.name)
            if known is None:
                known = made[source.name] = self._source(source, translator)
            return known

        translator = Translator(
            spark=self._spark, read=read, ends=ends, tasks=Tasks(self._program.partitions)
        )
        return translator

    def _source(self, source: TopicSource, translator: Translator) -> RecordFrame:
        rows = self._fed.get(source.topic, [])
        schema = record_schema(source)
        try:
            fed = pa.Table.from_pylist(rows, schema=to_arrow_schema(schema, timezone="UTC"))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ConfigError(
                f"a row that was fed to {source.topic} does not fit its schema: {error}"
            ) from None
        frame = self._spark.createDataFrame(fed, schema)
        for sink in self._program.ends:
            if isinstance(sink, TopicSink) and sink.topic == source.topic:
                again = translator.frame(sink.inputs[0]).rows
                frame = frame.union(
                    again.select(
                        sf.col("__key").cast(schema["__key"].dataType),
                        sf.col("__value").cast(schema["__value"].dataType),
                        "__timestamp",
                        "__headers",
                        "__order",
                    )
                )
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
            yield row["__topic"], row["__order"], record

    def _collected(self, frame: RecordFrame) -> list[tuple[list[int], StreamRecord]]:
        return sorted(((row["__order"], record) for row, record in self._rows(frame, frame.rows)), key=_order)

    def _rows(self, frame: RecordFrame, rows: Any) -> Iterable[tuple[dict[str, Any], StreamRecord]]:
        bare_key = frame.fields("__key") == ("key",) or len(frame.fields("__key")) == 1
        bare_value = frame.fields("__value") == ("value",)
        table: pa.Table = _all_nullable(rows.drop("__old")).toArrow()
        for row in table.to_pylist():
            if bare_key and row["__key"] is not None:
                row["__key"] = {"key": next(iter(row["__key"].values()))}
            yield row, StreamRecord.of(row, bare_key=bare_key, bare_value=bare_value)


def _all_nullable(rows: DataFrame) -> DataFrame:
    """Arrow looks for nulls in the fields of a struct that is null itself, and refuses them where the schema does."""
    fields = rows.schema.toNullable().fields
    return rows.select(
        *(sf.col(f"`{field.name}`").cast(field.dataType).alias(field.name) for field in fields)
    )


def _order(pair: tuple[list[int], Any]) -> list[int]:
    return pair[0]


def _given(row: Any) -> Mapping[str, Any]:
    if isinstance(row, tuple):
        if not 2 <= len(row) <= 3:
            raise ConfigError(f"a fed tuple is (key, value) or (key, value, timestamp), not {row!r}")
        return dict(zip(("key", "value", "timestamp"), row, strict=False))
    if isinstance(row, Mapping):
        strange = set(row) - {"key", "value", "timestamp", "headers", "partition"}
        if strange:
            raise ConfigError(
                f"a fed row has key, value, timestamp and headers; it has no {', '.join(sorted(strange))}"
            )
        return row
    raise ConfigError(f"a fed row is a dict or a tuple, not {row!r}")


def _struct_of(given: Any, schema: DeclaredSchema, role: str) -> dict[str, Any] | None:
    if given is None:
        return None
    if schema.bare:
        return {schema.names[0]: given}
    if not isinstance(given, Mapping):
        raise ConfigError(f"the {role} has the columns {', '.join(schema.names)}: feed a dict, not {given!r}")
    strange = set(given) - set(schema.names)
    if strange:
        raise ConfigError(
            f"the {role} has no column {', '.join(sorted(strange))}; it has {', '.join(schema.names)}"
        )
    return {name: given.get(name) for name in schema.names}
