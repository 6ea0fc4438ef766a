"""Processors of the user's: keyed state, and timers in stream time.

class Alarm(Processor):
    def process(self, record, state, timers):
        state["n"] = state.get("n", 0) + 1
        timers.at(record.timestamp + 60_000)
        if state["n"] > 3:
            yield {"n": state["n"]}

    def on_timer(self, key, time, state, timers):
        state.clear()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any

from odradek.model.errors import ConfigError
from odradek.streams.processors.calendar import Calendar
from odradek.streams.processors.ports import Fields, InputRow, TaskState, UpdateRow
from odradek.streams.records import StreamRecord, plain


class Timers:
    """Of one key. `now` is stream time: the largest timestamp that the task has seen."""

    def __init__(self, now: int, due: set[int]) -> None:
        self.now = now
        self._due = due

    def at(self, time: int) -> None:
        """Call `on_timer` when stream time has come to `time` (milliseconds). A time that is set twice comes once."""
        self._due.add(time)

    def cancel(self, time: int) -> None:
        """Forget a time; it need not be set."""
        self._due.discard(time)


class Processor:
    """What happens with each record of a key. `state` is a dict of the key's own, kept from record to record: plain
    values, lists and dicts. Values that are given back are records with the key and, in `on_timer`, the timer's time; give
    a `StreamRecord` for others.
    """

    time_to_live_ms: int | None = None
    """State of a key that got no record for so long, in stream time, is dropped. None: it stays."""

    def process(self, record: StreamRecord, state: dict[str, Any], timers: Timers) -> Iterable[Any] | None:
        """A record; its key is not null."""
        raise NotImplementedError(f"{type(self).__name__} has no method process(record, state, timers)")

    def on_timer(self, key: Any, time: int, state: dict[str, Any], timers: Timers) -> Iterable[Any] | None:
        """A time that was set has come."""
        raise NotImplementedError(
            f"{type(self).__name__} sets timers but has no method on_timer(key, time, state, timers)"
        )


class CustomProcessor:
    """Runs a Processor. Payload: the value, or null. Output: the value."""

    def __init__(
        self, user: Processor, *, bare_key: str | None, bare_value: str | None, bare_result: str | None
    ) -> None:
        if type(user).process is Processor.process:
            raise ConfigError(f"{type(user).__name__} needs a method process(record, state, timers)")
        self._user = user
        self._bare_key = bare_key
        self._bare_value = bare_value
        self._bare_result = bare_result

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        key = row.key
        if key is not None:
            record = StreamRecord(
                key=plain(key, self._bare_key),
                value=plain(row.payload, self._bare_value),
                timestamp=row.timestamp,
                headers=tuple((header["key"], header["value"]) for header in row.headers or ()),
            )
            yield from self._visit(key, row, state, record)
        for _, due in Calendar(state).due(state.stream_time + 1):
            yield from self._visit(due, row, state, None)

    def _visit(
        self, key: Fields, row: InputRow, state: TaskState, record: StreamRecord | None
    ) -> Iterator[UpdateRow]:
        kept = state.get("custom", key) or {"state": {}, "timers": [], "touched": row.timestamp}
        own: dict[str, Any] = kept["state"]
        times = set(kept["timers"])
        timers = Timers(state.stream_time, times)
        touched = kept["touched"]
        if record is not None:
            touched = max(touched, row.timestamp)
            for made in self._user.process(record, own, timers) or ():
                yield self._said(key, made, row.timestamp, row.headers)
        while ready := [time for time in times if time <= state.stream_time]:
            time = min(ready)
            times.discard(time)
            for made in self._user.on_timer(plain(key, self._bare_key), time, own, timers) or ():
                yield self._said(key, made, time, None)
        life = self._user.time_to_live_ms
        if life is not None and touched + life <= state.stream_time:
            own, times = {}, set()
        calendar = Calendar(state)
        for time in times:
            calendar.note(time, key)
        if own and life is not None:
            calendar.note(touched + life, key)
        empty = not own and not times
        state.put(
            "custom", key, None if empty else {"state": own, "timers": sorted(times), "touched": touched}
        )

    def _said(self, key: Fields, made: Any, timestamp: int, headers: Any) -> UpdateRow:
        if not isinstance(made, StreamRecord):
            return UpdateRow(key, (self._fields(made, self._bare_result),), timestamp, headers)
        given = [{"key": name, "value": value} for name, value in made.headers]
        return UpdateRow(
            self._fields(made.key, self._bare_key),
            (self._fields(made.value, self._bare_result),),
            made.timestamp,
            given or None,
        )

    @staticmethod
    def _fields(value: Any, bare: str | None) -> Any:
        kept = deepcopy(value)  # what is said may be part of the state, which changes
        return kept if bare is None or value is None else {bare: kept}
