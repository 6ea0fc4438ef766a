"""Joins with tables over a batch as columns: rows of tables are looked up for each key, and taken as often as they are seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odradek.streams.processors.columns import (
    Groups,
    KeyCodes,
    Numbers,
    SaidColumns,
    TaskColumns,
    key_codes,
    numbered,
    order_of,
)
from odradek.streams.processors.joins import StreamTableProcessor, TableTableProcessor
from odradek.streams.processors.python_values import values_of
from odradek.streams.processors.task import CachedState


def stream_table(
    processor: StreamTableProcessor,
    rows: TaskColumns,
    orders: Numbers,
    state: CachedState,
    kinds: tuple[pa.DataType, ...],
) -> SaidColumns | None:
    """Each record of the stream takes the row of the table that came last before it: of this batch, or what the state has."""
    ports = rows.ports.to_numpy()
    is_table = ports == 1
    places, orders = order_of(orders)
    rows, is_table = rows.take(places), is_table[places]
    codes = key_codes(rows.keys)
    if codes is None:
        return None
    table_payload = rows.payloads[1].cast(kinds[1])
    entries = [state.get("table", key) for key in codes.keys]
    known = pa.array(entries, kinds[1])
    table_rows = np.flatnonzero(is_table)
    latest = codes.codes.copy()
    if len(table_rows):
        groups = Groups.of(codes.codes)
        latest = _latest_versions(groups, codes.codes, is_table, len(entries))
        changed = table_payload.take(pa.array(table_rows))
        last: dict[int, Any] = dict(zip(codes.codes[table_rows].tolist(), values_of(changed), strict=True))
        for number, entry in last.items():
            state.put("table", codes.keys[number], entry)
        known = pa.concat_arrays([known, changed])
        version_of_row = np.full(len(ports), -1, np.int64)
        version_of_row[table_rows] = len(entries) + np.arange(len(table_rows))
        from_batch = latest >= len(entries)
        latest[from_batch] = version_of_row[latest[from_batch] - len(entries)]
    state.stream_time = max(state.stream_time, int(rows.timestamps.to_numpy().max()))
    entry_of = known.take(pa.array(latest))
    payload = rows.payloads[0]
    wanted = pc.and_(pa.array(~is_table), pc.and_(payload.is_valid(), _field(payload, "value").is_valid()))
    if not processor.is_left:
        wanted = pc.and_(wanted, entry_of.is_valid())
    said = np.flatnonzero(wanted.to_numpy(zero_copy_only=False))
    chosen = pa.array(said)
    return SaidColumns(
        _field(payload, "key").take(chosen),
        (_field(payload, "value").take(chosen), entry_of.take(chosen)),
        rows.timestamps.take(chosen),
        rows.headers.take(chosen),
        numbered(orders[said], np.zeros(len(said), np.int64)),
    )


def _field(struct: pa.StructArray, name: str) -> pa.Array:
    """Null where the struct is."""
    return struct.flatten()[struct.type.get_field_index(name)]


def _latest_versions(groups: Groups, codes: Numbers, is_table: Any, known_count: int) -> Numbers:
    """For each row what it sees of the table: `known_count` and the place of the table's row; or the number of its key."""
    in_groups = np.where(is_table[groups.places], np.arange(len(codes)), -1)
    seen = np.maximum.accumulate(in_groups)
    begins = np.repeat(groups.starts, groups.ends - groups.starts)
    of_key = codes[groups.places]
    sees = np.where(seen >= begins, known_count + groups.places[np.maximum(seen, 0)], of_key)
    latest = np.empty(len(codes), np.int64)
    latest[groups.places] = sees
    return latest


