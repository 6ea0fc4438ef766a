"""A read's schema: the DDL that Spark gets, and the Arrow schema that every batch then has, to the
letter.

Spark compares Arrow schemas exactly: a `timestamp[ms]` or a missing time zone fails the query. The JVM parses
the DDL, so the user's own schema for JSON needs no Spark session to be understood; it comes back to the
reader as a `StructType`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from odradek.model.errors import ConfigError
from odradek.spark.options.option_table import Decoding
from odradek.spark.options.options import Projection
from odradek.spark.rows.columns import COLUMN_TYPES
from odradek.values.ddl import struct_type
from odradek.values.formats import format_of_text

if TYPE_CHECKING:
    import pyarrow as pa

_DECODABLE: Final = (
    BooleanType,
    ByteType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampType,
)
"""The types of members that JSON is decoded to."""
_COLUMNS: Final = (*_DECODABLE, BinaryType, DateType)
"""The types without parts that a read may have."""


def read_ddl(projection: Projection, comment: str | None = None) -> str:
    """Returns the schema of a read, for Spark to parse; `comment` is the first column's comment, without quotes and
    backslashes."""
    columns = [f"`{column}` {_column_type(projection, column)}" for column in projection.columns]
    if comment is not None:
        columns[0] += f" COMMENT '{comment}'"
    return ", ".join(columns)


def _column_type(projection: Projection, column: str) -> str:
    text = format_of(projection, column)
    if text is not None:
        return f"STRUCT<value: STRUCT<{format_of_text(text).ddl}>, problem: STRING>"
    if column == "key":
        return _decoded_type(projection.key, "keySchema", projection.key_schema)
    if column == "value":
        return _decoded_type(projection.value, "valueSchema", projection.value_schema)
    return COLUMN_TYPES[column]


def format_of(projection: Projection, column: str) -> str | None:
    """Returns the text of the format that a column is decoded by; None for all others."""
    return {"key": projection.key_format, "value": projection.value_format}.get(column)


def _decoded_type(decoding: Decoding, option: str, schema: str | None) -> str:
    if decoding is Decoding.BINARY:
        return "BINARY"
    if decoding is Decoding.UTF8:
        return "STRING"
    return struct_type(option, schema or "")


def check_read_schema(schema: StructType, projection: Projection) -> None:
    """Refuses `.schema(...)` on the reader: the columns are the format's own."""
    if tuple(schema.fieldNames()) != projection.columns:
        raise ConfigError(
            'format("odradek") has its own schema and takes none: choose columns with the option columns, and'
            " decode values with valueDecode and valueSchema"
        )
    for field in schema.fields:
        if field.name in ("key", "value") and format_of(projection, field.name) is None:
            decoding = projection.key if field.name == "key" else projection.value
            expected = {Decoding.BINARY: BinaryType, Decoding.UTF8: StringType, Decoding.JSON: StructType}[
                decoding
            ]
            if not isinstance(field.dataType, expected):
                raise ConfigError(
                    f"column {field.name} cannot be {field.dataType.simpleString()} with"
                    f" {field.name}Decode={decoding}; the format has its own schema: leave out .schema(...)"
                )
            if decoding is Decoding.JSON:
                _check_decodable(field.dataType, field.name)


def _check_decodable(kind: DataType, path: str) -> None:
    """Refuses types that JSON cannot decode: it turns absent fields into null, and has no binary, date or map."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            if not field.nullable:
                raise ConfigError(
                    f"{path}.{field.name} is declared NOT NULL, but any JSON field may be absent"
                )
            _check_decodable(field.dataType, f"{path}.{field.name}")
    elif isinstance(kind, ArrayType):
        _check_decodable(kind.elementType, f"{path}[]")
    elif not isinstance(kind, _DECODABLE):
        raise ConfigError(
            f"{path}: JSON decoding does not support {kind.simpleString()};"
            " declare it STRING and convert it in Spark"
        )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the schema that Spark expects of each batch."""
    return to_arrow_schema(schema, timezone="UTC")


def can_be_planned(schema: StructType) -> bool:
    """Tells whether Spark takes rows of the schema from the process that plans (`engine/planned_rows.py`) as from a worker.

    It compares the schema with the Arrow batches' schema, which has no comments. It copies the rows, and fails at a null in an
    array of numbers.
    """
    return _can_be_copied(schema) and from_arrow_schema(arrow_schema(schema)) == schema


def _can_be_copied(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(not field.metadata and _can_be_copied(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        nests = isinstance(kind.elementType, ArrayType | BinaryType | StringType | StructType)
        return nests and _can_be_copied(kind.elementType)
    return isinstance(kind, _COLUMNS)
