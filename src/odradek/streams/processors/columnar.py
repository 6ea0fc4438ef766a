"""Processors that take a batch as columns: the same updates as row by row, at the price of a row for each key.

An operator that emits only the latest update of each key needs to look up a key, add up its records, and write it once. A join
with a table needs the rows of the table as they were at each record: few, taken many times. Whatever does not fit goes row by
row: `columnar` answers None.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from odradek.spark.rows.result_types import ResultType
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
from odradek.streams.processors.open_windows import Held, Window
from odradek.streams.processors.ports import ColumnLists, Fields, KeyedProcessor
from odradek.streams.processors.python_values import UnreadableValueError, lists_of_numbers, values_of
from odradek.streams.processors.task import CachedState
from odradek.streams.processors.windows import END, START, FixedWindows, WindowProcessor

PAIRS_MAX: Final = 1 << 18
"""The most pairs of a row and a window that contains it in one step; the number of rows, if that is larger."""
_CODE_MAX: Final = 1 << 62


class _FoldError(Exception):
    """A fold cannot add a value of a batch, or its result does not fit. Processing row by row then finds and handles it."""


@dataclass(frozen=True, slots=True)
class _Folding:
    fold: ColumnFold
    results: ResultType | None

    def add_all(self, key: Fields, aggregate: object, values: ColumnLists, start: int, end: int) -> object:
        try:
            return self.fold.add_all(key, aggregate, values, start, end)
        except Exception as error:
            raise _FoldError from error

    def copied(self, aggregate: object) -> object:
        return self.fold.copied(aggregate)

    def result(self, aggregate: object) -> Fields | None:
        try:
            fields = self.fold.result(aggregate)
            return fields if self.results is None else self.results.fitted(fields)
        except Exception as error:
            raise _FoldError from error

    def result_before(self, aggregate: object) -> Fields | None:
        try:
            fields = self.fold.result(aggregate)
            return fields if self.results is None else self.results.fitted_before(fields)
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
    """Returns the processor's updates, if columns can express them. `old`: as in `task.latest_only`; None for every update.
    `kinds`: the types of what it emits. The state is not flushed.
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
            processor.kind, _Folding(processor.fold, processor.results), rows, orders, state, kinds
        )
    return None


def _arguments(payload: pa.StructArray) -> pa.StructArray | None:
    """Returns the values to add; None where a payload is more than that."""
    new, old = payload.field("new"), payload.field("old")
    if payload.null_count or new.null_count or old.null_count != len(old):
        return None
    return new


def _prepared(
    rows: TaskColumns, orders: Numbers
) -> tuple[TaskColumns, Numbers, KeyCodes, pa.StructArray] | None:
    """Returns the rows in their order, their orders, keys and arguments."""
    if _arguments(rows.payloads[0]) is None:
        return None
    row_numbers, orders = order_of(orders)
    rows = rows.take(row_numbers)
    codes, arguments = key_codes(rows.keys), _arguments(rows.payloads[0])
    return None if codes is None or arguments is None else (rows, orders, codes, arguments)


