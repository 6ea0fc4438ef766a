"""Turns the source's columns into an archive's: values decoded or as they are, and columns to partition by.

A value that cannot be decoded is kept, and stops nothing: its bytes are in the column `undecoded`, and `value` is null.
Values that other columns cannot hold are in headers of the row (see `files/unfit_values.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from odradek.archive.store.values import KEY_HEADER, TIME_HEADER
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.spark.rows.columns import TIMESTAMP_MS_MAX
from odradek.spark.rows.json_text import json_value
from odradek.values.ddl import DdlError, parsed_ddl

if TYPE_CHECKING:
    from pyspark import errors as pyspark_errors
    from pyspark.sql import Column, DataFrame, types
    from pyspark.sql import functions as sql
else:
    pyspark_errors = lazy("pyspark.errors")
    sql = lazy("pyspark.sql.functions")
    types = lazy("pyspark.sql.types")

SOURCE_COLUMNS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "key",
    "value",
    "headers",
)
READ_COLUMNS: Final = (*SOURCE_COLUMNS, "timestampMs")
UNDECODED: Final = "undecoded"
_BAD: Final = "_odradek_bad"
_CODES: Final = re.compile(r"^\[[\w.]+\] | SQLSTATE: .*$")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ValueFormat(StrEnum):
    """The ways in which an archive stores a value."""

    RAW = "raw"
    STRING = "string"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """A column of the archive that is computed: an SQL expression of the others."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowColumns:
    """The way in which the rows of an archive are made."""

    value: ValueFormat = ValueFormat.RAW
    value_schema: str | None = None
    """DDL, for JSON and CSV."""
    key_as_string: bool = False
    partition_by: tuple[Derived, ...] = ()


def row_columns(
    *, value: ValueFormat, value_schema: str | None, key_as_string: bool, partition_by: Sequence[str]
) -> RowColumns:
    """Checks what the user asked for; ConfigError names what would be right."""
    needs_schema = value in (ValueFormat.JSON, ValueFormat.CSV)
    if needs_schema and not (value_schema or "").strip():
        raise ConfigError(f"values as {value} need a schema, such as --schema 'id BIGINT, name STRING'")
    if value_schema is not None and not needs_schema:
        raise ConfigError(f"a schema is of use with values as json or csv, not with {value}")
    if value_schema is not None:
        _fields_of(value_schema)
    return RowColumns(
        value=value,
        value_schema=value_schema,
        key_as_string=key_as_string,
        partition_by=tuple(map(_derived, partition_by)),
    )


def _fields_of(schema: str) -> str:
    """Returns the DDL of the fields, without the colons that Spark takes in structs alone. Raises ConfigError for wrong DDL."""
    usage = "write NAME TYPE, as in 'id BIGINT, name STRING'"
    try:
        fields = parsed_ddl(schema).fields
    except DdlError as error:
        raise ConfigError(f"--schema {schema!r}: {error}; {usage}") from None
    if fields is None:
        raise ConfigError(f"--schema {schema!r}: that is a type without a name; {usage}")
    return ", ".join(field.ddl for field in fields)


def _derived(text: str) -> Derived:
    name, equals, expression = text.partition("=")
    name = name.strip()
    if not equals:
        expression = name
    if not _NAME.fullmatch(name) or not expression.strip():
        raise ConfigError(
            f"--partition-by is a column, such as topic, or NAME=EXPRESSION, such as day=date(timestamp), not {text!r}"
        )
    return Derived(name=name, expression=expression.strip())


