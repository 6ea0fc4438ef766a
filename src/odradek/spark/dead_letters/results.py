"""What a guarded function returned, checked against the type that was declared for it.

Spark makes null of a Python value that does not fit, or fails the query. Here it is an error of the one row.
"""

from __future__ import annotations

import datetime as dt
import decimal
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

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
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

_INTEGER_BITS: Final[dict[type[DataType], int]] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_CLASSES: Final[dict[type[DataType], tuple[type, ...]]] = {
    BinaryType: (bytes, bytearray),
    BooleanType: (bool,),
    DateType: (dt.date,),
    DecimalType: (decimal.Decimal, int),
    StringType: (str,),
    TimestampType: (dt.datetime,),
}


def fitted(value: Any, kind: DataType, path: str = "result") -> Any:
    """`value` as Spark takes it for `kind`; TypeError or OverflowError names the part that does not fit."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return _struct(value, kind, path)
    if isinstance(kind, ArrayType):
        return [
            fitted(element, kind.elementType, f"{path}[{number}]")
            for number, element in enumerate(_sequence(value, path))
        ]
    if isinstance(kind, MapType):
        if not isinstance(value, Mapping):
            raise _misfit(value, kind, path)
        return {
            fitted(key, kind.keyType, f"{path} key"): fitted(content, kind.valueType, f"{path}[{key!r}]")
            for key, content in value.items()
        }
    return _simple(value, kind, path)


def _simple(value: Any, kind: DataType, path: str) -> Any:
    if isinstance(kind, DoubleType | FloatType):
        return _number(value, kind, path, float)
    bits = _INTEGER_BITS.get(type(kind))
    if bits is not None:
        number = _number(value, kind, path, operator.index)
        if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            raise OverflowError(f"{path} is {number}, which {kind.simpleString()} cannot hold")
        return number
    classes = _CLASSES.get(type(kind))
    if classes is not None and not isinstance(value, classes):
        raise _misfit(value, kind, path)
    return value


def _number(value: Any, kind: DataType, path: str, convert: Callable[[Any], Any]) -> Any:
    if isinstance(value, str | bool):
        raise _misfit(value, kind, path)
    try:
        return convert(value)
    except TypeError:
        raise _misfit(value, kind, path) from None


def _struct(value: Any, kind: StructType, path: str) -> tuple[Any, ...]:
    if isinstance(value, Mapping):
        unknown = [name for name in value if name not in kind.names]
        if unknown:
            raise TypeError(f"{path} has the field {unknown[0]!r}, which was not declared")
        parts = [value.get(name) for name in kind.names]
    else:
        parts = list(_sequence(value, path))
        if len(parts) != len(kind.fields):
            raise TypeError(f"{path} has {len(parts)} values, and {len(kind.fields)} fields were declared")
    return tuple(
        fitted(part, field.dataType, f"{path}.{field.name}")
        for part, field in zip(parts, kind.fields, strict=True)
    )


def _sequence(value: Any, path: str) -> Sequence[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise TypeError(f"{path} is {type(value).__name__}, not a list or tuple")
    return value


def _misfit(value: Any, kind: DataType, path: str) -> TypeError:
    return TypeError(f"{path} is {type(value).__name__} {value!r:.60}, not {kind.simpleString()}")
