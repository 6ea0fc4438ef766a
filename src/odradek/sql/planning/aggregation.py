"""The aggregates of a query side by side, as one fold of `odradek.streams`."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import Any

from odradek.sql.functions import FUNCTIONS, FunctionLibrary
from odradek.sql.functions.aggregates import SqlAggregate
from odradek.sql.functions.library import Definition
from odradek.sql.planning.steps import NO_COLUMN, AggregateCall
from odradek.streams.processors.ports import ColumnLists, Fields


class SqlAggregation:
    """The aggregate functions of a query as one fold. `functions` evaluates the calls. The aggregate is the list of the
    calls' states."""

    def __init__(self, calls: tuple[AggregateCall, ...], functions: FunctionLibrary) -> None:
        self._calls = calls
        self._functions = functions
        self._looked_up: list[tuple[AggregateCall, SqlAggregate]] | None = None

    def __repr__(self) -> str:
        """Returns a text that is equal for folds with equal state and results: upgrades compare folds by it."""
        calls = [
            f"{call.result} = {call.name}({', '.join(map(str, (*call.kinds, *call.constants, *call.arguments)))})"
            for call in self._calls
        ]
        _, of_users = self.__getstate__()
        return f"SqlAggregation({'; '.join(calls + [repr(definition) for definition in of_users])})"

    def __getstate__(self) -> tuple[tuple[AggregateCall, ...], list[Definition]]:
        """Tasks have the functions of SQL themselves: only users' functions travel."""
        called = {call.name: self._functions.definition(call.name) for call in self._calls}
        return self._calls, [definition for definition in called.values() if definition.category == "USER"]

    def __setstate__(self, state: tuple[tuple[AggregateCall, ...], list[Definition]]) -> None:
        self._calls, of_users = state
        self._functions = FUNCTIONS.with_functions(of_users) if of_users else FUNCTIONS
        self._looked_up = None

    @property
    def ddl(self) -> str:
        """The fields of the results."""
        fields = [f"`{call.result}` {call.returns.ddl}" for call in self._calls]
        return ", ".join(fields or [f"{NO_COLUMN} BOOLEAN"])

    def _pairs(self) -> list[tuple[AggregateCall, SqlAggregate]]:
        if self._looked_up is None:
            self._looked_up = [
                (call, self._functions.aggregate(call.name, call.kinds, call.constants))
                for call in self._calls
            ]
        return self._looked_up

    def add(self, key: Fields, aggregate: Any, values: Fields) -> Any:
        states = [function.start() for _, function in self._pairs()] if aggregate is None else aggregate
        return [
            function.add(state, *(values[name] for name in call.arguments))
            for state, (call, function) in zip(states, self._pairs(), strict=True)
        ]

    def add_all(self, key: Fields, aggregate: Any, values: ColumnLists, start: int, end: int) -> object:
        """Adds the values from `start` to `end` of these columns, as `add` does for one row."""
        pairs = self._pairs()
        states = [function.start() for _, function in pairs] if aggregate is None else aggregate
        return [
            function.add_all(state, end - start, [values[name][start:end] for name in call.arguments])
            for state, (call, function) in zip(states, pairs, strict=True)
        ]

    def remove(self, key: Fields, aggregate: Any, values: Fields) -> Any:
        states = []
        for state, (call, function) in zip(aggregate, self._pairs(), strict=True):
            undo = function.undo
            assert undo is not None, f"{call.name} was resolved for a table"
            states.append(undo(state, *(values[name] for name in call.arguments)))
        return states

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
        results = {
            call.result: function.result(state)
            for state, (call, function) in zip(aggregate, self._pairs(), strict=True)
        }
        return results or {NO_COLUMN: True}

    def copied(self, aggregate: Any) -> Any:
        """Returns a deep copy: a user's function may change any part of its state in place."""
        return aggregate and [
            deepcopy(state) if self._functions.definition(call.name).category == "USER" else copy(state)
            for state, (call, _) in zip(aggregate, self._pairs(), strict=True)
        ]