def with_stored_headers(records: DataFrame, columns: RowColumns) -> DataFrame:
    """Returns rows with the `SOURCE_COLUMNS`, made of `records` with the `READ_COLUMNS`. A time or key that the columns
    cannot hold is kept in a header of its own."""
    time_ms, key = sql.col("timestampMs"), sql.col("key")
    is_strange_time = ~time_ms.between(-TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX)
    is_bad_key = sql.lit(columns.key_as_string) & key.isNotNull() & ~sql.is_valid_utf8(key.cast("string"))
    is_own_name = sql.try_element_at("headers", sql.lit(-1))["key"].eqNullSafe(KEY_HEADER)
    stored = sql.array(
        _header(TIME_HEADER, sql.when(is_strange_time, time_ms.cast("string").cast("binary"))),
        _header(KEY_HEADER, sql.when(is_bad_key, key)),
    )
    headers = sql.when(is_strange_time | is_bad_key | is_own_name, sql.concat("headers", stored))
    rows = records.withColumn("headers", sql.coalesce(headers, "headers"))
    return rows.withColumn("key", sql.when(~is_bad_key, key)).select(*SOURCE_COLUMNS)


def _header(name: str, value: Column) -> Column:
    return sql.struct(sql.lit(name).alias("key"), value.alias("value"))


def with_archive_columns(records: DataFrame, columns: RowColumns) -> DataFrame:
    """Turns the source's rows into rows of the archive. ConfigError for an expression of which Spark makes no column."""
    rows = records
    if columns.value is not ValueFormat.RAW:
        with _blaming(
            f"--schema {columns.value_schema!r}", "write NAME TYPE, as in 'id BIGINT, name STRING'"
        ):
            rows = rows.withColumn("_decoded", _decoded(columns))
        if columns.value is ValueFormat.CSV:
            _check_csv_types(rows.schema["_decoded"].dataType)
        is_bad = sql.col("value").isNotNull() & sql.col("_decoded").isNull()
        rows = rows.withColumn(UNDECODED, sql.when(is_bad, sql.col("value")))
        rows = rows.withColumn("value", sql.col("_decoded")).drop("_decoded")
    if columns.key_as_string:
        rows = rows.withColumn("key", sql.col("key").cast("string"))
    for derived in columns.partition_by:
        if derived.name != derived.expression:
            same = [name for name in rows.columns if name.lower() == derived.name.lower()]
            if same:  # Spark, which knows no case here, would replace it
                raise ConfigError(
                    f"--partition-by {derived.name}=...: there is a column {same[0]}; take another name"
                )
            usage = f"write SQL over {', '.join(rows.columns)}, as in day=date(timestamp)"
            with _blaming(f"--partition-by {derived.name}={derived.expression}", usage):
                rows = rows.withColumn(derived.name, sql.expr(derived.expression))
    return rows


@contextmanager
def _blaming(option: str, usage: str) -> Iterator[None]:
    """A context that turns errors of Spark's parser and analyzer for an option into one line without their codes."""
    try:
        yield
    except pyspark_errors.AnalysisException as error:  # ParseException is one, too
        reason = _CODES.sub("", str(error).strip().partition("\n")[0]).rstrip(". ")
        raise ConfigError(f"{option}: {reason}; {usage}") from None


def _check_csv_types(kind: types.DataType) -> None:
    assert isinstance(kind, types.StructType), kind
    for field in kind.fields:
        if field.dataType.typeName() in ("struct", "array", "map"):
            raise ConfigError(
                f"--schema: a CSV value has no {field.dataType.simpleString()} ({field.name}): declare it STRING"
            )


def _decoded(columns: RowColumns) -> Column:
    """Returns decoded values, null where the value is null, or cannot be decoded."""
    text = sql.col("value").cast("string")
    text = sql.when(sql.is_valid_utf8(text), text)
    if columns.value is ValueFormat.STRING:
        return text
    fields = _fields_of(columns.value_schema or "")
    if columns.value is ValueFormat.JSON:
        return json_value(text, types.StructType.fromDDL(fields), {}).value
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _BAD,
        "escape": '"',
    }  # RFC 4180: a quote is doubled
    parsed = sql.from_csv(text, f"{fields}, {_BAD} STRING", options)
    return sql.when(parsed[_BAD].isNull(), parsed.dropFields(_BAD))
