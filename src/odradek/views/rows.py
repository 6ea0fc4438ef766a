"""The records of one fetch as changes to rows."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from odradek.records.columns import BinaryColumn, Columns
from odradek.views.key_formats import KeyFormat, timed

_UNREADABLE: Final = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, struct.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """The last value of each key among some records of one partition; None is a tombstone."""

    rows: dict[bytes, bytes | None]
    last_timestamp_ms: int
    skipped: tuple[int, ...] = ()
    """Offsets of records whose keys are null or cannot be read."""


def changes_of(columns: Columns, keys: KeyFormat, *, with_timestamps: bool = False) -> RowChanges:
    """Returns the changes. Unreadable records are skipped and reported. `with_timestamps`: values begin with theirs."""
    raw_keys = cells(columns.keys, columns.row_count)
    values = cells(columns.values, columns.row_count)
    timestamps = memoryview(columns.timestamps).cast("B").cast("q")
    last_timestamp_ms = timestamps[columns.row_count - 1]
    if with_timestamps:
        values = [
            None if value is None else timed(timestamp_ms, value)
            for timestamp_ms, value in zip(timestamps, values, strict=False)
        ]
    if keys.is_stored_as_is and not columns.keys.null_count:
        return RowChanges(rows=dict(zip(raw_keys, values, strict=True)), last_timestamp_ms=last_timestamp_ms)  # type: ignore[arg-type]
    rows: dict[bytes, bytes | None] = {}
    skipped: list[int] = []
    stored = keys.stored
    for index, (key, value) in enumerate(zip(raw_keys, values, strict=True)):
        try:
            if key is None:
                raise ValueError("null")
            rows[stored(key)] = value
        except _UNREADABLE:
            skipped.append(index)
    offsets = memoryview(columns.offsets).cast("B").cast("q")
    return RowChanges(
        rows=rows,
        last_timestamp_ms=last_timestamp_ms,
        skipped=tuple(offsets[index] for index in skipped),
    )


def cells(column: BinaryColumn, row_count: int) -> list[bytes | None]:
    """Returns the byte strings of a column."""
    data = bytes(column.data)
    offsets = (
        memoryview(column.offsets).cast("B").cast("i")[column.first : column.first + row_count + 1].tolist()
    )
    fields: list[bytes | None] = [data[start:end] for start, end in pairwise(offsets)]
    if column.null_count and column.validity is not None:
        for index in _nulls(memoryview(column.validity).cast("B"), column.first, row_count):
            fields[index] = None
    return fields


def _nulls(validity: memoryview, first: int, row_count: int) -> Iterator[int]:
    for index in range(row_count):
        row = first + index
        if not validity[row >> 3] >> (row & 7) & 1:
            yield index
