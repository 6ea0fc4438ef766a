"""Two ways of Kafka Streams that ours leaves on purpose, rebuilt so that a difference is known to be theirs and nothing else.

Its store of sliding windows hides what it keeps for one step too short a time, and suppress says such a window while
records of its last millisecond still come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.streams.plan.windows import SlidingWindows
from odradek.streams.processors.aggregate import Fold
from odradek.streams.processors.open_windows import Arrival, OpenWindows, WindowChange
from odradek.streams.processors.ports import Fields, InputRow, KeyedProcessor, TaskState, UpdateRow
from odradek.streams.processors.sliding import Sliding
from odradek.streams.processors.windows import END, WindowProcessor, open_windows

_ALL: Fields = {"of": "all"}


class ForgetfulSliding(Sliding):
    """Only windows are seen that begin less than two sizes and the grace before the last one of the task began."""

    def __init__(self, kind: SlidingWindows, fold: Fold) -> None:
        super().__init__(kind, fold)
        self._retention_ms = 2 * kind.size_ms + kind.grace_ms
        self._last_start = -1

    def add(self, arrival: Arrival) -> Iterator[WindowChange]:
        first = self._last_start - self._retention_ms + 1
        seen = {window: held for window, held in arrival.windows.items() if window[0] >= first}
        for window, after, before in super().add(arrival._replace(windows=seen)):
            if after is not None:
                arrival.windows[window] = after
                self._last_start = max(self._last_start, window[0])
            yield window, after, before


class EarlySuppress:
    """Looks after each update, not after each record, for windows whose end and grace have come."""

    def __init__(self, windows: WindowProcessor, grace_ms: int) -> None:
        self._windows = windows
        self._grace_ms = grace_ms

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        for update in self._windows.process(row, state):
            assert update.key is not None
            unsaid: dict[str, Any] = state.get("suppressed", _ALL) or {}
            seen = max(state.get("suppress time", _ALL) or 0, update.timestamp)
            state.put("suppress time", _ALL, seen)
            unsaid[repr(update.key)] = update
            said: dict[str, Any] = state.get("said", _ALL) or {}
            ready = [name for name, kept in unsaid.items() if kept.key[END] + self._grace_ms <= seen]
            for name in sorted(ready, key=lambda name: unsaid[name].key[END]):
                kept = unsaid.pop(name)
                if kept.values[0] is not None:
                    yield kept._replace(values=(kept.values[0], said.get(name)))
                    said[name] = kept.values[0]
            state.put("suppressed", _ALL, unsaid or None)
            state.put("said", _ALL, said or None)


def kafkas_windows(kind: Any, fold: Fold, *, final: bool) -> KeyedProcessor:
    """In place of our processor of windows."""
    if not isinstance(kind, SlidingWindows):
        return WindowProcessor(open_windows(kind, fold), fold, final=final)
    windows: OpenWindows = ForgetfulSliding(kind, fold)
    changes = WindowProcessor(windows, fold, final=False)
    return EarlySuppress(changes, kind.grace_ms) if final else changes
