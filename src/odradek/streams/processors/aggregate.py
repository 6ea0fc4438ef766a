"""Aggregates by key. A stream adds to them; a table takes its old value back before it adds the new one (KIP-904)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from odradek.spark.rows.result_types import ResultType
from odradek.streams.plan.user_code import Aggregator, Fold, Initializer, Merger
from odradek.streams.processors.functions import FUNCTIONS, REMOVABLE, AggregateFunction
from odradek.streams.processors.ports import (
    ColumnLists,
    EntryProcessor,
    Fields,
    InputRow,
    KeyedProcessor,
    TaskState,
    TimedProcessor,
    UpdateRow,
    WallClockProcessor,
)


@runtime_checkable
class ColumnFold(Fold, Protocol):
    """A fold that adds many values at once."""

    def add_all(self, key: Fields, aggregate: object, values: ColumnLists, start: int, end: int) -> object:
        """Adds the values from `start` to `end` of these columns, one after another, as `add` does.

        Whatever it raises: the batch goes row by row.
        """


class ValueGroups(Protocol):
    """The values of many groups of rows."""

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Start and end of each group in the lists of `values`."""

    def values(self, name: str) -> list[Any]:
        """Returns the values of an argument, group by group."""

    def present_counts(self, name: str) -> list[int]:
        """Returns how many values of an argument in each group are not null."""


