"""Sliding windows: one for every set of records that are close together."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.streams.plan.user_code import Fold
from odradek.streams.plan.windows import SlidingWindows
from odradek.streams.processors.open_windows import Arrival, Held, Window, WindowChange


class Sliding:
    """A window ends at each record and reaches back; another begins after each record that has later ones near it.

    Records before the size of a window share one that begins at 0, since time does. KIP-450.
    """

    def __init__(self, kind: SlidingWindows, fold: Fold) -> None:
        self._size_ms, self._grace_ms = kind.size_ms, kind.grace_ms
        self._fold = fold

    def add(self, arrival: Arrival) -> Iterator[WindowChange]:
        close_time = arrival.stream_time - self._grace_ms
        if arrival.timestamp + 1 + self._size_ms <= close_time:
            return
        arrival = arrival._replace(needs_old=True)  # windows begin with what others held
        change = _SlidingChange(self._fold, arrival, self._size_ms, close_time)
        yield from change.early() if arrival.timestamp < self._size_ms else change.usual()

    def open_until(self, window: Window) -> int:
        """A record may be at the end of a window: it is final a millisecond later than one that ends before its end."""
        return window[1] + self._grace_ms

    def retained_until(self, window: Window) -> int:
        """A closed window still determines what a new one begins with: a record that is not late reaches back by two sizes."""
        return window[1] + 2 * self._size_ms + self._grace_ms


class _SlidingChange:
    """One record and the windows of its key."""

    def __init__(self, fold: Fold, arrival: Arrival, size_ms: int, close_time: int) -> None:
        self._fold, self._arrival = fold, arrival
        self._timestamp, self._windows = arrival.timestamp, arrival.windows
        self._size_ms, self._close_time = size_ms, close_time

    def usual(self) -> Iterator[WindowChange]:
        when = self._timestamp
        before_left: Held | None = None
        before_right: Held | None = None
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
            begun = (self._fold.copied(before_left[0]), when) if near and before_left is not None else None
            yield from self._update((when - self._size_ms, when), begun, new=True)
        yield from self._own_right(before_right)

    def early(self) -> Iterator[WindowChange]:
        when = self._timestamp
        shared = (0, self._size_ms)
        combined = self._windows.get(shared)
        before_right: Held | None = None
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

    def _new(self, start: int) -> Iterator[WindowChange]:
        window = (start, start + self._size_ms)
        if window not in self._windows:
            yield from self._update(window, None)

    def _own_right(self, held: Held | None) -> Iterator[WindowChange]:
        """Opens the window right after the record, which contains later records without it."""
        window = (self._timestamp + 1, self._timestamp + 1 + self._size_ms)
        if window not in self._windows and held is not None and held[1] > self._timestamp:
            after = (self._fold.copied(held[0]), held[1])
            self._arrival.keep(window, after)
            yield window, after, None

    def _update(self, window: Window, held: Held | None, *, new: bool = False) -> Iterator[WindowChange]:
        if window[1] < self._close_time:
            return
        after = self._arrival.add_to(self._fold, held)
        self._arrival.keep(window, after)
        yield window, after, None if new else held
