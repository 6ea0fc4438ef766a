"""Processors of the user's: keyed state, timers in stream time and in wall-clock time, several outputs.

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

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from odradek.model.errors import ConfigError
from odradek.model.public import public
from odradek.spark.rows.result_types import ResultType, headers_type, timestamp_type
from odradek.streams.plan.user_code import RecordProcessor
from odradek.streams.processors.calendar import Calendar
from odradek.streams.processors.keyed_state import KeyedState, own_value
from odradek.streams.processors.ports import Fields, InputRow, RowHeader, RowHeaders, TaskState, UpdateRow
from odradek.streams.processors.records import StreamRecord, plain

_WALL_CLOCK: Final = "wall clock"


@dataclass(frozen=True, slots=True)
class _Times:
    """The timers of a key on one clock, in order. `added`: those that this visit has set; the calendar has the others."""

    times: list[int]
    added: set[int] = field(default_factory=set)

    def add(self, time: int) -> None:
        index = bisect_left(self.times, time)
        if index == len(self.times) or self.times[index] != time:
            self.times.insert(index, time)
            self.added.add(time)

    def discard(self, time: int) -> None:
        index = bisect_left(self.times, time)
        if index < len(self.times) and self.times[index] == time:
            del self.times[index]
            self.added.discard(time)

    def due(self, now: int) -> Iterator[int]:
        """Times that have come, the earliest first. They are taken off; what is set meanwhile may come, too."""
        while self.times and self.times[0] <= now:
            time = self.times[0]
            self.discard(time)
            yield time

    def clear(self) -> None:
        self.times.clear()
        self.added.clear()

    def undone(self) -> Callable[[], None]:
        """Takes back what changes from now on."""
        times, added = list(self.times), set(self.added)

        def undo() -> None:
            self.clear()
            self.times.extend(times)
            self.added.update(added)

        return undo


@public("odradek.streams")
class Timers:
    """The timers of one key, in place of Kafka Streams' punctuation.

    `now` is stream time: the largest timestamp that the task has seen. `wall_clock` is the time, in milliseconds since 1970, at
    which Spark runs the batch.
    """

    def __init__(
        self, now: int, due: _Times | None, wall_clock: int, due_on_wall_clock: _Times | None
    ) -> None:
        self.now = now
        self.wall_clock = wall_clock
        self._due = due
        self._due_on_wall_clock = due_on_wall_clock

    def at(self, time: int, *, wall_clock: bool = False) -> None:
        """Calls `on_timer` when stream time has come to `time` (milliseconds), or `on_wall_clock_timer` when it is so late.

        A time that is set twice comes once.
        """
        whole = timestamp_type().fitted(time)
        if whole is None:
            raise ValueError("timers.at(None): a time is a number of milliseconds")
        self._times(wall_clock).add(whole)

    def cancel(self, time: int, *, wall_clock: bool = False) -> None:
        """Forgets a time; it need not be set."""
        self._times(wall_clock).discard(time)

    def _times(self, wall_clock: bool) -> _Times:
        due = self._due_on_wall_clock if wall_clock else self._due
        if due is None:
            call, method = (
                ("timers.at(…, wall_clock=True)", "on_wall_clock_timer")
                if wall_clock
                else ("timers.at(…)", "on_timer")
            )
            raise ConfigError(f"{call} needs a method {method}(key, time, state, timers) of the processor")
        return due


@public("odradek.streams")
@dataclass(frozen=True, slots=True)
class To:
    """A result for a side output, of a processor with several outputs: for the output `name`, a value or a StreamRecord."""

    name: str
    value: Any


@public("odradek.streams")
class Processor:
    """Handles each record of a key. Subclasses define `process`, and `on_timer` if they set timers.

    `state` is a dict of the key's own, kept from record to record: plain values, lists and dicts; `state.map(name)` and
    `state.list(name)` are for many entries. Returned values become records with the key and, from a timer, its time; return a
    `StreamRecord` for others, and `To(output, value)` where there are several outputs. State of a key that gets no record for
    `time_to_live_ms`, in stream time, is dropped; None keeps it.
    """

    time_to_live_ms: int | None = None

    def process(self, record: StreamRecord, state: KeyedState, timers: Timers) -> Iterable[Any] | None:
        """Handles a record; its key is not null. Returns what the processor emits."""
        raise NotImplementedError(f"{type(self).__name__} has no method process(record, state, timers)")

    def on_timer(self, key: Any, time: int, state: KeyedState, timers: Timers) -> Iterable[Any] | None:
        """Handles a timer whose time has come in stream time."""
        raise NotImplementedError(
            f"{type(self).__name__} sets timers but has no method on_timer(key, time, state, timers)"
        )

    def on_wall_clock_timer(
        self, key: Any, time: int, state: KeyedState, timers: Timers
    ) -> Iterable[Any] | None:
        """Handles a timer whose time has come on the clock, whether records come or not."""
        raise NotImplementedError(
            f"{type(self).__name__} sets timers on the clock but has no method"
            " on_wall_clock_timer(key, time, state, timers)"
        )


def has_wall_clock_timers(user: RecordProcessor) -> bool:
    """Tells whether a processor handles timers of the clock, which are due whether records come or not."""
    return type(user).on_wall_clock_timer is not Processor.on_wall_clock_timer


def _returned(returned: Any, method: str) -> Iterable[Any]:
    """Yields the values that a method gives back. TypeError for a single one, whose parts would be taken for values."""
    if returned is None:
        return ()
    if isinstance(returned, (str, bytes, Mapping, StreamRecord, To)) or not isinstance(returned, Iterable):
        raise TypeError(f"{method} gives back one {type(returned).__name__}: write yield, or return a list")
    return returned


class CustomProcessor:
    """Runs a Processor. Payload: the value, or null. `outputs`: the name of each output, and the name of its only column
    where it has one bare value. Output: the value; of several outputs, the name of one, and a column for each. `key_type` and
    `output_types`: what does not fit them fails.
    """

    runs_user_code = True
    entries: tuple[str, ...] = ("custom",)

    def __init__(
        self,
        user: RecordProcessor,
        *,
        bare_key: str | None,
        bare_value: str | None,
        outputs: Mapping[str, str | None],
        key_type: ResultType | None = None,
        output_types: Mapping[str, ResultType] | None = None,
    ) -> None:
        if type(user).process is Processor.process:
            raise ConfigError(f"{type(user).__name__} needs a method process(record, state, timers)")
        self._user = user
        self._bare_key = bare_key
        self._bare_value = bare_value
        self._outputs = dict(outputs)
        self._key_type = key_type
        self._output_types = dict(output_types or {})
        self._has_timers = type(user).on_timer is not Processor.on_timer
        self.has_wall_clock = has_wall_clock_timers(user)

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        key = row.key
        if key is not None:
            record = StreamRecord(
                key=plain(key, self._bare_key),
                value=plain(row.payload, self._bare_value),
                timestamp=row.timestamp,
                headers=tuple((header["key"], header["value"]) for header in row.headers or ()),
            )
            yield from self._visit(key, row.timestamp, row.headers, state, record)
        yield from self.time_passed(row, state)

    def time_passed(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        """Timers that stream time has come to."""
        for _, due in Calendar(state).due(state.stream_time + 1, self.entries):
            yield from self._visit(due, row.timestamp, row.headers, state, None)

    def wall_clock_passed(self, state: TaskState) -> Iterator[UpdateRow]:
        for _, due in Calendar(state, _WALL_CLOCK).due(state.wall_clock + 1, self.entries):
            yield from self._visit(due, state.stream_time, None, state, None)

    def next_wall_clock(self, state: TaskState) -> int | None:
        return Calendar(state, _WALL_CLOCK).first()

    def _visit(
        self, key: Fields, timestamp: int, headers: RowHeaders, state: TaskState, record: StreamRecord | None
    ) -> Iterator[UpdateRow]:
        stored = state.get("custom", key) or {
            "state": {},
            "collections": (),
            "timers": [],
            "wall clock": [],
            "touched": timestamp,
        }
        own = KeyedState(state, key, own_value(stored["state"], state), stored["collections"])
        times, wall_clock_times = (_Times(list(stored[name])) for name in ("timers", "wall clock"))
        timers = Timers(
            state.stream_time,
            times if self._has_timers else None,
            state.wall_clock,
            wall_clock_times if self.has_wall_clock else None,
        )
        touched = stored["touched"]
        if record is not None:
            touched = max(touched, timestamp)
            for output in _returned(self._user.process(record, own, timers), "process"):
                yield self._update(key, output, timestamp, headers)
        changing = (own, times, wall_clock_times)
        for due, now, call in (
            (times, state.stream_time, self._user.on_timer),
            (wall_clock_times, state.wall_clock, self._user.on_wall_clock_timer),
        ):
            for time in due.due(now):
                timer = partial(call, plain(key, self._bare_key), time, own, timers)
                yield from state.fire(key, time, partial(self._timer, key, time, timer, changing, state))
        life = self._user.time_to_live_ms
        if life is not None and touched + life <= state.stream_time:
            own.clear()
            times.clear()
            wall_clock_times.clear()
        self._keep(key, own, times, wall_clock_times, touched, state)

    def _keep(
        self,
        key: Fields,
        own: KeyedState,
        times: _Times,
        wall_clock_times: _Times,
        touched: int,
        state: TaskState,
    ) -> None:
        filled = own.filled()
        empty = not own and not filled
        for name, due in (("calendar", times), (_WALL_CLOCK, wall_clock_times)):
            for time in due.added:
                Calendar(state, name).note(time, key)
        if not empty and self._user.time_to_live_ms is not None:
            Calendar(state).note(touched + self._user.time_to_live_ms, key)
        if empty and not times.times and not wall_clock_times.times:
            state.put("custom", key, None)
            return
        stored = {
            "state": dict(own),
            "collections": filled,
            "timers": times.times,
            "wall clock": wall_clock_times.times,
            "touched": touched,
        }
        state.put("custom", key, stored)

    def _timer(
        self,
        key: Fields,
        time: int,
        timer: Callable[[], Iterable[Any] | None],
        changing: tuple[KeyedState | _Times, ...],
        state: TaskState,
    ) -> Iterator[UpdateRow]:
        """Runs a timer. A timer that fails is done, too: else it would fail again at each record of the task.

        What `changing` holds is this visit's own: it is taken back here. The task's state is taken back where timers fire.
        """
        undos = [changed.undone() for changed in changing] if state.can_undo else []
        try:
            for output in _returned(timer(), "a timer"):
                yield self._update(key, output, time, None)
        except Exception:
            for undo in undos:
                undo()
            raise

    def _update(self, key: Fields, output: Any, timestamp: int, headers: RowHeaders) -> UpdateRow:
        name = ""
        if "" not in self._outputs:
            if not isinstance(output, To) or output.name not in self._outputs:
                raise ConfigError(
                    f"{type(self._user).__name__} has several outputs: it gives back To(name, value) with one of the names"
                    f" {', '.join(self._outputs)}, not {output!r}"
                )
            name, output = output.name, output.value
        if isinstance(output, StreamRecord):
            own_headers = [RowHeader(key=header, value=value) for header, value in output.headers]
            key, timestamp, headers = (
                self._fields(output.key, self._bare_key),
                output.timestamp,
                own_headers or None,
            )
            output = output.value
            if self._key_type is not None:
                key = self._key_type.fitted(key)
            if timestamp is None:
                raise ValueError("the timestamp of a StreamRecord that was given back is None")
            timestamp = timestamp_type().fitted(timestamp)
            headers = headers_type().fitted(headers)
        value = self._fields(output, self._outputs[name])
        if name in self._output_types:
            value = self._output_types[name].fitted(value)
        if not name:
            return UpdateRow(key, (value,), timestamp, headers)
        values = (value if output == name else None for output in self._outputs)
        return UpdateRow(key, (name, *values), timestamp, headers)

    @staticmethod
    def _fields(value: Any, bare: str | None) -> Any:
        copied = deepcopy(value)  # what is emitted may be part of the state, which changes
        return copied if bare is None or value is None else {bare: copied}
