"""Processors that take a batch as columns: the same updates as row by row, at the price of a row for each key.

An operator that says only the latest update of each key needs to look up a key, add up its records, and write it once. A join
with a table needs the rows of the table as they were at each record: few, taken many times. Whatever does not fit goes row by
row: `columnar` answers None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from odradek.streams.processors.aggregate import AggregateProcessor, ColumnFold
from odradek.streams.processors.calendar import Calendar
from odradek.streams.processors.columns import (
    Groups,
    KeyCodes,
    Numbers,
    TaskColumns,
    UpdateColumns,
    key_codes,
    numbered,
    order_of,
)
from odradek.streams.processors.joined_columns import stream_table, table_table
from odradek.streams.processors.joins import StreamTableProcessor, TableTableProcessor
from odradek.streams.processors.open_windows import Held
from odradek.streams.processors.ports import Fields, InputRow, KeyedProcessor
from odradek.streams.processors.python_values import UnreadableValueError, lists_of_numbers, values_of
from odradek.streams.processors.result_types import ResultType
from odradek.streams.processors.task import CachedState
from odradek.streams.processors.windows import END, START, FixedWindows, WindowProcessor


class _FoldError(Exception):
    """A fold cannot add a value of a batch, or what it gives does not fit. Row by row it shows which, and how it is handled."""


@dataclass(frozen=True, slots=True)
class _Folding:
    fold: ColumnFold
    results: ResultType | None

    def add_all(self, key: Fields, aggregate: Any, values: dict[str, list[Any]], start: int, end: int) -> Any:
        try:
            return self.fold.add_all(key, aggregate, values, start, end)
        except Exception as error:
            raise _FoldError from error

    def copied(self, aggregate: Any) -> Any:
        return self.fold.copied(aggregate)

    def result(self, aggregate: Any) -> Fields | None:
        try:
            fields = self.fold.result(aggregate)
            return fields if self.results is None else self.results.rounded(fields)
        except Exception as error:
            raise _FoldError from error

    @staticmethod
    def column(results: list[Fields | None], kind: pa.DataType) -> pa.Array:
        try:
            return pa.array(results, kind)
        except Exception as error:
            raise _FoldError from error


def columnar(
    processor: KeyedProcessor,
    rows: TaskColumns,
    state: CachedState,
    old: tuple[int, ...] | None,
    kinds: tuple[pa.DataType, ...],
) -> UpdateColumns | None:
    """What the processor says of the rows, if it can be said so. `old`: as `task.latest_only` takes it; None for every update.
    `kinds`: the types of what it says. The state is not flushed.
    """
    orders = lists_of_numbers(rows.orders)
    if orders is None or rows.timestamps.null_count:
        return None
    try:
        return _columnar(processor, rows, orders, state, old, kinds)
    except (_FoldError, UnreadableValueError):
        return None


def _columnar(
    processor: KeyedProcessor,
    rows: TaskColumns,
    orders: Numbers,
    state: CachedState,
    old: tuple[int, ...] | None,
    kinds: tuple[pa.DataType, ...],
) -> UpdateColumns | None:
    if isinstance(processor, StreamTableProcessor):
        return stream_table(processor, rows, orders, state, kinds)
    if isinstance(processor, TableTableProcessor) and old == (2, 3):
        return table_table(processor, rows, orders, state, kinds)
    if old != (1,) or len(rows.payloads) != 1:
        return None
    if isinstance(processor, AggregateProcessor) and isinstance(processor.fold, ColumnFold):
        return _aggregated(_Folding(processor.fold, processor.results), rows, orders, state, kinds)
    if (
        isinstance(processor, WindowProcessor)
        and isinstance(processor.fold, ColumnFold)
        and isinstance(processor.kind, FixedWindows)
        and not processor.is_final
        and not processor.has_wall_clock
    ):
        return _windowed(
            processor, processor.kind, _Folding(processor.fold, processor.results), rows, orders, state, kinds
        )
    return None


def _arguments(payload: pa.StructArray) -> pa.StructArray | None:
    """The values to add; None where a payload is more than that."""
    new, old = payload.field("new"), payload.field("old")
    if payload.null_count or new.null_count or old.null_count != len(old):
        return None
    return new


def _prepared(
    rows: TaskColumns, orders: Numbers
) -> tuple[TaskColumns, Numbers, KeyCodes, pa.StructArray] | None:
    """The rows in their order, their orders, keys and arguments."""
    if _arguments(rows.payloads[0]) is None:
        return None
    places, orders = order_of(orders)
    rows = rows.take(places)
    codes, arguments = key_codes(rows.keys), _arguments(rows.payloads[0])
    return None if codes is None or arguments is None else (rows, orders, codes, arguments)


def _argument_lists(arguments: pa.StructArray, places: Numbers) -> dict[str, list[Any]]:
    chosen = pa.array(places)
    return {
        field.name: values_of(column.take(chosen))
        for field, column in zip(arguments.type, arguments.flatten(), strict=True)
    }


def _aggregated(
    fold: _Folding, rows: TaskColumns, orders: Numbers, state: CachedState, kinds: tuple[pa.DataType, ...]
) -> UpdateColumns | None:
    prepared = _prepared(rows, orders)
    if prepared is None:
        return None
    rows, orders, codes, arguments = prepared
    groups = Groups.of(codes.codes)
    values = _argument_lists(arguments, groups.places)
    times = rows.timestamps.to_numpy()
    latest = np.maximum.reduceat(times[groups.places], groups.starts).tolist()
    starts, ends = groups.starts.tolist(), groups.ends.tolist()
    numbers = codes.codes[groups.last].tolist()
    after, before, timestamps = [], [], []
    for group in groups.by_last.tolist():
        place = state.place("aggregate", codes.keys[numbers[group]])
        aggregate, when = state.read(place) or (None, latest[group])
        before.append(fold.result(aggregate))
        aggregate = fold.add_all(codes.keys[numbers[group]], aggregate, values, starts[group], ends[group])
        timestamps.append(max(when, latest[group]))
        state.write(place, (aggregate, timestamps[-1]))
        after.append(fold.result(aggregate))
    state.stream_time = max(state.stream_time, int(times.max()))
    last = groups.last[groups.by_last]
    return rows.update(
        last,
        rows.keys.take(pa.array(last)),
        (fold.column(after, kinds[0]), fold.column(before, kinds[1])),
        pa.array(timestamps, pa.int64()),
        numbered(orders[last], np.zeros(len(last), np.int64)),
    )


def _windowed(
    processor: WindowProcessor,
    kind: FixedWindows,
    fold: _Folding,
    rows: TaskColumns,
    orders: Numbers,
    state: CachedState,
    kinds: tuple[pa.DataType, ...],
) -> UpdateColumns | None:
    prepared = _prepared(rows, orders)
    if prepared is None:
        return None
    rows, orders, codes, arguments = prepared
    times = rows.timestamps.to_numpy()
    stream_times = np.maximum(np.maximum.accumulate(times), state.stream_time)
    row_of, window_starts, numbers = _windows_of(kind, times, stream_times)
    state.stream_time = int(stream_times[-1])
    if len(row_of) == 0:
        said = _no_windows(rows, orders, kinds)
    else:
        said = _add_to_windows(
            kind, fold, rows, orders, codes, arguments, row_of, window_starts, numbers, state, kinds
        )
    closing = InputRow(0, None, None, state.stream_time, None, [])
    assert not list(processor.time_passed(closing, state))  # windows that are said at once close in silence
    return said


def _windows_of(
    kind: FixedWindows, times: Numbers, stream_times: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """The windows that take each row and are open: the row's place, the window's start, its number among the row's."""
    size, every = kind.size_ms, kind.every_ms
    first = np.maximum(0, times - size + every) // every * every
    counts = np.maximum(0, (times - first) // every + 1)
    row_of = np.repeat(np.arange(len(times)), counts)
    numbers = np.arange(len(row_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = first[row_of] + numbers * every
    is_open = starts + size + kind.grace_ms > stream_times[row_of]
    row_of, starts = row_of[is_open], starts[is_open]
    begins = np.searchsorted(row_of, row_of, side="left")
    return row_of, starts, np.arange(len(row_of)) - begins


def _no_windows(rows: TaskColumns, orders: Numbers, kinds: tuple[pa.DataType, ...]) -> UpdateColumns:
    nothing = pa.array([], pa.int64())
    return rows.update(
        np.zeros(0, np.int64),
        _windowed_keys(rows.keys.take(nothing), nothing, nothing),
        (pa.array([], kinds[0]), pa.array([], kinds[1])),
        nothing,
        numbered(orders[:0], np.zeros(0, np.int64)),
    )


def _windowed_keys(keys: pa.StructArray, starts: pa.Array, ends: pa.Array) -> pa.StructArray:
    fields = [*keys.type, pa.field(START, pa.int64()), pa.field(END, pa.int64())]
    return pa.StructArray.from_arrays([*keys.flatten(), starts, ends], fields=fields)


def _add_to_windows(
    kind: FixedWindows,
    fold: _Folding,
    rows: TaskColumns,
    orders: Numbers,
    codes: KeyCodes,
    arguments: pa.StructArray,
    row_of: Numbers,
    window_starts: Numbers,
    numbers: Numbers,
    state: CachedState,
    kinds: tuple[pa.DataType, ...],
) -> UpdateColumns:
    """`row_of`, `window_starts` and `numbers`: as `_windows_of` gives them."""
    steps = (window_starts - window_starts.min()) // kind.every_ms
    key_numbers = codes.codes[row_of]
    groups = Groups.of(key_numbers * (int(steps.max()) + 1) + steps)
    values = _argument_lists(arguments, row_of[groups.places])
    times = rows.timestamps.to_numpy()
    latest = np.maximum.reduceat(times[row_of[groups.places]], groups.starts).tolist()
    starts, ends = groups.starts.tolist(), groups.ends.tolist()
    group_keys = key_numbers[groups.last].tolist()
    group_windows = window_starts[groups.last].tolist()
    calendar = Calendar(state)
    windows_of: dict[int, dict[tuple[int, int], Held]] = {}
    after, before, timestamps = [], [], []
    for group in groups.by_last.tolist():
        number, start = group_keys[group], group_windows[group]
        window = (start, start + kind.size_ms)
        windows = windows_of.get(number)
        if windows is None:
            windows = windows_of[number] = state.get("windows", codes.keys[number]) or {}
        held = windows.get(window)
        if held is None:
            calendar.note(kind.kept_until(window), codes.keys[number])
            held = (None, latest[group])
        before.append(fold.result(held[0]))
        aggregate = fold.add_all(codes.keys[number], fold.copied(held[0]), values, starts[group], ends[group])
        windows[window] = (aggregate, max(held[1], latest[group]))
        timestamps.append(windows[window][1])
        after.append(fold.result(aggregate))
    for number, windows in windows_of.items():
        state.put("windows", codes.keys[number], windows)
    last = groups.last[groups.by_last]
    said_rows = row_of[last]
    begins = window_starts[last]
    return rows.update(
        said_rows,
        _windowed_keys(
            rows.keys.take(pa.array(said_rows)), pa.array(begins), pa.array(begins + kind.size_ms)
        ),
        (fold.column(after, kinds[0]), fold.column(before, kinds[1])),
        pa.array(timestamps, pa.int64()),
        numbered(orders[said_rows], numbers[last]),
    )
