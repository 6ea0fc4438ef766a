"""One spelling for the columns of an archive, whoever names them: Spark, Delta, Iceberg or a Parquet file."""

from __future__ import annotations

import pyarrow as pa


def canonical(schema: pa.Schema) -> pa.Schema:
    """The same columns, all of them nullable, times in microseconds, without metadata."""
    return pa.schema([pa.field(each.name, canonical_type(each.type)) for each in schema])


def canonical_type(kind: pa.DataType) -> pa.DataType:
    """A type as the formats have it in common."""
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([pa.field(each.name, canonical_type(each.type)) for each in fields])
    if pa.types.is_map(kind):
        return pa.map_(canonical_type(kind.key_type), canonical_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(pa.field("element", canonical_type(kind.value_type)))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind
