"""Suppression: a table's updates are held back for a time, and of each key only the latest one is emitted after it.

It does what Kafka Streams' KTableSuppressProcessor does. Time is stream time, and a key's time begins with its first update.
An update that replaces another one is emitted when that one would be. A buffer that is full emits the oldest updates early, or
ends the query.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from odradek.model.errors import OdradekError
from odradek.streams.plan.windows import TimeLimit
from odradek.streams.processors.calendar import Calendar
from odradek.streams.processors.ports import Fields, InputRow, RowHeaders, TaskState, UpdateRow
from odradek.streams.processors.state.state_bytes import state_bytes

_SIZE: Final = "suppressed size"
_TASK: Final[Fields] = {"of": "task"}


class SuppressBufferFullError(OdradekError):
    """More updates are held back than `time_limit` allows, and `when_full` is `fail`."""


_Held = tuple[int, object, object, int, RowHeaders, int]
"""An update that waits: due, value, old, timestamp, headers, size. State keeps plain values only, so it is no class.

`due` is the stream time at which the update is emitted, and `old` is what the first update of the key replaced.
"""


class SuppressProcessor:
    """The suppress buffer of a task. Payload: {"value": …, "old": …}. Output: value, old value."""

    entries: tuple[str, ...] = ("suppressed",)

    def __init__(self, limit: TimeLimit) -> None:
        self._limit = limit

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        if row.key is not None and row.payload is not None:
            self._hold(row.key, row.payload, row, state)
        yield from self.time_passed(row, state)
        yield from self._overflow(state)

    def time_passed(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        """Updates that have waited long enough."""
        for _, key in Calendar(state).due(state.stream_time + 1, self.entries):
            yield from self._release(key, state)

    def _hold(self, key: Fields, payload: Fields, row: InputRow, state: TaskState) -> None:
        before: _Held | None = state.get("suppressed", key)
        if before is None:
            due, old, size_before = row.timestamp + self._limit.wait_ms, payload["old"], 0
        else:
            due, _, old, _, _, size_before = before
        size = len(state_bytes((key, payload["value"], old, row.headers)))
        held: _Held = (due, payload["value"], old, row.timestamp, row.headers, size)
        state.put("suppressed", key, held)
        self._count(1 if before is None else 0, size - size_before, state)
        if before is None:
            Calendar(state).note(due, key)

    def _release(self, key: Fields, state: TaskState) -> Iterator[UpdateRow]:
        held: _Held | None = state.get("suppressed", key)
        if held is not None:
            _, value, old, timestamp, headers, size = held
            state.put("suppressed", key, None)
            self._count(-1, -size, state)
            yield UpdateRow(key, (value, old), timestamp, headers)

    def _overflow(self, state: TaskState) -> Iterator[UpdateRow]:
        """Yields the oldest updates, until the rest fits."""
        while self._is_full(state):
            if self._limit.when_full == "fail":
                count, size = state.get(_SIZE, _TASK)
                raise SuppressBufferFullError(
                    f"suppress holds back {count} updates of {size} bytes, and its time_limit allows"
                    f" max_records={self._limit.records_max}, max_bytes={self._limit.bytes_max}:"
                    " allow more, or write when_full='emit'"
                )
            first = Calendar(state).first()
            assert first is not None
            due = [key for _, key in Calendar(state).due(first + 1)]
            for key in sorted(due, key=lambda key: repr(tuple(key.values()))):
                if self._is_full(state):
                    yield from self._release(key, state)
                else:
                    Calendar(state).note(first, key)

    def _is_full(self, state: TaskState) -> bool:
        count, size = state.get(_SIZE, _TASK) or (0, 0)
        limit = self._limit
        too_many = limit.records_max is not None and count > limit.records_max
        return too_many or (limit.bytes_max is not None and size > limit.bytes_max)

    @staticmethod
    def _count(records: int, size: int, state: TaskState) -> None:
        count, bytes_held = state.get(_SIZE, _TASK) or (0, 0)
        state.put(_SIZE, _TASK, (count + records, bytes_held + size) if count + records else None)