def _argument_lists(arguments: pa.StructArray, row_numbers: Numbers) -> ColumnLists:
    chosen = pa.array(row_numbers)
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
    values = _argument_lists(arguments, groups.row_numbers)
    times = rows.timestamps.to_numpy()
    latest = np.maximum.reduceat(times[groups.row_numbers], groups.starts).tolist()
    starts, ends = groups.starts.tolist(), groups.ends.tolist()
    numbers = codes.codes[groups.last].tolist()
    entries = codes.entry_names("aggregate")
    state.fetch(entries)
    after, before, timestamps = [], [], []
    for group in groups.by_last.tolist():
        entry = entries[numbers[group]]
        aggregate, when = state.read(entry) or (None, latest[group])
        before.append(fold.result_before(aggregate))
        aggregate = fold.add_all(codes.keys[numbers[group]], aggregate, values, starts[group], ends[group])
        timestamps.append(max(when, latest[group]))
        state.write(entry, (aggregate, timestamps[-1]))
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
    reach = _Reach.of(kind, times, stream_times)
    state.stream_time = int(stream_times[-1])
    entries = codes.entry_names("windows")
    state.fetch(entries)
    batch = _WindowBatch(kind, fold, codes, entries, arguments, times, state)
    updates = [batch.add(reach.pairs(*steps)) for steps in reach.ranges(max(PAIRS_MAX, len(times)))]
    batch.close(Calendar(state))
    batch.keep()
    return _window_updates(kind, fold, rows, orders, updates, kinds)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Rows, by their places, and windows, by the number of their start, that take them. `numbers`: of the window among the
    row's.
    """

    rows: Numbers
    windows: Numbers
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class _Reach:
    """The windows that take each row and are open: `counts` of them, from that with the number `first` on. A window's start
    is its number times the time between two.
    """

    first: Numbers
    counts: Numbers

    @classmethod
    def of(cls, kind: FixedWindows, times: Numbers, stream_times: Numbers) -> _Reach:
        size, every = kind.size_ms, kind.every_ms
        first = np.maximum(0, times - size + every) // every
        first = np.maximum(first, (stream_times - size - kind.grace_ms) // every + 1)
        return cls(first, np.maximum(0, times // every - first + 1))

    def ranges(self, pair_count_max: int) -> Iterator[tuple[int, int]]:
        """Yields all numbers of windows, in ranges that have this many pairs at most. It is at least the number of rows, so
        that a range has a window.
        """
        is_taken = self.counts > 0
        if not is_taken.any():
            return
        begin, last = int(self.first[is_taken].min()), int((self.first + self.counts)[is_taken].max())
        while begin < last:
            end = self._range_end(begin, last, pair_count_max)
            yield begin, end
            begin = end

    def _range_end(self, begin: int, last: int, pair_count_max: int) -> int:
        if self._pair_count(begin, last) <= pair_count_max:
            return last
        fits, too_far = begin + 1, last
        while too_far - fits > 1:
            middle = (fits + too_far) // 2
            if self._pair_count(begin, middle) <= pair_count_max:
                fits = middle
            else:
                too_far = middle
        return fits

    def pairs(self, begin: int, end: int) -> _Pairs:
        """Returns the pairs of the windows from `begin` up to `end`, row by row."""
        low, counts = self._within(begin, end)
        rows = np.repeat(np.arange(len(counts)), counts)
        numbers = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts - low, counts)
        return _Pairs(rows, self.first[rows] + numbers, numbers)

    def _within(self, begin: int, end: int) -> tuple[Numbers, Numbers]:
        """Returns, for each row, the index of its first window from `begin` on, and the count of its windows up to `end`."""
        low = np.clip(begin - self.first, 0, self.counts)
        return low, np.clip(end - self.first, 0, self.counts) - low

    def _pair_count(self, begin: int, end: int) -> int:
        return int(self._within(begin, end)[1].sum())


@dataclass(frozen=True, slots=True)
class _WindowUpdates:
    """The updates of windows. `last`: the last pair of each window."""

    last: _Pairs
    after: list[Fields | None]
    before: list[Fields | None]
    timestamps: list[int]


@dataclass(frozen=True, slots=True)
class _WindowBatch:
    """The windows of a batch's keys, to which pairs are added range by range."""

    kind: FixedWindows
    fold: _Folding
    codes: KeyCodes
    entries: list[bytes]
    """The names of the keys' states, by the keys' numbers."""
    arguments: pa.StructArray
    times: Numbers
    state: CachedState
    windows_of: dict[bytes, dict[Window, Held]] = field(default_factory=dict)
    """The windows of each key, by the name of their state."""

    def add(self, pairs: _Pairs) -> _WindowUpdates:
        """Adds pairs, which must be all pairs of their windows; returns the windows' updates."""
        key_numbers = self.codes.codes[pairs.rows]
        groups = Groups.of(_codes_of_pairs(key_numbers, len(self.codes.keys), pairs.windows))
        rows = pairs.rows[groups.row_numbers]
        values = _argument_lists(self.arguments, rows)
        latest = np.maximum.reduceat(self.times[rows], groups.starts).tolist()
        starts, ends = groups.starts.tolist(), groups.ends.tolist()
        group_keys = key_numbers[groups.last].tolist()
        group_windows = (pairs.windows[groups.last] * self.kind.every_ms).tolist()
        calendar, fold = Calendar(self.state), self.fold
        after, before, timestamps = [], [], []
        opened: dict[Window, list[Fields]] = {}
        for group in groups.by_last.tolist():
            number, start = group_keys[group], group_windows[group]
            key, window = self.codes.keys[number], (start, start + self.kind.size_ms)
            windows = self._windows(number)
            held = windows.get(window)
            if held is None:
                opened.setdefault(window, []).append(key)
                held = (None, latest[group])
            before.append(fold.result_before(held[0]))
            aggregate = fold.add_all(key, fold.copied(held[0]), values, starts[group], ends[group])
            windows[window] = (aggregate, max(held[1], latest[group]))
            timestamps.append(windows[window][1])
            after.append(fold.result(aggregate))
        for window, keys in opened.items():
            calendar.note_all(self.kind.retained_until(window), keys)
        last = groups.last[groups.by_last]
        ends_at = _Pairs(pairs.rows[last], pairs.windows[last], pairs.numbers[last])
        return _WindowUpdates(ends_at, after, before, timestamps)

    def _windows(self, number: int) -> dict[Window, Held]:
        entry = self.entries[number]
        windows = self.windows_of.get(entry)
        if windows is None:
            windows = self.windows_of[entry] = self.state.read(entry) or {}
        return windows

    def close(self, calendar: Calendar) -> None:
        """Drops windows that stream time has passed, as `WindowProcessor.time_passed`, once for each key."""
        closed_until: dict[bytes, int] = {}
        for time, key in calendar.due(self.state.stream_time):
            closed_until[self.state.entry_name("windows", key)] = time  # times ascend
        self.state.fetch(entry for entry in closed_until if entry not in self.windows_of)
        grace_ms = self.kind.grace_ms
        for entry, time in closed_until.items():
            windows = self.windows_of.get(entry)
            if windows is None:
                windows = self.state.read(entry) or {}
            self.windows_of[entry] = {
                window: held for window, held in windows.items() if window[1] + grace_ms - 1 > time
            }

    def keep(self) -> None:
        """Puts the changed windows into the state."""
        for entry, windows in self.windows_of.items():
            self.state.write(entry, windows or None)


