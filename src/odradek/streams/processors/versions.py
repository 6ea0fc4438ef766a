"""Versioned tables: a key's value is valid from its timestamp until the next value's, in whatever order they arrive.

A task keeps the versions in its state store. As in Kafka Streams (KIP-889, KIP-914, KIP-923): history is kept for a time; a
record that is older changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Final

from odradek.streams.plan.operators import JoinKind
from odradek.streams.processors.calendar import Calendar
from odradek.streams.processors.ports import Fields, InputRow, RowHeaders, TaskState, UpdateRow

_STREAM: Final[Fields] = {"side": "stream"}
_TABLE: Final[Fields] = {"side": "table"}


class VersionedProcessor:
    """A table from its changelog, by time and not by order. Output: value, the latest value before it, whether it is the latest
    now. A record that is older than the history is left out.
    """

    entries: tuple[str, ...] = ("latest",)

    def __init__(self, history_ms: int) -> None:
        self._history_ms = history_ms

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        oldest = state.stream_time - self._history_ms
        calendar = Calendar(state)
        if row.key is not None and row.timestamp >= oldest:
            latest = state.get("latest", row.key)
            is_latest = latest is None or row.timestamp >= latest[0]
            if is_latest:
                state.put("latest", row.key, (row.timestamp, row.payload))
                if row.payload is None:
                    calendar.note(row.timestamp + self._history_ms, row.key)
            before = None if latest is None else latest[1]
            yield UpdateRow(row.key, (row.payload, before, is_latest), row.timestamp, row.headers)
        for _, key in calendar.due(state.stream_time, self.entries):
            latest = state.get("latest", key)
            if latest is not None and latest[1] is None and latest[0] < oldest:
                state.put("latest", key, None)


class VersionedJoinProcessor:
    """Joins each record of a stream with the version of a table's row at the record's timestamp. Port 0 is the stream, port
    1 the table, as in StreamTableProcessor.

    `grace_ms`: records wait so long, in the stream's time, for versions that come late. None: they do not wait."""

    entries: tuple[str, ...] = ("versions", "waiting")

    def __init__(self, kind: JoinKind, *, history_ms: int, grace_ms: int | None) -> None:
        self._left = kind == "left"
        self._history_ms = history_ms
        self._grace_ms = grace_ms

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        if row.port == 1:
            if row.key is not None:
                self._put(row.key, row, state)
            return
        if row.payload is None or row.payload["value"] is None or (row.key is None and not self._left):
            return
        seen = max(row.timestamp, state.get("seen", _STREAM) or 0)
        state.put("seen", _STREAM, seen)
        if self._grace_ms is None or row.key is None or row.timestamp < seen - self._grace_ms:
            yield from self._joined(row.key, row.payload, row.timestamp, row.headers, state)
        else:
            waiting = state.get("waiting", row.key) or []
            insort(waiting, (row.timestamp, row.payload, row.headers), key=lambda record: record[0])
            state.put("waiting", row.key, waiting)
            Calendar(state, "waiting").note(row.timestamp + self._grace_ms, row.key)
        if self._grace_ms is not None:
            yield from self._ready(seen, state)

    def time_passed(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        """Emits records whose time to wait is over, though no record of the stream came."""
        if self._grace_ms is not None:
            seen = max(row.timestamp, state.get("seen", _STREAM) or 0)
            state.put("seen", _STREAM, seen)
            yield from self._ready(seen, state)

    def _ready(self, seen: int, state: TaskState) -> Iterator[UpdateRow]:
        """Yields the records whose time to wait is over, by time."""
        assert self._grace_ms is not None
        ready: list[tuple[int, str, Fields, Fields, RowHeaders]] = []
        for _, key in Calendar(state, "waiting").due(seen + 1, self.entries):
            waiting = state.get("waiting", key) or []
            count = bisect_right(waiting, seen - self._grace_ms, key=lambda record: record[0])
            state.put("waiting", key, waiting[count:] or None)
            ready += [(record[0], repr(key), key, *record[1:]) for record in waiting[:count]]
        for timestamp, _, key, payload, headers in sorted(ready, key=lambda record: record[:2]):
            yield from self._joined(key, payload, timestamp, headers, state)

    def _joined(
        self, key: Fields | None, payload: Fields, timestamp: int, headers: RowHeaders, state: TaskState
    ) -> Iterator[UpdateRow]:
        entry = None if key is None else self._at(key, timestamp, state)
        if entry is not None or self._left:
            yield UpdateRow(payload["key"], (payload["value"], entry), timestamp, headers)

    def _at(self, key: Fields, timestamp: int, state: TaskState) -> object:
        """What was true then. Where that is not true any more, the history must reach back so far."""
        versions = state.get("versions", key) or []
        count = bisect_right(versions, timestamp, key=lambda version: version[0])
        if not count:
            return None
        forgotten = timestamp < (state.get("seen", _TABLE) or 0) - self._history_ms
        return None if count < len(versions) and forgotten else versions[count - 1][1]

    def _put(self, key: Fields, row: InputRow, state: TaskState) -> None:
        seen = max(row.timestamp, state.get("seen", _TABLE) or 0)
        state.put("seen", _TABLE, seen)
        versions = state.get("versions", key) or []
        index = bisect_left(versions, row.timestamp, key=lambda version: version[0])
        same = index < len(versions) and versions[index][0] == row.timestamp
        versions[index : index + same] = [(row.timestamp, row.payload)]
        state.put("versions", key, versions)
        calendar = Calendar(state, "history")
        calendar.note(row.timestamp + self._history_ms, key)
        for _, due in calendar.due(seen, ("versions",)):
            self._forget(due, seen - self._history_ms, state)

    @staticmethod
    def _forget(key: Fields, oldest: int, state: TaskState) -> None:
        """Versions that no record can find any more: the next one is true already at the oldest time that is kept."""
        versions = state.get("versions", key) or []
        count = bisect_right(versions, oldest, key=lambda version: version[0])
        retained = versions[max(0, count - 1) :]
        if len(retained) == 1 and retained[0][1] is None and retained[0][0] <= oldest:
            retained = []
        state.put("versions", key, retained or None)
