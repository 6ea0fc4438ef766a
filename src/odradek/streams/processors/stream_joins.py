"""Stream-stream joins: two streams, within a time (JoinWindows)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any, Final

from odradek.streams.plan.operators import JoinKind
from odradek.streams.processors.calendar import Calendar
from odradek.streams.processors.ports import Fields, InputRow, TaskState, UpdateRow

_SEEN: Final = "seen"
_SIDES: Final[tuple[Fields, Fields]] = ({"side": 0}, {"side": 1})


def _time_of(record: tuple[int, object]) -> int:
    return record[0]


class StreamStreamProcessor:
    """Joins two streams by key and time; they come in on ports 0 and 1. Records of one key match if the right one is at most
    `before_ms` older and `after_ms` newer.

    Output: left, right. A record without a match is emitted alone, where the kind of join requires that, when stream time
    has passed all that could match it and the grace. Records are kept in the state, by time, for as long as the window and
    the grace."""

    entries: tuple[str, ...] = ("kept", "waiting")

    def __init__(self, kind: JoinKind, *, before_ms: int, after_ms: int, grace_ms: int) -> None:
        self._alone = {"inner": (False, False), "left": (True, False), "outer": (True, True)}[kind]
        self._reach = ((before_ms, after_ms), (after_ms, before_ms))
        self._grace_ms = grace_ms
        self._retention_ms = before_ms + after_ms + grace_ms

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        alone = self._alone[row.port]
        if row.key is None:
            if alone and row.payload is not None:
                yield self._joined(row.key, row.port, row.payload, None, row.timestamp, row)
            return
        if row.payload is None:
            return
        if any(self._alone) and row.timestamp == state.stream_time:
            yield from self._unmatched(row, state)
        other = 1 - row.port
        before, after = self._reach[row.port]
        first = max(
            0, row.timestamp - before, (state.get(_SEEN, _SIDES[other]) or 0) - self._retention_ms + 1
        )
        last = max(0, row.timestamp + after)
        buffers: tuple[list[Any], list[Any]] = state.get("kept", row.key) or ([], [])
        begin = bisect_left(buffers[other], first, key=_time_of)
        matches = buffers[other][begin : bisect_right(buffers[other], last, begin, key=_time_of)]
        waiting = (state.get("waiting", row.key) or {}) if any(self._alone) else {}
        for timestamp, value in matches:
            waiting.pop((timestamp, other), None)
            yield self._joined(row.key, row.port, row.payload, value, max(timestamp, row.timestamp), row)
        if not matches and alone:
            if last < state.stream_time:
                yield self._joined(row.key, row.port, row.payload, None, row.timestamp, row)
            else:
                waiting.setdefault((row.timestamp, row.port), []).append(row.payload)
                Calendar(state, "unmatched").note(row.timestamp + after + self._grace_ms, row.key)
        if any(self._alone):
            state.put("waiting", row.key, waiting or None)
        self._keep(row, buffers, state)

    def time_passed(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        """Emits records that nothing can match any more."""
        if any(self._alone):
            yield from self._unmatched(row, state)

    def _keep(self, row: InputRow, buffers: tuple[list[Any], list[Any]], state: TaskState) -> None:
        assert row.key is not None
        seen = max(row.timestamp, state.get(_SEEN, _SIDES[row.port]) or 0)
        state.put(_SEEN, _SIDES[row.port], seen)
        insort(buffers[row.port], (row.timestamp, row.payload), key=_time_of)
        state.put("kept", row.key, buffers)
        calendar = Calendar(state, "expiry")
        calendar.note(row.timestamp + self._retention_ms, row.key)
        for _, key in calendar.due(state.stream_time, ("kept",)):
            self._forget(key, state, calendar)

    def _forget(self, key: Fields, state: TaskState, calendar: Calendar) -> None:
        """Each side has its own time, as the stores of Kafka Streams have: the slower one may still need what the faster
        has passed.
        """
        buffers = state.get("kept", key)
        if buffers is None:
            return
        for side in (0, 1):
            expired = (state.get(_SEEN, _SIDES[side]) or 0) - self._retention_ms
            del buffers[side][: bisect_right(buffers[side], expired, key=_time_of)]
        if any(buffers):
            calendar.note(state.stream_time + self._retention_ms, key)
        state.put("kept", key, buffers if any(buffers) else None)

    def _unmatched(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        for time, key in Calendar(state, "unmatched").due(state.stream_time, ("waiting",)):
            waiting = state.get("waiting", key) or {}
            for timestamp, side in sorted(waiting):
                if timestamp + self._reach[side][1] + self._grace_ms <= time:
                    for value in waiting.pop((timestamp, side)):
                        yield self._joined(key, side, value, None, timestamp, row)
            state.put("waiting", key, waiting or None)

    @staticmethod
    def _joined(
        key: Fields | None, side: int, own: Fields, other: Fields | None, timestamp: int, row: InputRow
    ) -> UpdateRow:
        return UpdateRow(key, (own, other) if side == 0 else (other, own), timestamp, row.headers)
