"""From the source's columns to an archive's: values decoded or as they are, and columns to partition by.

A value that cannot be decoded is not lost, and stops nothing: its bytes are in the column `undecoded`, and `value` is null.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import functions as sql
else:
    sql = lazy("pyspark.sql.functions")

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
UNDECODED: Final = "undecoded"
_BAD: Final = "_odradek_bad"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ValueFormat(StrEnum):
    """What an archive makes of a value."""

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
    """How the rows of an archive are made."""

    value: ValueFormat = ValueFormat.RAW
    value_schema: str | None = None
    """DDL, for JSON and CSV."""
    key_as_string: bool = False
    partition_by: tuple[Derived, ...] = ()


def row_columns(
    *, value: ValueFormat, value_schema: str | None, key_as_string: bool, partition_by: Sequence[str]
) -> RowColumns:
    """Check what the user asked for; ConfigError says what would be right."""
    needs_schema = value in (ValueFormat.JSON, ValueFormat.CSV)
    if needs_schema and not (value_schema or "").strip():
        raise ConfigError(f"values as {value} need a schema, such as --schema 'id BIGINT, name STRING'")
    if value_schema is not None and not needs_schema:
        raise ConfigError(f"a schema is of use with values as json or csv, not with {value}")
    return RowColumns(
        value=value,
        value_schema=value_schema,
        key_as_string=key_as_string,
        partition_by=tuple(map(_derived, partition_by)),
    )


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


def with_archive_columns(records: DataFrame, columns: RowColumns) -> DataFrame:
    """What the source gives, as rows of the archive."""
    rows = records
    if columns.value is not ValueFormat.RAW:
        decoded = _decoded(columns)
        rows = rows.withColumn("_decoded", decoded)
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
            rows = rows.withColumn(derived.name, sql.expr(derived.expression))
    return rows


def _decoded(columns: RowColumns) -> Column:
    """Null where the value is null, or cannot be decoded."""
    text = sql.col("value").cast("string")
    if columns.value is ValueFormat.STRING:
        return sql.when(sql.is_valid_utf8(text), text)
    schema = f"{columns.value_schema}, {_BAD} STRING"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    parse = sql.from_json if columns.value is ValueFormat.JSON else sql.from_csv
    parsed = parse(text, schema, options)
    return sql.when(parsed[_BAD].isNull(), parsed.dropFields(_BAD))
