"""Types of SQL as types of Arrow, and types of Arrow as types of SQL. Importing this module does not import pyarrow.

Frames, codecs and Spark hold some values in different types. An `ArrowTypes` names the ones of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy
from odradek.values.errors import SqlError
from odradek.values.types import (
    DECIMAL_PRECISION_MAX,
    SqlType,
    array_of,
    decimal_of,
    map_of,
    struct_of_fields,
)

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy("pyarrow")

_SIMPLE: Final = {
    "NULL": "null",
    "BOOLEAN": "bool",
    "TINYINT": "int8",
    "SMALLINT": "int16",
    "INTEGER": "int32",
    "BIGINT": "int64",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "STRING": "string",
    "BYTES": "binary",
    "DATE": "date32",
    "TIMESTAMP_NTZ": "timestamp[us]",
}
"""Types that are the same in all columns, by the aliases of pyarrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowTypes:
    """The types of Arrow that hold the values of columns, where columns differ.

    `time`: the alias of pyarrow for a TIME. `timestamp_unit`: the unit of a TIMESTAMP. `element`: the name of the field that a
    list contains.
    """

    time: str
    timestamp_unit: str
    element: str = "item"


FRAMES: Final = ArrowTypes(time="time32[ms]", timestamp_unit="ms")
"""The types of frames."""
CODECS: Final = ArrowTypes(time="int32", timestamp_unit="ms")
"""The types whose Python values codecs take and return: a TIME is a number of milliseconds."""
SPARK: Final = ArrowTypes(time="int32", timestamp_unit="us", element="element")
"""The types that Spark's columns of a type's `ddl` have, to the letter."""


def arrow_type(kind: SqlType, types: ArrowTypes) -> pa.DataType:
    """Returns the type of Arrow that holds the values of a type. Raises SqlError for an argument's type, such as LAMBDA."""
    match kind.kind:
        case "DECIMAL":
            return pa.decimal128(kind.precision, kind.scale)
        case "ARRAY":
            return pa.list_(pa.field(types.element, arrow_type(kind.element, types)))
        case "MAP":
            return pa.map_(arrow_type(kind.map_key, types), arrow_type(kind.element, types))
        case "STRUCT":
            return pa.struct([pa.field(name, arrow_type(part, types)) for name, part in kind.fields])
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return pa.timestamp(types.timestamp_unit if kind.kind == "TIMESTAMP" else "us", "UTC")
    alias = types.time if kind.kind == "TIME" else _SIMPLE.get(kind.kind)
    if alias is None:
        raise SqlError(f"{kind} is an argument of a function and no value")
    return pa.type_for_alias(alias)


def sql_type(column: pa.DataType) -> SqlType:
    """Returns the type of a column of Arrow, as its `ddl` has it in Spark. Raises SqlError where Spark has no such type.

    The width of offsets, views and dictionaries are no matter of the type. Unsigned numbers have the next wider type.
    """
    types = pa.types
    if types.is_dictionary(column):
        return sql_type(column.value_type)
    if types.is_struct(column):
        return struct_of_fields([(field.name, sql_type(field.type)) for field in column])
    if types.is_map(column):
        return map_of(sql_type(column.key_type), sql_type(column.item_type))
    if any(is_list(column) for is_list in (types.is_list, types.is_large_list, types.is_fixed_size_list)):
        return array_of(sql_type(column.value_type))
    if types.is_decimal(column) and 0 <= column.scale <= column.precision <= DECIMAL_PRECISION_MAX:
        return decimal_of(column.precision, column.scale)
    if types.is_timestamp(column):
        kind = "NTZ" if column.tz is None else "LTZ"
        return SqlType(kind="TIMESTAMP" if _is_in_milliseconds(column) else f"TIMESTAMP_{kind}")
    for kind, names in _KINDS.items():
        if str(column) in names:
            return SqlType(kind=kind)
    raise SqlError(f"no column has the Arrow type {column!s:.200}")


def _is_in_milliseconds(column: pa.DataType) -> bool:
    return column.tz is not None and column.unit in ("s", "ms")


_KINDS: Final = {
    "NULL": ("null",),
    "BOOLEAN": ("bool",),
    "TINYINT": ("int8",),
    "SMALLINT": ("int16", "uint8"),
    "INTEGER": ("int32", "uint16"),
    "BIGINT": ("int64", "uint32"),
    "FLOAT": ("float", "halffloat"),
    "DOUBLE": ("double",),
    "STRING": ("string", "large_string", "string_view"),
    "BYTES": ("binary", "large_binary", "binary_view"),
    "DATE": ("date32[day]", "date64[ms]"),
    "TIME": ("time32[s]", "time32[ms]"),
}
"""Kinds, and what pyarrow calls the types that hold their values."""


def declared_name(column: pa.DataType) -> str:
    """Returns a type as users declare it, such as BIGINT, and Arrow's name of a type that DDL does not have."""
    try:
        return sql_type(column).ddl
    except SqlError:
        return str(column)
