"""Rows of an archive as the columns of records that a topic gives, so that decoding them is the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from odradek.archive.files.unfit_values import is_header_list, stored_values
from odradek.archive.store.location import ArchiveLocation
from odradek.model.errors import ConfigError
from odradek.records.arrow import SCHEMA
from odradek.spark.rows.columns import US_PER_MS

UNDECODED: Final = "undecoded"
HEADERS: Final = "headers"
_NEEDED_BY: Final = {
    "key": ("key",),
    "value": ("value",),
    "timestamp": ("timestamp",),
    "timestampType": ("timestampType",),
    "timestampMs": ("timestamp",),
    "headers": ("headers",),
    "record": ("key", "value", "headers"),
    "deadLetter": ("key", "value", "headers", "timestamp"),
}
"""The columns of an archive that a column of a read is made of, in addition to topic, partition and offset."""
_COORDINATES: Final = ("topic", "partition", "offset")
_NO_TIME: Final = -1


def needed_columns(columns: Iterable[str], schema: pa.Schema, location: ArchiveLocation) -> pa.Schema:
    """Returns the archive's columns for these columns of a read. ConfigError when it lacks the original values."""
    needed_by = set(columns)
    needed = {name for column in needed_by for name in _NEEDED_BY.get(column, ())}
    for name in sorted(needed):
        if name not in schema.names:
            raise ConfigError(
                f"the archive {location} has no column {name}: leave it out with the option columns"
            )
        kind = schema.field(name).type
        if name in ("key", "value") and not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
            raise ConfigError(
                f"the archive {location} holds decoded values, not the topic's own: read it with"
                f' format("odradek-archive"), or leave out {name} with the option columns'
            )
    is_text_key = "key" in needed and pa.types.is_string(schema.field("key").type)
    keeps_more = HEADERS in schema.names and is_header_list(schema.field(HEADERS).type)
    if keeps_more and (is_text_key or "timestampMs" in needed_by):
        needed.add(HEADERS)  # they keep what these columns cannot hold
    if "value" in needed and UNDECODED in schema.names:
        needed.add(UNDECODED)
    return pa.schema([field for field in schema if field.name in needed or field.name in _COORDINATES])


def as_records(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the columns of `odradek.records.arrow`, of those that there are."""
    columns = {"offset": rows["offset"]}
    names = rows.schema.names
    if "timestamp" in names:
        micros = rows["timestamp"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        millis = pc.divide(micros, US_PER_MS)  # towards 0
        is_above = pc.greater(pc.multiply(millis, US_PER_MS), micros)
        columns["timestamp"] = pc.fill_null(pc.subtract(millis, is_above.cast(pa.int64())), _NO_TIME)
    if "timestampType" in names:
        columns["timestamp_type"] = pc.fill_null(rows["timestampType"].cast(pa.int32()), 0)
    if "key" in names:
        columns["key"] = rows["key"].cast(pa.binary())
    if "value" in names:
        value = rows["value"].cast(pa.binary())
        columns["value"] = pc.coalesce(value, rows[UNDECODED]) if UNDECODED in names else value
    if "headers" in names:
        kind = SCHEMA.field("headers").type
        empty = pa.scalar([], rows["headers"].type)
        stored = stored_values(pc.fill_null(rows["headers"], empty).cast(kind))
        columns["headers"] = stored.headers
        if stored.times_ms and "timestamp" in columns:
            columns["timestamp"] = _replaced(columns["timestamp"], stored.times_ms)
        if stored.keys and "key" in columns:
            columns["key"] = _replaced(columns["key"], stored.keys)
    return pa.RecordBatch.from_pydict(columns)


def _replaced(column: pa.Array, by_row: Mapping[int, object]) -> pa.Array:
    values = column.to_pylist()
    for row, value in by_row.items():
        values[row] = value
    return pa.array(values, column.type)