@runtime_checkable
class GroupFold(Fold, Protocol):
    """A fold that adds the values of many groups at once, without looking at their keys. It may change aggregates in place, but
    nothing that their results hold.
    """

    def add_groups(self, aggregates: list[Any], groups: ValueGroups) -> list[Any]:
        """Returns the aggregate of each group with its values added, as `add` does one after another. None: the
        group has no aggregate yet.
        """

    def result_columns(self, aggregates: list[Any]) -> dict[str, list[object]]:
        """Returns the fields of the results of aggregates, none of which is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledFunction:
    """One call of an aggregate function: its arguments are the columns from `first` on; its result is the column `out`."""

    function: str
    arguments: tuple[str, ...]
    constants: tuple[object, ...]
    out: str
    removable: bool

    def look_up(self) -> AggregateFunction[Any]:
        return (REMOVABLE if self.removable else FUNCTIONS)[self.function]


class SqlFold:
    """Several functions side by side; the aggregate is the list of their states."""

    def __init__(self, calls: tuple[CalledFunction, ...]) -> None:
        self._calls = calls
        self._functions: list[AggregateFunction[Any]] | None = None

    def __getstate__(self) -> tuple[CalledFunction, ...]:
        return self._calls

    def __setstate__(self, calls: tuple[CalledFunction, ...]) -> None:
        self._calls, self._functions = calls, None

    @property
    def computed(self) -> frozenset[str]:
        """The results that are no values, or lists of values, which were added: they may not fit the type."""
        return frozenset(call.out for call in self._calls if call.function in ("sum", "avg", "mean"))

    def _pairs(self) -> Iterator[tuple[CalledFunction, AggregateFunction[Any]]]:
        if self._functions is None:
            self._functions = [call.look_up() for call in self._calls]
        return zip(self._calls, self._functions, strict=True)

    def add(self, key: Fields, aggregate: Any, values: Fields) -> Any:
        states = [None] * len(self._calls) if aggregate is None else aggregate
        return [
            function.add(
                function.start() if state is None else state, *(values[name] for name in call.arguments)
            )
            for state, (call, function) in zip(states, self._pairs(), strict=True)
        ]

    def add_groups(self, aggregates: list[Any], groups: ValueGroups) -> list[Any]:
        call_count = len(self._calls)
        if any(aggregate is not None and len(aggregate) != call_count for aggregate in aggregates):
            raise ValueError("an aggregate has other calls than the program: an earlier version kept it")
        columns = []
        for index, (call, function) in enumerate(self._pairs()):
            states = [function.start() if aggregate is None else aggregate[index] for aggregate in aggregates]
            if function.add_count is not None:
                counts = groups.present_counts(call.arguments[0])
                columns.append(list(map(function.add_count, states, counts)))
                continue
            values = [groups.values(name) for name in call.arguments]
            columns.append(
                [
                    function.add_all(state, *[column[start:end] for column in values])
                    for state, (start, end) in zip(states, groups.spans, strict=True)
                ]
            )
        return list(map(list, zip(*columns, strict=True))) if columns else [[] for _ in aggregates]

    def result_columns(self, aggregates: list[Any]) -> dict[str, list[object]]:
        return {
            call.out: [function.result(aggregate[index], *call.constants) for aggregate in aggregates]
            for index, (call, function) in enumerate(self._pairs())
        }

    def remove(self, key: Fields, aggregate: Any, values: Fields) -> Any:
        changed = []
        for state, (call, function) in zip(aggregate, self._pairs(), strict=True):
            if function.remove is None:
                raise TypeError(f"{call.function} cannot take a value back")
            changed.append(function.remove(state, *(values[name] for name in call.arguments)))
        return changed

    def merge(self, key: Fields, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return [
            function.merge(mine, other)
            for mine, other, (_, function) in zip(left, right, self._pairs(), strict=True)
        ]

    def result(self, aggregate: Any) -> Fields | None:
        if aggregate is None:
            return None
        return {
            call.out: function.result(state, *call.constants)
            for state, (call, function) in zip(aggregate, self._pairs(), strict=True)
        }

    def copied(self, aggregate: Any) -> Any:
        """Functions change a state in place, and never the values that it holds."""
        return aggregate and [copy(state) for state in aggregate]


class PythonFold:
    """A fold by the user's Python functions. They receive bare values as they are, others as dicts; aggregates, too.

    `start` None: the first value is the first aggregate, as in Kafka Streams' reduce. A function may change an aggregate in
    place: it always gets a copy, since the old value is emitted as well."""

    def __init__(
        self,
        *,
        start: Initializer | None,
        add: Callable[..., object],
        subtract: Callable[..., object] | None,
        merge: Merger | None,
        bare_key: str | None,
        bare_value: str | None,
        bare_result: str | None,
    ) -> None:
        self._start = start
        self._add = add
        self._subtract = subtract
        self._merge = merge
        self._bare_key = bare_key
        self._bare_value = bare_value
        self._bare_result = bare_result

    def add(self, key: Fields, aggregate: object, values: Fields) -> object:
        value, aggregate = _plain(values, self._bare_value), deepcopy(aggregate)
        if self._start is None:
            return value if aggregate is None else self._add(aggregate, value)
        return self._add(
            _plain(key, self._bare_key), value, self._start() if aggregate is None else aggregate
        )

    def add_all(self, key: Fields, aggregate: object, values: ColumnLists, start: int, end: int) -> object:
        aggregate = deepcopy(aggregate)
        bare = self._bare_value
        arguments = values[bare][start:end] if bare is not None else _structs(values, start, end)
        if self._start is not None:
            bare_key = _plain(key, self._bare_key)
            for value in arguments:
                aggregate = self._add(bare_key, value, self._start() if aggregate is None else aggregate)
                _still_there(aggregate)
            return aggregate
        for value in arguments:
            aggregate = value if aggregate is None else self._add(aggregate, value)
            _still_there(aggregate)
        return aggregate

    def remove(self, key: Fields, aggregate: object, values: Fields) -> object:
        if self._subtract is None:
            raise TypeError("a table's aggregate needs subtract=")
        value, aggregate = _plain(values, self._bare_value), deepcopy(aggregate)
        if self._start is None:
            return self._subtract(aggregate, value)
        return self._subtract(_plain(key, self._bare_key), value, aggregate)

    def merge(self, key: Fields, left: object, right: object) -> object:
        if left is None or right is None:
            return right if left is None else left
        if self._merge is not None:
            return self._merge(_plain(key, self._bare_key), deepcopy(left), deepcopy(right))
        if self._start is None:
            return self._add(deepcopy(left), deepcopy(right))
        raise TypeError("sessions need merge=, a function of the key and the aggregates of two sessions")

    def result(self, aggregate: Any) -> Fields | None:
        if aggregate is None:
            return None
        return aggregate if self._bare_result is None else {self._bare_result: aggregate}

    def copied(self, aggregate: object) -> object:
        return aggregate


def _still_there(aggregate: object) -> None:
    """What is deleted begins again with the time of the next record: row by row it is clear which that is."""
    if aggregate is None:
        raise ValueError("an aggregate came to an end")


def _structs(values: ColumnLists, start: int, end: int) -> Iterator[Fields]:
    parts = [column[start:end] for column in values.values()]
    return (dict(zip(values, row, strict=True)) for row in zip(*parts, strict=True))


def _plain(fields: Fields, bare: str | None) -> object:
    return fields if bare is None else fields[bare]


class CogroupFold:
    """A PythonFold over several streams: the only name in `values` is the number of the stream whose function adds."""

    def __init__(
        self,
        *,
        start: Initializer,
        adders: tuple[Aggregator, ...],
        merge: Merger | None,
        bare_key: str | None,
        bare_values: tuple[str | None, ...],
        bare_result: str | None,
    ) -> None:
        self._start = start
        self._adders = adders
        self._merge = merge
        self._bare_key = bare_key
        self._bare_values = bare_values
        self._bare_result = bare_result

    def add(self, key: Fields, aggregate: object, values: Fields) -> object:
        ((port, value),) = values.items()
        index = int(port)
        return self._adders[index](
            _plain(key, self._bare_key),
            None if value is None else _plain(value, self._bare_values[index]),
            self._start() if aggregate is None else deepcopy(aggregate),
        )

    def remove(self, key: Fields, aggregate: object, values: Fields) -> object:
        raise TypeError("a co-grouped aggregate takes no value back: its inputs are streams")

    def merge(self, key: Fields, left: object, right: object) -> object:
        if left is None or right is None:
            return right if left is None else left
        if self._merge is None:
            raise TypeError("sessions need merge=, a function of the key and the aggregates of two sessions")
        return self._merge(_plain(key, self._bare_key), deepcopy(left), deepcopy(right))

    def result(self, aggregate: Any) -> Fields | None:
        if aggregate is None:
            return None
        return aggregate if self._bare_result is None else {self._bare_result: aggregate}

    def copied(self, aggregate: object) -> object:
        return aggregate


class ByPort:
    """Rows of several inputs for a processor of one: the payload names its input."""

    runs_user_code = True

    def __init__(self, processor: KeyedProcessor) -> None:
        self._processor = processor
        self.entries = processor.entries if isinstance(processor, EntryProcessor) else ()
        self._timed = processor if isinstance(processor, WallClockProcessor) else None
        self.has_wall_clock = self._timed is not None and self._timed.has_wall_clock

    def wall_clock_passed(self, state: TaskState) -> Iterable[UpdateRow]:
        return () if self._timed is None else self._timed.wall_clock_passed(state)

    def next_wall_clock(self, state: TaskState) -> int | None:
        return None if self._timed is None else self._timed.next_wall_clock(state)

    def process(self, row: InputRow, state: TaskState) -> Iterable[UpdateRow]:
        payload = {"new": {str(row.port): row.payload}, "old": None}
        return self._processor.process(row._replace(payload=payload), state)

    def time_passed(self, row: InputRow, state: TaskState) -> Iterable[UpdateRow]:
        return self._processor.time_passed(row, state) if isinstance(self._processor, TimedProcessor) else ()


class AggregateProcessor:
    """Aggregates the values of each key. Payload: {"new": values to add, "old": values to take back}, either may be null.
    Output: value, old value.

    `results` is the type of the values; a record whose result does not fit it fails."""

    runs_user_code = True
    entries: tuple[str, ...] = ("aggregate",)

    def __init__(self, fold: Fold, results: ResultType | None = None) -> None:
        self.fold = fold
        self.results = results

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        key, payload = row.key, row.payload
        if key is None or payload is None:
            return
        before, when = state.get("aggregate", key) or (None, row.timestamp)
        result_before = self.fold.result(before)
        aggregate = self.fold.copied(before) if state.can_undo else before
        if payload.get("old") is not None and aggregate is not None:
            aggregate = self.fold.remove(key, aggregate, payload["old"])
        if payload["new"] is not None:
            aggregate = self.fold.add(key, aggregate, payload["new"])
        timestamp = max(when, row.timestamp)
        result_after = self.fold.result(aggregate)
        if self.results is not None:
            result_after = self.results.fitted(result_after)
            result_before = self.results.fitted_before(result_before)
        state.put("aggregate", key, None if aggregate is None else (aggregate, timestamp))
        yield UpdateRow(key, (result_after, result_before), timestamp, row.headers)
