"""From a row of a DataFrame to a record: which columns a write takes, and what each becomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.spark.columns import DEAD_LETTER
from odradek.spark.dead_letters.letters import check_letter_column, letters_in
from odradek.spark.duplicates import BATCH_HEADER, PARTITION_HEADER, QUERY_HEADER, SEQUENCE_HEADER

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
_OF_THE_SOURCE: Final = frozenset({"offset", "timestampType", "record"})
"""Columns of a read that mean nothing in a write: dropped, so that one topic can be copied to another as
it is.
"""
_US_PER_MS: Final = 1_000

HeaderPairs = tuple[tuple[str, bytes | None], ...]


class OutgoingRecord(NamedTuple):
    """A record to send. A partition of None leaves the choice to the key; a timestamp of None means now."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Where a row came from, told in headers so that a reader can recognise it when it comes twice."""

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
    """The columns that a write takes from its rows, checked. `topic`, when set, is that of every row."""

    topic: str | None
    columns: frozenset[str]
    dead_letter_topic: str | None = None
    """Of the rows that have a dead letter; None: there is no such column."""


def row_format(schema: StructType, topic: str | None, dead_letter_topic: str | None = None) -> RowFormat:
    """Check a DataFrame's schema for writing; ConfigError names the column that is missing, unknown or
    mistyped.
    """
    fields = {field.name: field for field in schema.fields}
    if "value" not in fields:
        raise ConfigError(
            f"a write needs a column value; there are {', '.join(fields) or 'none'}."
            ' Make one: select(to_json(struct("*")).alias("value"))'
        )
    if topic is None and "topic" not in fields:
        raise ConfigError("a write needs the option topic, or a column topic")
    check_letter_column(fields, dead_letter_topic)
    known = {*_TYPES, *_OF_THE_SOURCE, DEAD_LETTER}
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise ConfigError(
            f"a write takes the columns {', '.join(_TYPES)}; it would lose {', '.join(unknown)}:"
            ' put them into value, as in to_json(struct("*")), or drop them'
        )
    for name, field in fields.items():
        if name in _TYPES and not _has_right_type(field):
            raise ConfigError(
                f"column {name} must be {_TYPES[name]}, not {field.dataType.simpleString().upper()}"
            )
    return RowFormat(
        topic=topic, columns=frozenset(fields) & frozenset(_TYPES), dead_letter_topic=dead_letter_topic
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


def outgoing_records(
    batch: pa.RecordBatch, layout: RowFormat, *, marks: Marks | None, first_sequence: int
) -> Iterator[OutgoingRecord]:
    """The records of one Arrow batch, in order. KafkaError INVALID_RECORD for a row that cannot become
    one. A row with a dead letter becomes that, and nothing else.
    """
    count = batch.num_rows
    letters = letters_in(batch) if layout.dead_letter_topic is not None else {}
    topics = [layout.topic] * count if layout.topic is not None else batch["topic"].to_pylist()
    partitions = _list_or_nones(batch, layout, "partition")
    keys = _bytes_or_nones(batch, layout, "key")
    values = _bytes_or_nones(batch, layout, "value")
    headers = _list_or_nones(batch, layout, "headers")
    timestamps = _timestamps(batch, layout)
    rows = zip(topics, partitions, keys, values, headers, timestamps, strict=True)
    for sequence, (topic, partition, key, value, given, timestamp) in enumerate(rows, first_sequence):
        letter = letters.get(sequence - first_sequence) if letters else None
        if letter is not None and layout.dead_letter_topic is not None:
            yield OutgoingRecord(layout.dead_letter_topic, None, *letter, None)
            continue
        if not topic:
            raise _refused(sequence, "its topic is null")
        if partition is not None and partition < 0:
            raise _refused(sequence, f"its partition is {partition}")
        pairs = _header_pairs(given, sequence) if given else ()
        if marks is not None:
            pairs += marks.headers(sequence)
        yield OutgoingRecord(topic, partition, key, value, pairs, timestamp)


def _header_pairs(given: Sequence[dict[str, Any] | None], sequence: int) -> HeaderPairs:
    if any(header is None or header["key"] is None for header in given):
        raise _refused(sequence, "one of its headers has no key")
    return tuple((header["key"], header["value"]) for header in given if header is not None)


def _refused(row: int, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"row {row} of this task cannot be written: {reason}")


def _list_or_nones(batch: pa.RecordBatch, layout: RowFormat, name: str) -> list[Any]:
    return batch[name].to_pylist() if name in layout.columns else [None] * batch.num_rows


def _bytes_or_nones(batch: pa.RecordBatch, layout: RowFormat, name: str) -> list[bytes | None]:
    if name not in layout.columns:
        return [None] * batch.num_rows
    column = batch[name]
    target = pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
    as_bytes: list[bytes | None] = (
        column.to_pylist() if pa.types.is_large_binary(column.type) else column.cast(target).to_pylist()
    )
    return as_bytes


def _timestamps(batch: pa.RecordBatch, layout: RowFormat) -> list[int | None]:
    if "timestamp" not in layout.columns:
        return [None] * batch.num_rows
    microseconds = batch["timestamp"].cast(pa.int64()).to_pylist()
    return [None if each is None else each // _US_PER_MS for each in microseconds]
