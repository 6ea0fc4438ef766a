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

from odradek.streams.processors.aggregate import AggregateProcessor, ColumnFold, GroupFold
from odradek.streams.processors.calendar import Calendar
from odradek.streams.processors.columns import (
    Groups,
    KeyCodes,
    Numbers,
    OrderedColumns,
    TaskColumns,
    UpdateColumns,
    numbered,
)
from odradek.streams.processors.folding import FoldError, Folding, GroupValues
from odradek.streams.processors.joined_columns import stream_table, table_table
from odradek.streams.processors.joins import StreamTableProcessor, TableTableProcessor
from odradek.streams.processors.open_windows import Held, Window
from odradek.streams.processors.ports import KeyedProcessor
from odradek.streams.processors.python_values import UnreadableValueError, lists_of_numbers
from odradek.streams.processors.task import CachedState
from odradek.streams.processors.windows import END, START, FixedWindows, WindowProcessor

PAIRS_MAX: Final = 1 << 18
"""The most pairs of a row and a window that contains it in one step; the number of rows, if that is larger."""
_CODE_MAX: Final = 1 << 62


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
    except (FoldError, UnreadableValueError):
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
    if isinstance(processor, AggregateProcessor) and isinstance(processor.fold, ColumnFold | GroupFold):
        return _aggregated(Folding(processor.fold, processor.results), rows, orders, state, kinds)
    if (
        isinstance(processor, WindowProcessor)
        and isinstance(processor.fold, ColumnFold | GroupFold)
        and isinstance(processor.kind, FixedWindows)
        and not processor.is_final
        and not processor.has_wall_clock
    ):
        return _windowed(
            processor.kind, Folding(processor.fold, processor.results), rows, orders, state, kinds
        )
    return None


def _arguments(payload: pa.StructArray) -> pa.StructArray | None:
    """Returns the values to add; None where a payload is more than that."""
    new, old = payload.field("new"), payload.field("old")
    if payload.null_count or new.null_count or old.null_count != len(old):
        return None
    return new


def _prepared(rows: TaskColumns, orders: Numbers) -> tuple[OrderedColumns, Numbers, pa.StructArray] | None:
    """Returns the rows in their order, their orders, and the arguments in the order of the batch."""
    arguments = _arguments(rows.payloads[0])
    ordered = None if arguments is None else OrderedColumns.of(rows, orders)
    return None if arguments is None or ordered is None else (*ordered, arguments)


def _aggregated(
    fold: Folding, rows: TaskColumns, orders: Numbers, state: CachedState, kinds: tuple[pa.DataType, ...]
) -> UpdateColumns | None:
    prepared = _prepared(rows, orders)
    if prepared is None:
        return None
    ordered, orders, arguments = prepared
    codes = ordered.codes
    groups = Groups.of(codes.codes)
    by_last = groups.by_last
    times, last = ordered.times, groups.last[by_last]
    latest = np.maximum.reduceat(times[groups.row_numbers], groups.starts)[by_last].tolist()
    numbers = codes.codes[last].tolist()
    names = codes.entry_names("aggregate")
    state.fetch(names)
    entries = [names[number] for number in numbers]
    helds = list(map(state.read, entries))
    aggregates = [None if held is None else held[0] for held in helds]
    timestamps = [
        when if held is None else max(held[1], when) for held, when in zip(helds, latest, strict=True)
    ]
    before = fold.results_before(aggregates, kinds[1])
    values = GroupValues(
        arguments, ordered.row_numbers[groups.row_numbers], groups.starts[by_last], groups.ends[by_last]
    )
    aggregates = fold.add_groups([codes.keys[number] for number in numbers], aggregates, values)
    for entry, aggregate, timestamp in zip(entries, aggregates, timestamps, strict=True):
        state.write(entry, (aggregate, timestamp))
    state.stream_time = max(state.stream_time, int(times.max()))
    return ordered.update(
        last,
        ordered.keys(last),
        (fold.results(aggregates, kinds[0]), before),
        pa.array(timestamps, pa.int64()),
        numbered(orders[last], np.zeros(len(last), np.int64)),
    )


def _windowed(
    kind: FixedWindows,
    fold: Folding,
    rows: TaskColumns,
    orders: Numbers,
    state: CachedState,
    kinds: tuple[pa.DataType, ...],
) -> UpdateColumns | None:
    prepared = _prepared(rows, orders)
    if prepared is None:
        return None
    ordered, orders, arguments = prepared
    codes = ordered.codes
    times = ordered.times
    stream_times = np.maximum(np.maximum.accumulate(times), state.stream_time)
    reach = _Reach.of(kind, times, stream_times)
    state.stream_time = int(stream_times[-1])
    entries = codes.entry_names("windows")
    state.fetch(entries)
    batch = _WindowBatch(kind, fold, kinds, codes, entries, codes.texts(), arguments, ordered, state)
    updates = [batch.add(reach.pairs(*steps)) for steps in reach.ranges(max(PAIRS_MAX, len(times)))]
    batch.close(Calendar(state))
    batch.keep()
    return _window_updates(kind, ordered, orders, updates, kinds)


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
    after: pa.Array
    before: pa.Array
    timestamps: list[int]


