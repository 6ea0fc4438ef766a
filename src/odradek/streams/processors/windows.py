"""Windowed aggregates, as Kafka Streams keeps them: a window takes records until stream time is past its end and its grace.

For each key there is one state: its open windows. A window that is closed leaves the state; where final results are asked
for, that is
when it is said. Windows close when stream time moves on, whichever key moved it: the task keeps a calendar of when which
key has
something to close.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

from odradek.streams.plan.windows import SessionWindows, SlidingWindows, TimeWindows, WindowKind
from odradek.streams.processors.aggregate import Fold
from odradek.streams.processors.calendar import Calendar
from odradek.streams.processors.ports import Fields, InputRow, TaskState, UpdateRow

START: Final = "window_start"
END: Final = "window_end"


class OpenWindows(Protocol):
    """The windows of one key: `{(start, end): (aggregate, timestamp)}`."""

    def add(
        self,
        key: Fields,
        values: Fields,
        timestamp: int,
        windows: dict[tuple[int, int], Any],
        stream_time: int,
    ) -> Iterator[tuple[tuple[int, int], Any, Any]]:
        """Change the windows; say each that changed, with what it held before. None: there was, or is, no such window."""
        ...

    def open_until(self, window: tuple[int, int]) -> int:
        """The last stream time at which a window is open: after it, its result is final."""
        ...

    def kept_until(self, window: tuple[int, int]) -> int:
        """The last stream time at which other records may need what it holds."""
        ...


class WindowProcessor:
    """Payload: {"new": values}. Output: value, old value; the key has the window's start and end (milliseconds) added.

    `final`: each window is said once, when it is closed. Otherwise each change of a window is an update.
    """

    def __init__(self, kind: OpenWindows, fold: Fold, *, final: bool) -> None:
        self._kind = kind
        self._fold = fold
        self._final = final

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        key, payload = row.key, row.payload
        if key is not None and payload is not None and payload["new"] is not None:
            yield from self._add(key, payload["new"], row, state)
        for time, due in Calendar(state).due(state.stream_time):
            yield from self._close(due, time, row, state)

    def _add(self, key: Fields, values: Fields, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        windows = state.get("windows", key) or {}
        unsaid = state.get("unsaid", key) or {}
        calendar = Calendar(state)
        for window, after, before in self._kind.add(key, values, row.timestamp, windows, state.stream_time):
            if after is not None:
                calendar.note(self._kind.kept_until(window), key)
            if not self._final:
                yield self._update(key, window, after, before, row)
            elif after is None:
                unsaid.pop(window, None)
            else:
                unsaid[window] = True
                calendar.note(self._kind.open_until(window), key)
        state.put("windows", key, windows or None)
        if self._final:
            state.put("unsaid", key, unsaid or None)

    def _close(self, key: Fields, time: int, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        windows = state.get("windows", key) or {}
        if self._final:
            unsaid = state.get("unsaid", key) or {}
            for window in sorted(unsaid, key=lambda window: (window[1], window[0])):
                if self._kind.open_until(window) <= time:
                    del unsaid[window]
                    if self._fold.result(windows[window][0]) is not None:
                        yield self._update(key, window, windows[window], None, row)
            state.put("unsaid", key, unsaid or None)
        for window in [window for window in windows if self._kind.kept_until(window) <= time]:
            del windows[window]
        state.put("windows", key, windows or None)

    def _update(
        self, key: Fields, window: tuple[int, int], after: Any, before: Any, row: InputRow
    ) -> UpdateRow:
        now = None if after is None else self._fold.result(after[0])
        was = None if before is None else self._fold.result(before[0])
        timestamp = (before if after is None else after)[1]
        return UpdateRow({**key, START: window[0], END: window[1]}, (now, was), timestamp, row.headers)


class FixedWindows:
    """Tumbling and hopping windows. A record is in all whose start is not after it and whose end is."""

    def __init__(self, kind: TimeWindows, fold: Fold) -> None:
        self._size_ms, self._every_ms, self._grace_ms = kind.size_ms, kind.every_ms, kind.grace_ms
        self._fold = fold

    def add(
        self,
        key: Fields,
        values: Fields,
        timestamp: int,
        windows: dict[tuple[int, int], Any],
        stream_time: int,
    ) -> Iterator[tuple[tuple[int, int], Any, Any]]:
        start = max(0, timestamp - self._size_ms + self._every_ms) // self._every_ms * self._every_ms
        while start <= timestamp:
            window = (start, start + self._size_ms)
            if window[1] + self._grace_ms > stream_time:
                before = windows.get(window)
                aggregate = self._fold.add(key, None if before is None else _copied(before[0]), values)
                after = (aggregate, timestamp if before is None else max(before[1], timestamp))
                windows[window] = after
                yield window, after, before
            start += self._every_ms

    def open_until(self, window: tuple[int, int]) -> int:
        return window[1] + self._grace_ms - 1

    kept_until = open_until


class Sessions:
    """A record joins the sessions that are at most a gap away, and makes them one. Both ends of a session are records."""

    def __init__(self, kind: SessionWindows, fold: Fold) -> None:
        self._gap_ms, self._grace_ms = kind.gap_ms, kind.grace_ms
        self._fold = fold

    def add(
        self,
        key: Fields,
        values: Fields,
        timestamp: int,
        windows: dict[tuple[int, int], Any],
        stream_time: int,
    ) -> Iterator[tuple[tuple[int, int], Any, Any]]:
        near = sorted(
            (
                window
                for window in windows
                if window[1] >= timestamp - self._gap_ms and window[0] <= timestamp + self._gap_ms
            ),
            key=lambda window: (window[1], window[0]),
        )
        merged = (
            min([timestamp, *(window[0] for window in near)]),
            max([timestamp, *(window[1] for window in near)]),
        )
        if merged[1] < stream_time - self._grace_ms - self._gap_ms:
            return
        aggregate = None
        for window in near:
            aggregate = self._fold.merge(key, aggregate, _copied(windows[window][0]))
        before = windows.get(merged) if merged == (timestamp, timestamp) else None
        for window in near:
            gone = windows.pop(window)
            if merged != (timestamp, timestamp):
                yield window, None, gone
        after = (self._fold.add(key, aggregate, values), merged[1])
        windows[merged] = after
        yield merged, after, before

    def open_until(self, window: tuple[int, int]) -> int:
        return window[1] + self._gap_ms + self._grace_ms - 1

    kept_until = open_until


class Sliding:
    """A window ends at each record and reaches back; another begins after each record that has later ones near it.

    Records before the size of a window share one that begins at 0, since time does. KIP-450.
    """

    def __init__(self, kind: SlidingWindows, fold: Fold) -> None:
        self._size_ms, self._grace_ms = kind.size_ms, kind.grace_ms
        self._fold = fold

    def add(
        self,
        key: Fields,
        values: Fields,
        timestamp: int,
        windows: dict[tuple[int, int], Any],
        stream_time: int,
    ) -> Iterator[tuple[tuple[int, int], Any, Any]]:
        close_time = stream_time - self._grace_ms
        if timestamp + 1 + self._size_ms <= close_time:
            return
        change = _SlidingChange(self._fold, key, values, timestamp, windows, self._size_ms, close_time)
        yield from change.early() if timestamp < self._size_ms else change.usual()

    def open_until(self, window: tuple[int, int]) -> int:
        return window[1] + self._grace_ms - 1

    def kept_until(self, window: tuple[int, int]) -> int:
        """A closed window still says what a new one begins with: a record that is not late reaches back by two sizes."""
        return window[1] + 2 * self._size_ms + self._grace_ms


class _SlidingChange:
    """One record and the windows of its key."""

    def __init__(
        self,
        fold: Fold,
        key: Fields,
        values: Fields,
        timestamp: int,
        windows: dict[tuple[int, int], Any],
        size_ms: int,
        close_time: int,
    ) -> None:
        self._fold, self._key, self._values = fold, key, values
        self._timestamp, self._windows, self._size_ms = timestamp, windows, size_ms
        self._close_time = close_time

    def usual(self) -> Iterator[tuple[tuple[int, int], Any, Any]]:
        when = self._timestamp
        before_left: Any = None
        before_right: Any = None
        previous: int | None = None
        left_exists = False
        lowest = max(0, when - 2 * self._size_ms)
        for window in sorted(
            (window for window in self._windows if lowest <= window[0] <= when), reverse=True
        ):
            held = self._windows[window]
            if window[1] > when:
                before_right = before_right or held
                yield from self._update(window, held)
            elif window[1] == when:
                left_exists = True
                yield from self._update(window, held)
                if held[1] >= when:
                    return
                previous = held[1]
            else:
                before_left, previous = held, held[1]
                break
        if previous is not None and previous + 1 + self._size_ms >= when:
            yield from self._new(previous + 1)
        if not left_exists:
            near = previous is not None and previous >= when - self._size_ms and before_left is not None
            begun = (_copied(before_left[0]), when) if near else None
            yield from self._update((when - self._size_ms, when), begun, new=True)
        yield from self._own_right(before_right)

    def early(self) -> Iterator[tuple[tuple[int, int], Any, Any]]:
        when = self._timestamp
        shared = (0, self._size_ms)
        combined = self._windows.get(shared)
        before_right: Any = None
        previous = combined[1] if combined is not None and combined[1] < when else None
        for window in sorted(window for window in self._windows if 0 < window[0] <= when):
            before_right = self._windows[window]
            yield from self._update(window, before_right)
        if before_right is None and combined is not None and combined[1] > when:
            before_right = combined
        yield from self._own_right(before_right)
        if previous is not None:
            yield from self._new(previous + 1)
        yield from self._update(shared, combined)

    def _new(self, start: int) -> Iterator[tuple[tuple[int, int], Any, Any]]:
        window = (start, start + self._size_ms)
        if window not in self._windows:
            yield from self._update(window, None)

    def _own_right(self, held: Any) -> Iterator[tuple[tuple[int, int], Any, Any]]:
        """What comes after the record, without it."""
        window = (self._timestamp + 1, self._timestamp + 1 + self._size_ms)
        if window not in self._windows and held is not None and held[1] > self._timestamp:
            self._windows[window] = after = (_copied(held[0]), held[1])
            yield window, after, None

    def _update(
        self, window: tuple[int, int], held: Any, *, new: bool = False
    ) -> Iterator[tuple[tuple[int, int], Any, Any]]:
        if window[1] < self._close_time:
            return
        aggregate = self._fold.add(self._key, None if held is None else _copied(held[0]), self._values)
        after = (aggregate, self._timestamp if held is None else max(held[1], self._timestamp))
        self._windows[window] = after
        yield window, after, None if new else held


def _copied(aggregate: Any) -> Any:
    """Folds may change an aggregate in place; what it was before is said as the old value."""
    if isinstance(aggregate, list):
        return [_copied(part) for part in aggregate]
    if isinstance(aggregate, dict):
        return {name: _copied(part) for name, part in aggregate.items()}
    return aggregate


def open_windows(kind: WindowKind, fold: Fold) -> OpenWindows:
    """The windows of this kind."""
    if isinstance(kind, TimeWindows):
        return FixedWindows(kind, fold)
    if isinstance(kind, SessionWindows):
        return Sessions(kind, fold)
    assert isinstance(kind, SlidingWindows)
    return Sliding(kind, fold)