def _codes_of_pairs(key_numbers: Numbers, key_count: int, windows: Numbers) -> Numbers:
    """Returns numbers for pairs, equal for the same key and window."""
    steps = windows - windows.min()
    span = int(steps.max()) + 1
    if key_count * span > _CODE_MAX:  # of times far apart: then there are fewer windows than that
        steps = np.unique(steps, return_inverse=True)[1]
        span = int(steps.max()) + 1
    codes: Numbers = key_numbers * span + steps
    return codes


def _window_updates(
    kind: FixedWindows,
    fold: _Folding,
    rows: TaskColumns,
    orders: Numbers,
    batches: list[_WindowUpdates],
    kinds: tuple[pa.DataType, ...],
) -> UpdateColumns:
    """Returns the updates of all windows in the order of the rows."""
    nothing = np.zeros(0, np.int64)
    last_rows, windows, numbers = (
        np.concatenate([nothing, *(getattr(updates.last, part) for updates in batches)])
        for part in ("rows", "windows", "numbers")
    )
    after, before = (
        pa.concat_arrays([pa.array([], column_kind), *(fold.column(part, column_kind) for part in parts)])
        for parts, column_kind in zip(
            ([updates.after for updates in batches], [updates.before for updates in batches]),
            kinds,
            strict=True,
        )
    )
    timestamps = np.concatenate([nothing, *(np.array(updates.timestamps, np.int64) for updates in batches)])
    order = np.lexsort((numbers, last_rows))
    chosen, last_rows = pa.array(order), last_rows[order]
    begins = windows[order] * kind.every_ms
    return rows.update(
        last_rows,
        _windowed_keys(
            rows.keys.take(pa.array(last_rows)), pa.array(begins), pa.array(begins + kind.size_ms)
        ),
        (after.take(chosen), before.take(chosen)),
        pa.array(timestamps[order]),
        numbered(orders[last_rows], numbers[order]),
    )


def _windowed_keys(keys: pa.StructArray, starts: pa.Array, ends: pa.Array) -> pa.StructArray:
    fields = [*keys.type, pa.field(START, pa.int64()), pa.field(END, pa.int64())]
    return pa.StructArray.from_arrays([*keys.flatten(), starts, ends], fields=fields)
