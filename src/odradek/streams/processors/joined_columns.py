"""Joins with tables over a batch as columns: rows of tables are looked up for each key, and taken as often as they are seen."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from odradek.streams.processors.columns import (
    Groups,
    Numbers,
    OrderedColumns,
    TaskColumns,
    UpdateColumns,
    numbered,
)
from odradek.streams.processors.joins import StreamTableProcessor, TableTableProcessor
from odradek.streams.processors.python_values import values_of
from odradek.streams.processors.state.table_rows import TableRows
from odradek.streams.processors.task import CachedState


def stream_table(
    processor: StreamTableProcessor,
    rows: TaskColumns,
    orders: Numbers,
    state: CachedState,
    kinds: tuple[pa.DataType, ...],
) -> UpdateColumns | None:
    """Joins each stream record with the table row that came last before it: of this batch, or from the state."""
    prepared = OrderedColumns.of(rows, orders)
    if prepared is None:
        return None
    ordered, orders = prepared
    row_numbers, codes, is_table = ordered.row_numbers, ordered.codes, ordered.ports() == 1
    entries = codes.entry_names("table")
    known, _ = _read_rows(state, entries, kinds[1], have_times=False)
    table_rows = np.flatnonzero(is_table)
    latest = codes.codes.copy()
    if len(table_rows):
        groups = Groups.of(codes.codes)
        latest = _latest_versions(groups, codes.codes, is_table, len(entries))
        changed = rows.payloads[1].take(pa.array(row_numbers[table_rows])).cast(kinds[1])
        last = {number: row for row, number in enumerate(codes.codes[table_rows].tolist())}
        latest_rows = changed.take(pa.array(list(last.values()), pa.int64()))
        _write_rows(state, [entries[number] for number in last], latest_rows, None)
        known = pa.concat_arrays([known, changed])
        version_of_row = np.full(len(is_table), -1, np.int64)
        version_of_row[table_rows] = len(entries) + np.arange(len(table_rows))
        from_batch = latest >= len(entries)
        latest[from_batch] = version_of_row[latest[from_batch] - len(entries)]
    state.stream_time = max(state.stream_time, int(ordered.times.max()))
    entry_of = known.take(pa.array(latest))
    payload = rows.payloads[0]
    has_value = pc.and_(payload.is_valid(), _field(payload, "value").is_valid())
    is_emitted = ~is_table & has_value.to_numpy(zero_copy_only=False)[row_numbers]
    if not processor.is_left:
        is_emitted &= entry_of.is_valid().to_numpy(zero_copy_only=False)
    emitted = np.flatnonzero(is_emitted)
    chosen = pa.array(row_numbers[emitted])
    return ordered.update(
        emitted,
        _field(payload, "key").take(chosen),
        (_field(payload, "value").take(chosen), entry_of.take(pa.array(emitted))),
        pa.array(ordered.times[emitted]),
        numbered(orders[emitted], np.zeros(len(emitted), np.int64)),
    )


def _field(struct: pa.StructArray, name: str) -> pa.Array:
    """Returns a field of a struct, null where the struct is null."""
    return struct.flatten()[struct.type.get_field_index(name)]


def _latest_versions(
    groups: Groups, codes: Numbers, is_table: npt.NDArray[np.bool_], known_count: int
) -> Numbers:
    """Returns the table row that each row sees: `known_count` plus its index in the batch; or its key's number if earlier."""
    in_groups = np.where(is_table[groups.row_numbers], np.arange(len(codes)), -1)
    seen = np.maximum.accumulate(in_groups)
    begins = np.repeat(groups.starts, groups.ends - groups.starts)
    of_key = codes[groups.row_numbers]
    sees = np.where(seen >= begins, known_count + groups.row_numbers[np.maximum(seen, 0)], of_key)
    latest = np.empty(len(codes), np.int64)
    latest[groups.row_numbers] = sees
    return latest


def table_table(
    processor: TableTableProcessor,
    rows: TaskColumns,
    orders: Numbers,
    state: CachedState,
    kinds: tuple[pa.DataType, ...],
) -> UpdateColumns | None:
    """Returns the last update of each key, and what was before its first."""
    prepared = OrderedColumns.of(rows, orders)
    if prepared is None:
        return None
    ordered, orders = prepared
    codes, ports, times = ordered.codes, ordered.ports(), ordered.times
    groups = Groups.of(codes.codes)
    names = codes.entry_names("left"), codes.entry_names("right")
    state.fetch(chain(*names))
    sides = [
        _TableSide.of(entries, payload.cast(kind), ports == port, ordered, groups, state)
        for port, (entries, payload, kind) in enumerate(zip(names, rows.payloads, kinds[:2], strict=True))
    ]
    first, last, timestamps = _updates_per_key(processor, ports, times, groups, sides)
    in_order = np.argsort(groups.row_numbers[last], kind="stable")
    first, last = first[in_order], last[in_order]
    for side in sides:
        side.write(state)
    state.stream_time = max(state.stream_time, int(times.max()))
    positions = groups.row_numbers[last]
    return ordered.update(
        positions,
        ordered.keys(positions),
        (
            *(side.rows.take(pa.array(side.after[last])) for side in sides),
            *(side.rows.take(pa.array(side.before[first])) for side in sides),
        ),
        pa.array(timestamps[last]),
        numbered(orders[positions], np.zeros(len(positions), np.int64)),
    )


