"""Types of schemas as types of Arrow, and the values of frames as codecs take them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from odradek.values.types import SqlType, array_of, map_of, struct_of_fields

_TYPES: Final = {
    "BOOLEAN": pa.bool_(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BYTES": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time32("ms"),
    "TIMESTAMP": pa.timestamp("ms", "UTC"),
    "TIMESTAMP_LTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}


def arrow_type(kind: SqlType) -> pa.DataType:
    """Returns the type that a column of frames has."""
    return _arrow_type(kind, _TYPES)


def codec_type(kind: SqlType) -> pa.DataType:
    """Returns the type whose Python values codecs take and return: a TIME is a number of milliseconds."""
    return _arrow_type(kind, {**_TYPES, "TIME": pa.int32()})


def _arrow_type(kind: SqlType, types: dict[str, pa.DataType]) -> pa.DataType:
    match kind.kind:
        case "DECIMAL":
            return pa.decimal128(kind.precision, kind.scale)
        case "ARRAY":
            return pa.list_(_arrow_type(kind.element, types))
        case "MAP":
            return pa.map_(_arrow_type(kind.map_key, types), _arrow_type(kind.element, types))
        case "STRUCT":
            return pa.struct([pa.field(name, _arrow_type(part, types)) for name, part in kind.fields])
    return types[kind.kind]


def unknown_fields(kind: SqlType, column: pa.DataType, path: str = "") -> list[str]:
    """Returns the fields of a column that its schema does not have: a cast drops them in silence."""
    unknown: list[str] = []
    if kind.kind == "STRUCT" and pa.types.is_struct(column):
        known = dict(kind.fields)
        for index in range(column.num_fields):
            field = column.field(index)
            part = known.get(field.name)
            inside = f"{path}{field.name}"
            unknown += [inside] if part is None else unknown_fields(part, field.type, f"{inside}.")
    elif kind.kind == "ARRAY" and (pa.types.is_list(column) or pa.types.is_large_list(column)):
        unknown += unknown_fields(kind.element, column.value_type, path)
    elif kind.kind == "MAP" and pa.types.is_map(column):
        unknown += unknown_fields(kind.element, column.item_type, path)
    return unknown


def present_type(kind: SqlType, column: pa.DataType) -> SqlType:
    """Returns the type without the fields that a column lacks: they have the default of their schema, which is no null."""
    if kind.kind == "STRUCT" and pa.types.is_struct(column):
        own = {column.field(index).name: column.field(index).type for index in range(column.num_fields)}
        return struct_of_fields(
            [(name, present_type(part, own[name])) for name, part in kind.fields if name in own]
        )
    if kind.kind == "ARRAY" and (pa.types.is_list(column) or pa.types.is_large_list(column)):
        return array_of(present_type(kind.element, column.value_type))
    if kind.kind == "MAP" and pa.types.is_map(column):
        return map_of(kind.map_key, present_type(kind.element, column.item_type))
    return kind
