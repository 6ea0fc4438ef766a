"""Three ways of Kafka Streams that ours leaves on purpose, rebuilt so that a difference is known to be theirs and nothing else.

Its store of sliding windows hides what it keeps for one step too short a time, and suppress says such a window while
records of its last millisecond still come. Its versioned store forgets a delete that replaces a value of the same
timestamp, unless an older value ended there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.streams.oracle.direct import Ways

from odradek.streams.plan.user_code import Fold
from odradek.streams.plan.windows import SlidingWindows
from odradek.streams.processors.open_windows import Arrival, OpenWindows, WindowChange
from odradek.streams.processors.ports import Fields, InputRow, KeyedProcessor, TaskState, UpdateRow
from odradek.streams.processors.sliding import Sliding
from odradek.streams.processors.versions import VersionedJoinProcessor, VersionedProcessor
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
    """Returns the processor that takes the place of ours, with the windows as Kafka has them."""
    if not isinstance(kind, SlidingWindows):
        return WindowProcessor(open_windows(kind, fold), fold, final=final)
    windows: OpenWindows = ForgetfulSliding(kind, fold)
    changes = WindowProcessor(windows, fold, final=False)
    return EarlySuppress(changes, kind.grace_ms) if final else changes


class ForgetfulVersions(VersionedProcessor):
    """After such a delete the key is as it was before the value: its last delete is an older one, or it was never there."""

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        former = None if row.key is None else state.get("latest", row.key)
        yield from super().process(row, state)
        if row.key is None or state.get("latest", row.key) != (row.timestamp, row.payload):
            return
        replaces = former is not None and former[0] == row.timestamp and former[1] is not None
        if row.payload is not None and not replaces:
            was_there = former is not None and former[1] is not None
            state.put("before the value", row.key, ("a value",) if was_there else ("nothing", former))
        if row.payload is None and replaces:
            kind, *before = state.get("before the value", row.key)
            if kind == "nothing":
                state.put("latest", row.key, before[0])


class ForgetfulVersionedJoin(VersionedJoinProcessor):
    """The same in what the table of a join keeps."""

    def _put(self, key: Fields, row: InputRow, state: TaskState) -> None:
        versions = state.get("versions", key) or []
        replaces = bool(versions) and versions[-1][0] == row.timestamp and versions[-1][1] is not None
        super()._put(key, row, state)
        if row.payload is None and replaces and (len(versions) < 2 or versions[-2][1] is None):
            state.put("versions", key, versions[:-1] or None)


KAFKAS_WAYS = Ways(windows=kafkas_windows, versions=ForgetfulVersions, versioned_join=ForgetfulVersionedJoin)
