"""Rows of an archive as the columns of records that a topic gives, so that decoding them is the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from odradek.archive.place import ArchivePlace
from odradek.model.errors import ConfigError
from odradek.records.arrow import SCHEMA
from odradek.spark.columns import US_PER_MS

UNDECODED: Final = "undecoded"
_NEEDED_BY: Final = {
    "key": ("key",),
    "value": ("value",),
    "timestamp": ("timestamp",),
    "timestampType": ("timestampType",),
    "headers": ("headers",),
    "record": ("key", "value", "headers"),
    "deadLetter": ("key", "value", "headers", "timestamp"),
}
"""Which columns of an archive a column of a read is made of, beside topic, partition and offset."""
_PLACE: Final = ("topic", "partition", "offset")
_NO_TIME: Final = -1


def needed_columns(columns: Iterable[str], schema: pa.Schema, place: ArchivePlace) -> pa.Schema:
    """What of an archive must be read for these columns of a read. ConfigError when it does not have it as it was."""
    needed = {name for column in columns for name in _NEEDED_BY.get(column, ())}
    for name in sorted(needed):
        if name not in schema.names:
            raise ConfigError(
                f"the archive {place} has no column {name}: leave it out with the option columns"
            )
        kind = schema.field(name).type
        if name in ("key", "value") and not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
            raise ConfigError(
                f"the archive {place} holds decoded values, not those of the topic: read it with"
                f' format("odradek-archive"), or leave out {name} with the option columns'
            )
    if "value" in needed and UNDECODED in schema.names:
        needed.add(UNDECODED)
    return pa.schema([field for field in schema if field.name in needed or field.name in _PLACE])


def as_records(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of `odradek.records.arrow`, of those that there are."""
    made = {"offset": rows["offset"]}
    names = rows.schema.names
    if "timestamp" in names:
        micros = rows["timestamp"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        millis = pc.divide(micros, US_PER_MS)  # towards 0
        is_above = pc.greater(pc.multiply(millis, US_PER_MS), micros)
        made["timestamp"] = pc.fill_null(pc.subtract(millis, is_above.cast(pa.int64())), _NO_TIME)
    if "timestampType" in names:
        made["timestamp_type"] = pc.fill_null(rows["timestampType"].cast(pa.int32()), 0)
    if "key" in names:
        made["key"] = rows["key"].cast(pa.binary())
    if "value" in names:
        value = rows["value"].cast(pa.binary())
        made["value"] = pc.coalesce(value, rows[UNDECODED]) if UNDECODED in names else value
    if "headers" in names:
        kind = SCHEMA.field("headers").type
        empty = pa.scalar([], rows["headers"].type)
        made["headers"] = pc.fill_null(rows["headers"], empty).cast(kind)
    return pa.RecordBatch.from_pydict(made)