def table_table(
    processor: TableTableProcessor,
    rows: TaskColumns,
    orders: Numbers,
    state: CachedState,
    kinds: tuple[pa.DataType, ...],
) -> SaidColumns | None:
    """The last update of each key, and what was before its first."""
    places, orders = order_of(orders)
    rows = rows.take(places)
    codes = key_codes(rows.keys)
    if codes is None:
        return None
    sides = [
        _TableSide.of(name, payload.cast(kind), codes, state)
        for name, payload, kind in zip(("left", "right"), rows.payloads, kinds[:2], strict=True)
    ]
    joined = _joined(processor, rows, codes, sides)
    for side in sides:
        side.write(codes, state)
    state.stream_time = max(state.stream_time, int(rows.timestamps.to_numpy().max()))
    chosen = pa.array([update.position for update in joined], pa.int64())
    values = [
        side.rows.take(pa.array([places[port] for places in column], pa.int64()))
        for column in ([update.values for update in joined], [update.before for update in joined])
        for port, side in enumerate(sides)
    ]
    return SaidColumns(
        rows.keys.take(chosen),
        tuple(values),
        pa.array([update.timestamp for update in joined], pa.int64()),
        rows.headers.take(chosen),
        numbered(orders[chosen.to_numpy()], np.zeros(len(joined), np.int64)),
    )


def _joined(
    processor: TableTableProcessor, rows: TaskColumns, codes: KeyCodes, sides: list[_TableSide]
) -> list[_JoinedRows]:
    """The last update of each key, in the order of the rows that caused them. The sides keep what has changed."""
    groups = Groups.of(codes.codes)
    last: dict[int, _JoinedRows] = {}
    ports, present = rows.ports.to_pylist(), [side.present.tolist() for side in sides]
    times, positions = rows.timestamps.to_numpy().tolist(), groups.places.tolist()
    numbers = codes.codes[groups.last].tolist()
    for number, start, end in zip(numbers, groups.starts.tolist(), groups.ends.tolist(), strict=True):
        held = [side.entry_of(number) for side in sides]
        for position in positions[start:end]:
            port, when = ports[position], times[position]
            own_before, opposite = held[port], held[1 - port]
            is_there = present[port][position]
            held[port] = (len(codes.keys) + position, when) if is_there else None
            sides[port].keep(number, held[port])
            needs_opposite = processor.needs_left if port else processor.needs_right
            if opposite is None and (needs_opposite or (not is_there and own_before is None)):
                continue
            said = last.get(number)
            before = [own_before, opposite] if port == 0 else [opposite, own_before]
            last[number] = _JoinedRows(
                position,
                [_place_of(entry) for entry in held],
                [_place_of(entry) for entry in before] if said is None else said.before,
                when if opposite is None else max(when, opposite[1]),
            )
    return sorted(last.values(), key=lambda update: update.position)


_Entry: TypeAlias = tuple[int, int]
"""The place of a table's row, and its timestamp."""


class _JoinedRows(NamedTuple):
    """An update of a join: the place of the row that caused it; what it joins, and what was before, left and right."""

    position: int
    values: list[int | None]
    before: list[int | None]
    timestamp: int


def _place_of(entry: _Entry | None) -> int | None:
    return None if entry is None else entry[0]


@dataclass(slots=True)
class _TableSide:
    """One of two tables: `rows` has what the state knows of each key, by its number, and behind that the batch's rows."""

    name: str
    rows: pa.Array
    times: list[int | None]
    present: Any
    kept: dict[int, _Entry | None]

    @classmethod
    def of(cls, name: str, payload: pa.Array, codes: KeyCodes, state: CachedState) -> _TableSide:
        entries = [state.get(name, key) for key in codes.keys]
        known = pa.array([None if entry is None else entry[0] for entry in entries], payload.type)
        times = [None if entry is None else entry[1] for entry in entries]
        present = payload.is_valid().to_numpy(zero_copy_only=False)
        return cls(name, pa.concat_arrays([known, payload]), times, present, {})

    def entry_of(self, number: int) -> _Entry | None:
        when = self.times[number]
        return None if when is None else (number, when)

    def keep(self, number: int, entry: _Entry | None) -> None:
        self.kept[number] = entry

    def write(self, codes: KeyCodes, state: CachedState) -> None:
        """What the batch has changed."""
        places = [_place_of(entry) for entry in self.kept.values()]
        payloads = values_of(self.rows.take(pa.array(places, pa.int64())))
        for (number, entry), payload in zip(self.kept.items(), payloads, strict=True):
            state.put(self.name, codes.keys[number], None if entry is None else (payload, entry[1]))
