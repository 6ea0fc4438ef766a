"""Joins of a windowed table with one that is not, by a part of the windowed key.

A window refers to one row of the other table for good. So it needs no message that it has left, as foreign keys do, and its
results are in order. Each window is an entry of its own: an update reads and writes that one, however many its key has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from odradek.streams.plan.operators import JoinKind
from odradek.streams.processors.calendar import Calendar
from odradek.streams.processors.ports import Fields, InputRow, TaskState, UpdateRow
from odradek.streams.processors.windows import END, START

_ROW: Final = "row"
_WINDOW: Final = "window"
_WINDOWS: Final = "windows"
_Listed: TypeAlias = dict[str, Fields]
"""The windowed keys of one key of the table."""


class WindowTableProcessor:
    """Joins a windowed table with one that is not windowed. Port 0 has rows of the windowed table, {"key": its key, "value":
    its row}; port 1 is the other table. The key is the other table's.

    Output: window, row; both null for a delete. The key is the windowed one. As in a foreign-key join, an inner join emits
    the delete of a window that had no row, too. A delete of a window that does not exist emits nothing.

    `held_ms`: a window is forgotten, without output, when stream time is so long after its end. An update that comes later
    is joined with the present row, and not kept."""

    entries: tuple[str, ...] = (_ROW, _WINDOWS)

    def __init__(self, kind: JoinKind, *, held_ms: int | None = None) -> None:
        self._left = kind == "left"
        self._held_ms = held_ms

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        self._forget(state)
        yield from self._table(row, state) if row.port else self._window(row, state)

    def _window(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        assert row.payload is not None
        window, value = row.payload["key"], row.payload["value"]
        if row.key is None:
            if self._left:
                yield UpdateRow(window, (value, None), row.timestamp, row.headers)
            return
        if self._is_held(window, state):
            was_there = state.get(_WINDOW, window) is not None
            if value is None and not was_there:
                return
            state.put(_WINDOW, window, value)
            if was_there is (value is None):
                self._list(row.key, window, state, is_there=value is not None)
        there = state.get(_ROW, row.key)
        if value is not None and there is None and not self._left:
            return
        timestamp = row.timestamp
        if there is not None and not (self._left and value is None):  # a left join deletes without asking
            timestamp = max(timestamp, there[1])
        of_table = None if value is None or there is None else there[0]
        yield UpdateRow(window, (value, of_table), timestamp, row.headers)

    def _table(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        if row.key is None:
            return
        state.put(_ROW, row.key, None if row.payload is None else (row.payload, row.timestamp))
        listed: _Listed = state.get(_WINDOWS, row.key) or {}
        for _, window in sorted(listed.items(), key=_by_time):
            is_there = row.payload is not None or self._left
            value = state.get(_WINDOW, window) if is_there else None
            yield UpdateRow(window, (value, row.payload), row.timestamp, row.headers)

    def _list(self, key: Fields, window: Fields, state: TaskState, *, is_there: bool) -> None:
        """Adds the window to its key's windows, or removes it."""
        listed: _Listed = state.get(_WINDOWS, key) or {}
        window_text = repr(tuple(window.values()))
        if is_there:
            listed[window_text] = window
            if self._held_ms is not None:
                Calendar(state, "expiry").note(window[END] + self._held_ms, key)
        else:
            listed.pop(window_text, None)
        state.put(_WINDOWS, key, listed or None)

    def _forget(self, state: TaskState) -> None:
        if self._held_ms is None:
            return
        for _, key in Calendar(state, "expiry").due(state.stream_time, (_WINDOWS,)):
            listed: _Listed = state.get(_WINDOWS, key) or {}
            held = {
                window_text: window for window_text, window in listed.items() if self._is_held(window, state)
            }
            for window_text, window in listed.items():
                if window_text not in held:
                    state.put(_WINDOW, window, None)
            state.put(_WINDOWS, key, held or None)

    def _is_held(self, window: Fields, state: TaskState) -> bool:
        return self._held_ms is None or window[END] + self._held_ms >= state.stream_time


def _by_time(listed: tuple[str, Fields]) -> tuple[int, int, str]:
    """Returns a sort key that orders windows as Kafka Streams orders the bytes of windowed keys."""
    window_text, window = listed
    return window.get(START, 0), window.get(END, 0), window_text