def _updates_per_key(
    processor: TableTableProcessor, ports: Numbers, times: Numbers, groups: Groups, sides: list[_TableSide]
) -> tuple[Numbers, Numbers, Numbers]:
    """Returns the first and the last update of each key that has some, and the timestamp of every row's update. Both are
    indexes in `groups.row_numbers`, and the timestamps are in its order.
    """
    is_right = ports[groups.row_numbers] == 1
    times = times[groups.row_numbers]
    left, right = sides
    has_before = [side.is_present[side.before] for side in sides]
    has_opposite = np.where(is_right, has_before[0], has_before[1])
    has_own = np.where(is_right, has_before[1], has_before[0])
    is_there = np.where(is_right, right.is_present[right.after], left.is_present[left.after])
    needs_opposite = np.where(is_right, processor.needs_left, processor.needs_right)
    emits = has_opposite | ~(needs_opposite | (~is_there & ~has_own))
    opposite_times = np.where(is_right, left.times[left.before], right.times[right.before])
    timestamps = np.where(has_opposite, np.maximum(times, opposite_times), times)
    emitted = np.flatnonzero(emits)
    group_of = np.repeat(np.arange(len(groups.starts)), groups.ends - groups.starts)[emitted]
    is_first = np.ones(len(emitted), bool)
    is_first[1:] = group_of[1:] != group_of[:-1]
    is_last = np.ones(len(emitted), bool)
    is_last[:-1] = is_first[1:]
    return emitted[is_first], emitted[is_last], timestamps


@dataclass(frozen=True, slots=True)
class _TableSide:
    """One of two tables: `rows` has each key's row in the state, by the key's number, and then the batch's rows as they came;
    so do `times` and `is_present`.

    `before` and `after`: for each row of the batch, in the order of groups, which of them its key has in this table then.
    `changed`: the keys whose row the batch changes; `changed_rows`: the last of these rows of each.
    """

    entries: list[bytes]
    """The names of the keys' rows in the state, by the keys' numbers."""
    rows: pa.Array
    times: Numbers
    is_present: npt.NDArray[np.bool_]
    before: Numbers
    after: Numbers
    changed: Numbers
    changed_rows: Numbers

    @classmethod
    def of(
        cls,
        entries: list[bytes],
        payload: pa.Array,
        is_mine: npt.NDArray[np.bool_],
        ordered: OrderedColumns,
        groups: Groups,
        state: CachedState,
    ) -> _TableSide:
        known, known_times = _read_rows(state, entries, payload.type, have_times=True)
        rows = pa.concat_arrays([known, payload])
        seen = np.maximum.accumulate(
            np.where(is_mine[groups.row_numbers], np.arange(len(groups.row_numbers)), -1)
        )
        begins = np.repeat(groups.starts, groups.ends - groups.starts)
        numbers = ordered.codes.codes[groups.row_numbers]
        batch_rows = len(known) + ordered.row_numbers[groups.row_numbers]
        after = np.where(seen >= begins, batch_rows[seen], numbers)
        before = np.empty_like(after)
        before[1:] = after[:-1]
        before[groups.starts] = numbers[groups.starts]
        at_end = after[groups.ends - 1]
        is_changed = at_end >= len(known)
        return cls(
            entries,
            rows,
            np.concatenate((known_times, ordered.batch.timestamps.to_numpy())),
            rows.is_valid().to_numpy(zero_copy_only=False),
            before,
            after,
            numbers[groups.starts][is_changed],
            at_end[is_changed],
        )

    def write(self, state: CachedState) -> None:
        """Writes the batch's changes to the state."""
        entries = [self.entries[number] for number in self.changed.tolist()]
        values = self.rows.take(pa.array(self.changed_rows))
        _write_rows(state, entries, values, self.times[self.changed_rows])


def _read_rows(
    state: CachedState, entries: list[bytes], kind: pa.DataType, *, have_times: bool
) -> tuple[pa.StructArray, Numbers]:
    """Returns the value of each entry, null where there is none, and its time, 0 where there is none."""
    table_rows = TableRows.of(kind, has_time=have_times)
    known = None if table_rows is None else table_rows.read(state.read_rows(entries))
    if known is not None:
        return known
    state.fetch(entries)
    rows = list(map(state.read, entries))
    if not have_times:
        return pa.array(rows, kind), np.zeros(len(rows), np.int64)
    values = pa.array([None if row is None else row[0] for row in rows], kind)
    return values, np.array([0 if row is None else row[1] for row in rows], np.int64)


def _write_rows(
    state: CachedState, entries: list[bytes], values: pa.StructArray, times: Numbers | None
) -> None:
    """Writes the value of each entry, with its time unless there are none; deletes entries whose value is null."""
    table_rows = TableRows.of(values.type, has_time=times is not None)
    if table_rows is not None:
        written = table_rows.written(values, np.zeros(len(values), np.int64) if times is None else times)
        state.write_rows(zip(entries, written, strict=True))
        return
    rows = values_of(values)
    if times is not None:
        rows = [
            None if value is None else (value, when) for value, when in zip(rows, times.tolist(), strict=True)
        ]
    for entry, row in zip(entries, rows, strict=True):
        state.write(entry, row)
