"""The rows that a test feeds to a topic, as a frame: with values, or with the bytes that a record would have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options
from odradek.spark.reading.decode import to_columns
from odradek.spark.reading.schema import arrow_schema, read_ddl
from odradek.spark.rows.result_types import ResultType, timestamp_type
from odradek.streams.plan.operators import TopicSource
from odradek.streams.plan.schemas import DeclaredSchema
from odradek.streams.translation.frames import ORIGIN, STATE, RecordFrame, record_schema, struct_type
from odradek.streams.translation.incoming import incoming, reading_options, without_negative_times
from odradek.streams.translation.letters import ORIGIN_TYPE, PASSING_TYPE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from odradek.streams.processors.failures import Letters

_US_PER_MS: Final = 1_000


class InputTopic:
    """The rows of one topic. A row's number among the rows of all topics is its position in time and its offset."""

    def __init__(self, source: TopicSource, number: int) -> None:
        self._source = source
        self.number = number
        self._values: list[dict[str, object]] = []
        self._records: list[dict[str, object]] = []

    def add(self, row: object, number: int, clock_ms: int) -> int:
        """Adds a row; returns its timestamp, the clock's if it has none. ConfigError for a row that does not fit."""
        fields = _fields_of(row)
        timestamp = fields.get("timestamp")
        when = clock_ms if timestamp is None else _fitted(timestamp_type(), timestamp, "the timestamp")
        headers = [{"key": name, "value": value} for name, value in fields.get("headers") or ()]
        if _is_raw(fields.get("key"), self._source.key) or _is_raw(fields.get("value"), self._source.value):
            self._records.append(
                {
                    "key": _bytes(fields.get("key"), "key"),
                    "value": _bytes(fields.get("value"), "value"),
                    "offset": number,
                    "timestamp": when,
                    "timestamp_type": 0,
                    "headers": headers,
                }
            )
        else:
            self._values.append(
                {
                    "__key": _struct_of(fields.get("key"), self._source.key, "key"),
                    "__value": _struct_of(fields.get("value"), self._source.value, "value"),
                    "__timestamp": when,
                    "__headers": headers or None,
                    "__order": [number, self.number, 0, number, 0],
                }
            )
        return when

    def frame(self, spark: SparkSession, letters: Letters | None) -> RecordFrame:
        """Returns all rows so far. `letters`: where bytes go that cannot be decoded."""
        schema = record_schema(self._source)
        values = self._arrow_table(to_arrow_schema(schema, timezone="UTC"))
        frame = RecordFrame(rows=spark.createDataFrame(values, schema))
        if letters is not None:
            frame = frame.with_rows(self._with_origin(frame.rows))
        if self._source.timestamp is None:
            frame = frame.with_rows(without_negative_times(frame.rows, self._source, letters))
        if not self._records:
            return frame
        read = self._decoded(spark, letters)
        if not self._values:
            return read
        return frame.with_rows(frame.rows.unionByName(read.rows, allowMissingColumns=True))

    def _arrow_table(self, schema: pa.Schema) -> pa.Table:
        """Returns the rows with values. ConfigError for one that the types cannot hold exactly."""
        rows = [dict(row) for row in self._values]
        for column in ("__key", "__value"):
            kind = ResultType(schema.field(column).type)
            for row in rows:
                what = f"a row that was fed to {self._source.topic} does not fit its schema"
                row[column] = _fitted(kind, row[column], what)
        return pa.Table.from_pylist(rows, schema=schema)

    def _with_origin(self, rows: DataFrame) -> DataFrame:
        """Adds the origins that the rows would have if they had been read as JSON."""

        def text(column: str) -> Column:
            shown = sf.col(column)
            fields = self._source.key if column == "__key" else self._source.value
            alone = shown.getField(fields.names[0]).cast("string") if fields.bare else sf.to_json(shown)
            return sf.when(shown.isNotNull(), alone.cast("binary"))

        origin = sf.struct(
            sf.lit(self._source.topic).alias("topic"),
            sf.lit(0).alias("partition"),
            sf.col("__order")[3].alias("offset"),
            sf.col("__timestamp").alias("timestamp"),
            text("__key").alias("key"),
            text("__value").alias("value"),
            sf.col("__headers").alias("headers"),
        )
        return rows.withColumn(STATE, sf.lit(None).cast(PASSING_TYPE)).withColumn(
            ORIGIN, origin.cast(ORIGIN_TYPE)
        )

    def _decoded(self, spark: SparkSession, letters: Letters | None) -> RecordFrame:
        """Decodes bytes with the same code as a source."""
        source = self._source
        reading = reading_options(source, letters)
        projection = read_options(
            {**reading, "kafka.bootstrap.servers": "-", "subscribe": source.topic},
            Use.BATCH_READ,
        ).projection
        kind = struct_type(read_ddl(projection))
        header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
        records = pa.RecordBatch.from_pylist(
            self._records,
            schema=pa.schema(
                {
                    "key": pa.binary(),
                    "value": pa.binary(),
                    "offset": pa.int64(),
                    "timestamp": pa.int64(),
                    "timestamp_type": pa.int32(),
                    "headers": pa.list_(header),
                }
            ),
        )
        rows = to_columns(records, TopicPartition(source.topic, 0), arrow_schema(kind), projection)
        frame = incoming(spark.createDataFrame(pa.Table.from_batches([rows]), kind), source, 0, letters)
        partition = sf.col("__order")[3]
        zero, source_number = (sf.lit(number).cast("bigint") for number in (0, self.number))
        return frame.with_rows(
            frame.rows.withColumn("__order", sf.array(partition, source_number, zero, partition, zero))
        )


def all_nullable(rows: DataFrame) -> DataFrame:
    """Arrow looks for nulls in the fields of a struct that is null itself, and refuses them where the schema does."""
    fields = rows.schema.toNullable().fields
    return rows.select(
        *(sf.col(f"`{field.name}`").cast(field.dataType).alias(field.name) for field in fields)
    )


def _fields_of(row: object) -> Mapping[str, Any]:
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
    raise ConfigError(f"a fed row is a dict or a tuple in a list, such as [('ann', 5)], not {row!r:.80}")


def _fitted(kind: ResultType, value: object, what: str) -> Any:
    try:
        return kind.fitted(value)
    except ValueError as error:
        raise ConfigError(f"{what}: {error}") from None


def _is_raw(value: object, schema: DeclaredSchema) -> bool:
    """Bytes where the type is another one: they are decoded, as a record's are."""
    return isinstance(value, bytes) and not (schema.bare and schema.fields[0][1].upper() == "BINARY")


def _bytes(value: object, role: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise ConfigError(f"the {role} {value!r} is fed together with bytes: give it as bytes, too")


def _struct_of(value: object, schema: DeclaredSchema, role: str) -> dict[str, object] | None:
    if value is None:
        return None
    if schema.bare:
        return {schema.names[0]: value}
    if not isinstance(value, Mapping):
        raise ConfigError(f"the {role} has the columns {', '.join(schema.names)}: feed a dict, not {value!r}")
    strange = set(value) - set(schema.names)
    if strange:
        raise ConfigError(
            f"the {role} has no column {', '.join(sorted(strange))}; it has {', '.join(schema.names)}"
        )
    return {name: value.get(name) for name in schema.names}


def read_rows(rows: DataFrame) -> Iterable[dict[str, Any]]:
    """Returns the rows of a frame, as dicts."""
    table: pa.Table = all_nullable(rows.drop("__old")).toArrow()
    read: list[dict[str, object]] = table.to_pylist()
    return read
