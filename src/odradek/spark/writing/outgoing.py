"""Defines how a row of a DataFrame becomes a record: which columns a write takes, and what each becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from odradek.dead_letters.headers import HeaderPairs
from odradek.model.errors import ConfigError
from odradek.spark.dead_letters.letters import check_letter_column
from odradek.spark.rows.columns import DEAD_LETTER
from odradek.spark.writing.duplicates import BATCH_HEADER, PARTITION_HEADER, QUERY_HEADER, SEQUENCE_HEADER

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

_TYPES: Final = {
    "key": "STRING or BINARY",
    "value": "STRING or BINARY",
    "topic": "STRING",
    "partition": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "timestamp": "TIMESTAMP",
}
PACKED: Final = "__records"
"""A column of ours: where it is not null, the row contains many records of its topic, as Arrow's stream format has them
(key, value, partition).
"""
_OF_THE_SOURCE: Final = frozenset({"offset", "timestampType", "timestampMs", "record"})
"""Columns of a read that mean nothing in a write: dropped, so that one topic can be copied to another as
it is.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The origin of a row, for its headers: a reader can recognise a row that comes twice."""

    query: str
    batch: int
    partition: int

    def headers(self, sequence: int) -> HeaderPairs:
        return (
            (QUERY_HEADER, self.query.encode()),
            (BATCH_HEADER, b"%d" % self.batch),
            (PARTITION_HEADER, b"%d" % self.partition),
            (SEQUENCE_HEADER, b"%d" % sequence),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFormat:
    """The columns that a write takes from its rows, checked. `topic`, when set, is the topic of every row."""

    topic: str | None
    columns: frozenset[str]
    has_packed: bool = False
    """There is a column PACKED."""
    dead_letter_topic: str | None = None
    """The topic of rows that have a dead letter; None: there is no such column."""
    suffix: str = ""
    """The suffix that is appended to the topics of the column `topic`."""
    key_format: str | None = None
    """The text of the format in which keys are written, which are structs; None: they are bytes or texts."""
    value_format: str | None = None


def row_format(
    schema: StructType,
    topic: str | None,
    dead_letter_topic: str | None = None,
    *,
    suffix: str = "",
    key_format: str | None = None,
    value_format: str | None = None,
) -> RowFormat:
    """Checks a DataFrame's schema for writing; ConfigError names the column that is missing, unknown or
    mistyped.
    """
    structs = {name for name, form in (("key", key_format), ("value", value_format)) if form is not None}
    fields = {field.name: field for field in schema.fields}
    if "value" not in fields:
        raise ConfigError(
            f"a write needs a column value; there are {', '.join(fields) or 'none'}."
            ' Make one: select(to_json(struct("*")).alias("value"))'
        )
    if topic is None and "topic" not in fields:
        raise ConfigError("a write needs the option topic, or a column topic")
    check_letter_column(fields, dead_letter_topic)
    known = {*_TYPES, *_OF_THE_SOURCE, DEAD_LETTER, PACKED}
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise ConfigError(
            f"a write takes the columns {', '.join(_TYPES)}; it would lose {', '.join(unknown)}:"
            ' put them into value, as in to_json(struct("*")), or drop them'
        )
    for name, field in fields.items():
        if name in structs:
            if not isinstance(field.dataType, StructType):
                raise ConfigError(f"column {name} must be a struct with the option {name}Format")
        elif name in _TYPES and not _has_right_type(field):
            raise ConfigError(
                f"column {name} must be {_TYPES[name]}, not {field.dataType.simpleString().upper()}"
            )
    return RowFormat(
        topic=topic,
        columns=frozenset(fields) & frozenset(_TYPES),
        dead_letter_topic=dead_letter_topic,
        suffix=suffix,
        has_packed=PACKED in fields,
        key_format=key_format,
        value_format=value_format,
    )


def _has_right_type(field: StructField) -> bool:
    kind = field.dataType
    if field.name in ("key", "value"):
        return isinstance(kind, StringType | BinaryType)
    if field.name == "topic":
        return isinstance(kind, StringType)
    if field.name == "partition":
        return isinstance(kind, IntegerType)
    if field.name == "timestamp":
        return isinstance(kind, TimestampType)
    return _is_headers(kind)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    inner = kind.elementType
    return (
        inner.fieldNames() == ["key", "value"]
        and isinstance(inner["key"].dataType, StringType)
        and isinstance(inner["value"].dataType, BinaryType)
    )