@dataclass(frozen=True, slots=True)
class _WindowBatch:
    """The windows of a batch's keys, to which pairs are added range by range."""

    kind: FixedWindows
    fold: Folding
    kinds: tuple[pa.DataType, ...]
    """The types of the results after and before."""
    codes: KeyCodes
    entries: list[bytes]
    """The names of the keys' states, by the keys' numbers."""
    key_texts: list[str]
    arguments: pa.StructArray
    """The arguments, in the order of the batch."""
    rows: OrderedColumns
    state: CachedState
    windows_of: dict[bytes, dict[Window, Held]] = field(default_factory=dict)
    """The windows of each key, by the name of their state."""

    def add(self, pairs: _Pairs) -> _WindowUpdates:
        """Adds pairs, which must be all pairs of their windows; returns the windows' updates."""
        key_numbers = self.codes.codes[pairs.rows]
        groups = Groups.of(_codes_of_pairs(key_numbers, len(self.codes.keys), pairs.windows))
        by_last, rows = groups.by_last, pairs.rows[groups.row_numbers]
        last = groups.last[by_last]
        latest = np.maximum.reduceat(self.rows.times[rows], groups.starts)[by_last].tolist()
        numbers, starts = key_numbers[last].tolist(), pairs.windows[last] * self.kind.every_ms
        windows = list(zip(starts.tolist(), (starts + self.kind.size_ms).tolist(), strict=True))
        windows_of = list(map(self._windows, numbers))
        helds = [of_key.get(window) for of_key, window in zip(windows_of, windows, strict=True)]
        aggregates = [None if held is None else held[0] for held in helds]
        timestamps = [
            when if held is None else max(held[1], when) for held, when in zip(helds, latest, strict=True)
        ]
        before = self.fold.results_before(aggregates, self.kinds[1])
        values = GroupValues(
            self.arguments, self.rows.row_numbers[rows], groups.starts[by_last], groups.ends[by_last]
        )
        keys = [self.codes.keys[number] for number in numbers]
        aggregates = self.fold.add_groups(keys, aggregates, values)
        for of_key, window, aggregate, timestamp in zip(
            windows_of, windows, aggregates, timestamps, strict=True
        ):
            of_key[window] = (aggregate, timestamp)
        named = zip(windows, numbers, helds, strict=True)
        self._note([(window, number) for window, number, held in named if held is None])
        ends_at = _Pairs(pairs.rows[last], pairs.windows[last], pairs.numbers[last])
        return _WindowUpdates(ends_at, self.fold.results(aggregates, self.kinds[0]), before, timestamps)

    def _note(self, opened: list[tuple[Window, int]]) -> None:
        """Notes in the calendar when windows are closed that a batch has opened. With each is the number of its key."""
        numbers_of: dict[Window, list[int]] = {}
        for window, number in opened:
            numbers_of.setdefault(window, []).append(number)
        calendar, texts, keys = Calendar(self.state), self.key_texts, self.codes.keys
        for window, numbers in numbers_of.items():
            noted = {texts[number]: keys[number] for number in numbers}
            calendar.note_all(self.kind.retained_until(window), noted)

    def _windows(self, number: int) -> dict[Window, Held]:
        entry = self.entries[number]
        windows = self.windows_of.get(entry)
        if windows is None:
            windows = self.windows_of[entry] = self.state.read(entry) or {}
        return windows

    def close(self, calendar: Calendar) -> None:
        """Drops windows that stream time has passed, as `WindowProcessor.time_passed`, once for each key."""
        state = self.state
        closed_until = {
            state.entry_name_of_text("windows", text): time
            for text, time in calendar.last_due(state.stream_time).items()
        }
        state.fetch(entry for entry in closed_until if entry not in self.windows_of)
        for entry, time in closed_until.items():
            windows = self.windows_of.get(entry)
            if windows is None:
                windows = state.read(entry) or {}
            end_min = time - self.kind.grace_ms + 2
            self.windows_of[entry] = {
                window: held for window, held in windows.items() if window[1] >= end_min
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
    rows: OrderedColumns,
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
        pa.concat_arrays([pa.array([], column_kind), *parts])
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
        _windowed_keys(rows.keys(last_rows), pa.array(begins), pa.array(begins + kind.size_ms)),
        (after.take(chosen), before.take(chosen)),
        pa.array(timestamps[order]),
        numbered(orders[last_rows], numbers[order]),
    )


def _windowed_keys(keys: pa.StructArray, starts: pa.Array, ends: pa.Array) -> pa.StructArray:
    fields = [*keys.type, pa.field(START, pa.int64()), pa.field(END, pa.int64())]
    return pa.StructArray.from_arrays([*keys.flatten(), starts, ends], fields=fields)
