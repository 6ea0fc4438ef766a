"""Values that a table's columns cannot hold: clients choose them, so they must stop no archive, and must not be lost.

A row keeps in two headers, its last ones, what its columns cannot hold: the time in milliseconds, as a decimal number
(`odradek.archive.timestamp`), and the bytes of a key that is no text (`odradek.archive.key`). Each is null where it has
nothing to keep. Reading topic and archive as one takes them off again. A record whose own last header has the second name
gets both, too, so that they are always the archive's.

Other text that is not UTF-8 gets U+FFFD instead of the wrong bytes, as most programs write it: readers of Parquet refuse
a file whose text is something else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from odradek.archive.store.values import KEY_HEADER, TIME_HEADER

_MILLISECONDS: Final = re.compile(rb"-?[0-9]{16,19}")
"""Milliseconds that a timestamp column cannot hold: they have at least 16 digits."""
_DAYS: Final = (-719_162, 2_932_896)
"""0001-01-01 and 9999-12-31, since 1970."""


def with_fitting_values(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows whose text is UTF-8, in all columns. A key that is not goes into a header, if there is the column of headers."""
    columns = [rows.column(index) for index in range(rows.num_columns)]
    unfit = [index for index, column in enumerate(columns) if not _is_valid(column)]
    if not unfit:
        return rows
    key, headers = (rows.schema.get_field_index(name) for name in ("key", "headers"))
    if key in unfit and headers >= 0 and is_header_list(columns[headers].type):
        columns[key], columns[headers] = _with_key_headers(columns[key], columns[headers])
    columns = [_mended(column) if index in unfit else column for index, column in enumerate(columns)]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _is_valid(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def is_header_list(kind: pa.DataType) -> bool:
    """Tells whether a column holds headers as the source gives them."""
    return (
        pa.types.is_list(kind)
        and pa.types.is_struct(kind.value_type)
        and [(field.name, field.type) for field in kind.value_type]
        == [("key", pa.string()), ("value", pa.binary())]
    )


def _with_key_headers(keys: pa.Array, headers: pa.Array) -> tuple[pa.Array, pa.Array]:
    texts: list[str | None] = []
    lists: list[Any] = headers.to_pylist()
    for row, data in enumerate(keys.cast(pa.binary()).to_pylist()):
        try:
            texts.append(None if data is None else data.decode())
        except UnicodeDecodeError:
            texts.append(None)
            headers_added = [{"key": TIME_HEADER, "value": None}, {"key": KEY_HEADER, "value": data}]
            lists[row] = [*(lists[row] or ()), *headers_added]
    return pa.array(texts, keys.type), pa.array(lists, headers.type)


def _mended(column: pa.Array) -> pa.Array:
    """Returns the same column, with U+FFFD instead of what is not UTF-8."""
    kind = column.type
    if pa.types.is_string(kind):
        data = column.cast(pa.binary()).to_pylist()
        return pa.array([None if text is None else text.decode("utf-8", "replace") for text in data], kind)
    if pa.types.is_struct(kind):
        parts = [_mended(part) for part in column.flatten()]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        is_there = [*column.is_valid().to_pylist(), True]
        offsets = pc.if_else(pa.array(is_there), column.offsets, None)  # a null begins nowhere
        if pa.types.is_list(kind):
            return pa.ListArray.from_arrays(offsets, _mended(column.values), type=kind)
        return pa.MapArray.from_arrays(offsets, _mended(column.keys), _mended(column.items), type=kind)
    return column


def with_partition_values(
    rows: pa.RecordBatch, columns: Sequence[str], *, empty_is_null: bool
) -> pa.RecordBatch:
    """Rows whose columns to partition by have values that every reader of tables knows, and null instead of others.

    These are dates beyond the years 1 to 9999, and empty text in a format that knows none there.
    """
    for name in columns:
        index = rows.schema.get_field_index(name)
        column = rows.column(index)
        if pa.types.is_date32(column.type):
            days = column.cast(pa.int32())
            is_unfit = pc.or_(pc.less(days, _DAYS[0]), pc.greater(days, _DAYS[1]))
        elif empty_is_null and pa.types.is_string(column.type):
            is_unfit = pc.equal(column, "")
        else:
            continue
        if pc.any(is_unfit).as_py():
            fitting = pc.if_else(is_unfit, pa.scalar(None, column.type), column)
            rows = rows.set_column(index, rows.schema.field(index), fitting)
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredValues:
    """The values that rows had in headers of the archive's own."""

    headers: pa.Array
    """The headers of the rows without the archive's own."""
    times_ms: dict[int, int]
    """The times in milliseconds, by row."""
    keys: dict[int, bytes]


def stored_values(headers: pa.Array) -> StoredValues:
    """Takes the archive's own headers off. `headers` is a column of lists of key and value."""
    if not pc.any(pc.equal(headers.flatten().field("key"), KEY_HEADER)).as_py():
        return StoredValues(headers=headers, times_ms={}, keys={})
    lists: list[Any] = headers.to_pylist()
    times_ms: dict[int, int] = {}
    keys: dict[int, bytes] = {}
    for row, pairs in enumerate(lists):
        if [pair["key"] for pair in (pairs or ())[-2:]] != [TIME_HEADER, KEY_HEADER]:
            continue
        time_ms, key = (pair["value"] for pair in pairs[-2:])
        if time_ms is not None and not _MILLISECONDS.fullmatch(time_ms):
            continue
        lists[row] = pairs[:-2]
        if time_ms is not None:
            times_ms[row] = max(-(1 << 63), min(int(time_ms), (1 << 63) - 1))
        if key is not None:
            keys[row] = key
    return StoredValues(headers=pa.array(lists, headers.type), times_ms=times_ms, keys=keys)
