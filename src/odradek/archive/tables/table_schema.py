"""One spelling for the columns of an archive, also those that others name: Spark, Delta, Iceberg or a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

import pyarrow as pa

FIELD_ID: Final = b"PARQUET:field_id"
"""The metadata key under which Parquet and Iceberg store the number of a field."""


def canonical(schema: pa.Schema, *, keeping_ids: bool = False) -> pa.Schema:
    """Returns the same columns, all of them nullable, times in microseconds; without metadata, except field numbers if
    wanted."""
    return pa.schema([_field(field.name, field, keeping_ids) for field in schema])


def numbered(schema: pa.Schema) -> pa.Schema:
    """Returns a canonical schema whose fields have numbers, from 1 on."""
    numbers = count(1)
    return pa.schema([_numbered(field, numbers) for field in schema])


def _field(name: str, field: pa.Field, keeping_ids: bool) -> pa.Field:
    number = (field.metadata or {}).get(FIELD_ID) if keeping_ids else None
    metadata = None if number is None else {FIELD_ID: number}
    return pa.field(name, _canonical_type(field.type, keeping_ids), metadata=metadata)


def _canonical_type(kind: pa.DataType, keeping_ids: bool) -> pa.DataType:
    """Returns a type as the formats have it in common."""
    if pa.types.is_struct(kind):
        return pa.struct([_field(field.name, field, keeping_ids) for field in _fields(kind)])
    if pa.types.is_map(kind):
        key = _field("key", kind.key_field, keeping_ids).with_nullable(False)
        return pa.map_(key, _field("value", kind.item_field, keeping_ids))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(_field("element", kind.value_field, keeping_ids))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _numbered(field: pa.Field, numbers: Iterator[int]) -> pa.Field:
    number = next(numbers)
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_numbered(child, numbers) for child in _fields(kind)])
    elif pa.types.is_map(kind):
        kind = pa.map_(_numbered(kind.key_field, numbers), _numbered(kind.item_field, numbers))
    elif pa.types.is_list(kind):
        kind = pa.list_(_numbered(kind.value_field, numbers))
    return field.with_type(kind).with_metadata({FIELD_ID: str(number).encode()})


def _fields(kind: pa.StructType) -> list[pa.Field]:
    return [kind.field(index) for index in range(kind.num_fields)]
