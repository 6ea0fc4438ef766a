"""Joins of streams and tables. A task keeps the state of both sides; a record is joined with earlier records only."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.streams.plan.operators import JoinKind
from odradek.streams.processors.ports import InputRow, TaskState, UpdateRow


class LatestProcessor:
    """A table from its changelog: the last value of each key, by order and not by time. Output: value, old value."""

    entries: tuple[str, ...] = ("value",)

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        if row.key is None:
            return
        before = state.get("value", row.key)
        state.put("value", row.key, row.payload)
        yield UpdateRow(row.key, (row.payload, before), row.timestamp, row.headers)


class StreamTableProcessor:
    """A stream-table join. Port 0 is the stream, port 1 the table.

    Keys are the table's; the payload of the stream has its own `key` and `value`. Output: the stream's key and value, and the
    table's value. The timestamp is the stream's.
    """

    entries: tuple[str, ...] = ("table",)

    def __init__(self, kind: JoinKind) -> None:
        self.is_left = kind == "left"

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        if row.port == 1:
            if row.key is not None:
                state.put("table", row.key, row.payload)
            return
        if row.payload is None or row.payload["value"] is None:
            return
        entry = None if row.key is None else state.get("table", row.key)
        if entry is not None or self.is_left:
            values = (row.payload["value"], entry)
            yield UpdateRow(row.payload["key"], values, row.timestamp, row.headers)


class TableTableProcessor:
    """A table-table join. Ports 0 and 1 are the tables.

    Output: left, right, old left, old right. The timestamp is the larger of both sides'.
    """

    entries: tuple[str, ...] = ("left", "right")

    def __init__(self, kind: JoinKind) -> None:
        self.needs_left = kind in ("inner", "left")
        self.needs_right = kind == "inner"

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        if row.key is None:
            return
        own, other = ("right", "left") if row.port else ("left", "right")
        before = state.get(own, row.key)
        opposite = state.get(other, row.key)
        state.put(own, row.key, None if row.payload is None else (row.payload, row.timestamp))
        needs_opposite = self.needs_left if row.port else self.needs_right
        if opposite is None and (needs_opposite or (row.payload is None and before is None)):
            return
        timestamp = row.timestamp if opposite is None else max(row.timestamp, opposite[1])
        old = None if before is None else before[0]
        value = None if opposite is None else opposite[0]
        values = (value, row.payload, value, old) if row.port else (row.payload, value, old, value)
        yield UpdateRow(row.key, values, timestamp, row.headers)
