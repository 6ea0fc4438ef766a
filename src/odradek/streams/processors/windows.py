"""Windowed aggregates, as Kafka Streams keeps them: a window takes records until stream time is past its end and its grace.

For each key there is one state: its open windows. Window expiry: a window that is closed leaves the state, and a late record,
whose windows are all closed, is dropped. With final results (ksqlDB's EMIT FINAL) a window is emitted when it closes. Windows
close when stream time moves on, whichever key moved it: the task keeps a calendar of when which key has something to close.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from odradek.spark.rows.result_types import ResultType
from odradek.streams.plan.user_code import Fold
from odradek.streams.plan.windows import SessionWindows, SlidingWindows, TimeWindows, WindowKind
from odradek.streams.processors.calendar import Calendar
from odradek.streams.processors.open_windows import (
    Arrival,
    Held,
    OpenWindows,
    Window,
    WindowChange,
)
from odradek.streams.processors.ports import Fields, InputRow, RowHeaders, TaskState, UpdateRow
from odradek.streams.processors.sliding import Sliding

START: Final = "window_start"
END: Final = "window_end"
_TASK: Final[Fields] = {"of": "task"}
_IDLE_FROM: Final = "idle from"
_OPEN_UNTIL: Final = "open until"


class WindowProcessor:
    """Aggregates the values of each key by window. Payload: {"new": values}. Output: value, old value; the key has the
    window's start and end (milliseconds) added.

    `final`: each window is emitted once, when it is closed. Otherwise each change of a window is an update. `idle_ms`: a
    task that gets no record for so long, on the clock, closes all its windows. `results`: as in AggregateProcessor."""

    runs_user_code = True
    entries: tuple[str, ...] = ("windows", "unsaid")

    def __init__(
        self,
        kind: OpenWindows,
        fold: Fold,
        *,
        final: bool,
        idle_ms: int | None = None,
        results: ResultType | None = None,
    ) -> None:
        self.kind = kind
        self.fold = fold
        self.results = results
        self.is_final = final
        self._idle_ms = idle_ms
        self.has_wall_clock = idle_ms is not None

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        key, payload = row.key, row.payload
        if key is not None and payload is not None and payload["new"] is not None:
            yield from self._add(key, payload["new"], row, state)
        if self._idle_ms is not None:
            state.put(_IDLE_FROM, _TASK, state.wall_clock)
        yield from self.time_passed(row, state)

    def time_passed(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        """Windows that stream time has passed are closed."""
        for time, due in Calendar(state).due(state.stream_time, self.entries):
            yield from self._close(due, time, row.headers, state)

    def wall_clock_passed(self, state: TaskState) -> Iterator[UpdateRow]:
        """Moves stream time past all open windows: no record has come for the idle timeout."""
        idle_until = self.next_wall_clock(state)
        if idle_until is None or state.wall_clock < idle_until:
            return
        state.put(_IDLE_FROM, _TASK, None)
        state.stream_time = max(state.stream_time, (state.get(_OPEN_UNTIL, _TASK) or 0) + 1)
        for time, due in Calendar(state).due(state.stream_time, self.entries):
            yield from self._close(due, time, None, state)

    def next_wall_clock(self, state: TaskState) -> int | None:
        idle_from = state.get(_IDLE_FROM, _TASK)
        return None if idle_from is None or self._idle_ms is None else idle_from + self._idle_ms

    def _add(self, key: Fields, values: Fields, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        windows = _of_key("windows", key, state)
        unsaid = _of_key("unsaid", key, state)
        calendar = Calendar(state)
        needs_old = state.can_undo or not self.is_final
        for window, after, before in self.kind.add(
            Arrival(key, values, row.timestamp, windows, state.stream_time, needs_old)
        ):
            is_stored = after is not None and after[0] is not None
            if is_stored:
                calendar.note(self.kind.retained_until(window), key)
                if self._idle_ms is not None:
                    until = max(state.get(_OPEN_UNTIL, _TASK) or 0, self.kind.open_until(window))
                    state.put(_OPEN_UNTIL, _TASK, until)
            if not self.is_final:
                yield self._update(key, window, after, before, row.headers)
            elif not is_stored:
                unsaid.pop(window, None)
            else:
                self._result(after)  # what does not fit fails with this record, not with one that closes
                unsaid[window] = True
                calendar.note(self.kind.open_until(window), key)
        state.put("windows", key, windows or None)
        if self.is_final:
            state.put("unsaid", key, unsaid or None)

    def _close(self, key: Fields, time: int, headers: RowHeaders, state: TaskState) -> Iterator[UpdateRow]:
        windows = _of_key("windows", key, state)
        if self.is_final:
            unsaid = _of_key("unsaid", key, state)
            for window in sorted(unsaid, key=lambda window: (window[1], window[0])):
                if self.kind.open_until(window) <= time:
                    del unsaid[window]
                    emit = partial(self._final, key, window, windows[window], headers)
                    yield from state.fire(key, self.kind.open_until(window), emit)
            state.put("unsaid", key, unsaid or None)
        for window in [window for window in windows if self.kind.retained_until(window) <= time]:
            del windows[window]
        state.put("windows", key, windows or None)

    def _final(self, key: Fields, window: Window, held: Held, headers: RowHeaders) -> list[UpdateRow]:
        return [self._update(key, window, held, None, headers)]

    def _update(
        self, key: Fields, window: Window, after: Held | None, before: Held | None, headers: RowHeaders
    ) -> UpdateRow:
        now, was = self._result(after), None if before is None else self.fold.result(before[0])
        was = was if self.results is None else self.results.fitted_before(was)
        emitted = before if after is None else after
        assert emitted is not None
        timestamp = emitted[1]
        return UpdateRow({**key, START: window[0], END: window[1]}, (now, was), timestamp, headers)

    def _result(self, held: Held | None) -> Fields | None:
        fields = None if held is None else self.fold.result(held[0])
        return fields if self.results is None else self.results.fitted(fields)


def _of_key(name: str, key: Fields, state: TaskState) -> dict[Window, Any]:
    """Returns the open windows of a key, to change and to put back."""
    windows: dict[Window, Any] = state.get(name, key) or {}
    return dict(windows) if state.can_undo else windows


class FixedWindows:
    """Tumbling and hopping windows. A record is in all whose start is not after it and whose end is."""

    def __init__(self, kind: TimeWindows, fold: Fold) -> None:
        self.size_ms, self.every_ms, self.grace_ms = kind.size_ms, kind.every_ms, kind.grace_ms
        self._fold = fold

    def add(self, arrival: Arrival) -> Iterator[WindowChange]:
        first = max(0, arrival.timestamp - self.size_ms + self.every_ms) // self.every_ms * self.every_ms
        for start in range(first, arrival.timestamp + 1, self.every_ms):
            window = (start, start + self.size_ms)
            if window[1] + self.grace_ms > arrival.stream_time:
                before = arrival.windows.get(window)
                after = arrival.add_to(self._fold, before)
                arrival.keep(window, after)
                yield window, after, before

    def open_until(self, window: Window) -> int:
        return window[1] + self.grace_ms - 1

    retained_until = open_until


class Sessions:
    """The session windows of an aggregate. A record joins the sessions that are at most a gap away, and merges them into
    one.

    Both ends of a session are records."""

    def __init__(self, kind: SessionWindows, fold: Fold) -> None:
        self._gap_ms, self._grace_ms, self._retention_ms = kind.gap_ms, kind.grace_ms, kind.store_retention_ms
        self._fold = fold

    def add(self, arrival: Arrival) -> Iterator[WindowChange]:
        when, windows = arrival.timestamp, arrival.windows
        near = sorted(
            (
                window
                for window in windows
                if window[1] >= when - self._gap_ms and window[0] <= when + self._gap_ms
            ),
            key=lambda window: (window[1], window[0]),
        )
        merged = (
            min([when, *(window[0] for window in near)]),
            max([when, *(window[1] for window in near)]),
        )
        if merged[1] < arrival.stream_time - self._grace_ms - self._gap_ms:
            return
        aggregate = None
        for window in near:
            held = windows[window][0]
            held = self._fold.copied(held) if arrival.needs_old else held
            aggregate = self._fold.merge(arrival.key, aggregate, held)
        before = windows.get(merged) if merged == (when, when) else None
        for window in near:
            gone = windows.pop(window)
            if merged != (when, when):
                yield window, None, gone
        after = (self._fold.add(arrival.key, aggregate, arrival.values), merged[1])
        arrival.keep(merged, after)
        yield merged, after, before

    def open_until(self, window: Window) -> int:
        return window[1] + self._gap_ms + self._grace_ms - 1

    def retained_until(self, window: Window) -> int:
        """Returns the last stream time at which a record that is not late can join a closed session to another."""
        return window[1] + self._retention_ms - 1


def open_windows(kind: WindowKind, fold: Fold) -> OpenWindows:
    """Returns the windows of this kind."""
    if isinstance(kind, TimeWindows):
        return FixedWindows(kind, fold)
    if isinstance(kind, SessionWindows):
        return Sessions(kind, fold)
    assert isinstance(kind, SlidingWindows)
    return Sliding(kind, fold)
