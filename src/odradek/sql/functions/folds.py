"""Aggregates as ksqlDB computes them, value by value: with its rules for nulls, for no values, and for overflow.

`ValueFold.undo` takes a value back. It is there where ksqlDB allows the function over a table.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Generic, TypeVar

from odradek.values.exact_numbers import WIDE
from odradek.values.rows import SqlValue
from odradek.values.types import SqlType

HISTOGRAM_SIZE_MAX: Final = 1000
_NAN: Final = object()
_NEGATIVE_ZERO: Final = object()
_BITS: Final = {"INTEGER": 32, "BIGINT": 64}
S = TypeVar("S")
Values = list[SqlValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFold(Generic[S]):
    """How an aggregate adds values up.

    `add` and `undo` give the new state, of plain values; it never changes in place. `merge`: the earlier session first.

    `add_column`: as `add` for each value of a list in turn, faster: it copies the state once.
    """

    start: Callable[[], S]
    add: Callable[..., S]
    merge: Callable[[S, S], S]
    result: Callable[[S], SqlValue]
    undo: Callable[..., S] | None = None
    add_column: Callable[[S, list[SqlValue]], S] | None = None


def _plain(value: SqlValue) -> SqlValue:
    """Returns a value with an order and an equality: bytes rather than bytearray."""
    return bytes(value) if isinstance(value, bytearray) else value


def _order(value: SqlValue) -> Any:
    """Returns a key that sorts as Java compares: NaN is the largest DOUBLE, and -0.0 is below 0.0."""
    plain: object = _plain(value)
    if isinstance(plain, float):
        return (1, 0.0, 0.0) if math.isnan(plain) else (0, plain, math.copysign(1.0, plain))
    return (0, plain, 1.0) if type(plain) is int else plain


def _has_nan_or_zero(value: object) -> bool:
    """Returns whether a value contains a DOUBLE that Java's `equals` and Python's `==` compare in different ways."""
    if isinstance(value, float):
        return value == 0.0 or math.isnan(value)
    if isinstance(value, dict):
        return any(map(_has_nan_or_zero, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_has_nan_or_zero, value))


def _equal(left: object, right: object) -> bool:
    """Compares as Java's `equals` does: NaN equals NaN, and -0.0 does not equal 0.0."""
    if isinstance(left, float) and isinstance(right, float):
        return bool(_identity(left) == _identity(right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(part, right[name]) for name, part in left.items())
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)


def _identity(value: object) -> object:
    """Returns a value that is equal, and has one hash, for values that are `_equal`."""
    if isinstance(value, float):
        if value == 0.0:
            return 0.0 if math.copysign(1.0, value) > 0 else _NEGATIVE_ZERO
        return _NAN if math.isnan(value) else value
    if isinstance(value, dict):
        return frozenset((name, _identity(part)) for name, part in value.items())
    return tuple(map(_identity, value)) if isinstance(value, (list, tuple)) else value


def _index_of(values: Values, value: SqlValue) -> int | None:
    """Returns the index of the first equal value."""
    if _has_nan_or_zero(value):
        return next((index for index, held in enumerate(values) if _equal(held, value)), None)
    return values.index(value) if value in values else None


def _wrapped(number: int, kind: SqlType) -> int:
    """Returns the number as Java's integers overflow: it wraps around at the other end."""
    size = 1 << _BITS[kind.kind]
    return (number + size // 2) % size - size // 2


def count() -> ValueFold[int]:
    return ValueFold(
        start=int,
        add=lambda state, value=True: state + (value is not None),
        undo=lambda state, value=True: state - (value is not None),
        result=lambda state: state,
        merge=lambda left, right: left + right,
    )


def total(kind: SqlType, of_lists: bool = False) -> ValueFold[Any]:
    """Returns SUM or SUM_LIST: 0 for no values."""
    zero: Any = {"DOUBLE": 0.0, "DECIMAL": Decimal(0).scaleb(-kind.scale)}.get(kind.kind, 0)

    def number(value: Any) -> Any:
        return sum((part for part in value if part is not None), zero) if of_lists else value

    def result(state: Any) -> Any:
        if kind.kind in _BITS:
            return _wrapped(state, kind)
        if kind.kind == "DECIMAL" and state.copy_abs() >= Decimal(10) ** (kind.precision - kind.scale):
            return None
        return state

    plus, minus = (WIDE.add, WIDE.subtract) if kind.kind == "DECIMAL" else (operator.add, operator.sub)
    return ValueFold(
        start=lambda: zero,
        add=lambda state, value: state if value is None else plus(state, number(value)),
        undo=lambda state, value: state if value is None else minus(state, number(value)),
        result=result,
        merge=plus,
    )


def average() -> ValueFold[list[float]]:
    """Returns AVG: 0 for no values."""
    return ValueFold(
        start=lambda: [0, 0],
        add=lambda state, value: state if value is None else [state[0] + value, state[1] + 1],
        undo=lambda state, value: state if value is None else [state[0] - value, state[1] - 1],
        result=lambda state: float(state[0]) / state[1] if state[1] else 0.0,
        merge=lambda left, right: [left[0] + right[0], left[1] + right[1]],
    )


def extreme(*, largest: bool) -> ValueFold[Values]:
    """Returns MIN or MAX: null for no values."""

    def add(state: Values, value: SqlValue) -> Values:
        value = _plain(value)
        if value is None:
            return state
        if state:
            new, held = _order(value), _order(state[0])
            if (new <= held) if largest else (new >= held):
                return state
        return [value]

    return ValueFold(
        start=list,
        add=add,
        result=lambda state: state[0] if state else None,
        merge=lambda left, right: add(left, right[0]) if right else left,
    )


def collected(limit: int) -> ValueFold[Values]:
    """Returns COLLECT_LIST: with nulls. It takes back the first equal value."""

    def add(state: Values, value: SqlValue) -> Values:
        return state if len(state) >= limit else [*state, _plain(value)]

    def add_column(state: Values, values: Values) -> Values:
        return [*state, *map(_plain, values[: max(0, limit - len(state))])]

    def remove(state: Values, value: SqlValue) -> Values:
        index = _index_of(state, _plain(value))
        return state if index is None else state[:index] + state[index + 1 :]

    return ValueFold(
        start=list,
        add=add,
        undo=remove,
        result=list,
        merge=lambda left, right: (left + right)[:limit],
        add_column=add_column,
    )


def collected_once(limit: int) -> ValueFold[Values]:
    """Returns COLLECT_SET: each value once, also a null, in the order in which they came."""

    def add(state: Values, value: SqlValue) -> Values:
        value = _plain(value)
        return state if len(state) >= limit or _index_of(state, value) is not None else [*state, value]

    def add_column(state: Values, values: Values) -> Values:
        collected_values, seen = list(state), set(map(_identity, state))
        for value in map(_plain, values):
            identity = _identity(value)
            if len(collected_values) < limit and identity not in seen:
                seen.add(identity)
                collected_values.append(value)
        return collected_values

    return ValueFold(start=list, add=add, result=list, merge=add_column, add_column=add_column)


def distinct_count() -> ValueFold[dict[str, int]]:
    """Returns an exact COUNT_DISTINCT: the state has every value once."""

    def add(state: dict[str, int], value: SqlValue) -> dict[str, int]:
        if value is not None and (key := repr(_plain(value))) not in state:
            state[key] = 1
        return state

    return ValueFold(start=dict, add=add, result=len, merge=lambda left, right: {**left, **right})


def by_offset(*, latest: bool, count: int | None, ignores_nulls: bool) -> ValueFold[Values]:
    """Returns EARLIEST_BY_OFFSET or LATEST_BY_OFFSET. `count`: the length of an array; None for one bare value."""
    most = count or 1

    def limited(state: Values) -> Values:
        return state[-most:] if latest else state[:most]

    def add(state: Values, value: SqlValue) -> Values:
        return state if value is None and ignores_nulls else limited([*state, value])

    def result(state: Values) -> SqlValue:
        return list(state) if count is not None else state[0] if state else None

    return ValueFold(start=list, add=add, result=result, merge=lambda left, right: limited(left + right))


def histogram() -> ValueFold[dict[str, int]]:
    """Returns HISTOGRAM: the count of each text, for the first thousand texts."""

    def changed(state: dict[str, int], value: str | None, by: int) -> dict[str, int]:
        if value is None or (value not in state and (by < 0 or len(state) >= HISTOGRAM_SIZE_MAX)):
            return state
        new = {**state, value: state.get(value, 0) + by}
        return new if new[value] > 0 else {key: times for key, times in new.items() if key != value}

    def merge(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
        for value, times in right.items():
            left = changed(left, value, times)
        return left

    return ValueFold(
        start=dict,
        add=lambda state, value: changed(state, value, 1),
        undo=lambda state, value: changed(state, value, -1),
        result=dict,
        merge=merge,
    )


def top(size: int, *, distinct: bool) -> ValueFold[Values]:
    """Returns TOPK or TOPKDISTINCT: the largest come first."""

    def add(state: Values, value: SqlValue) -> Values:
        value = _plain(value)
        if value is None or (distinct and _order(value) in map(_order, state)):
            return state
        return sorted([*state, value], key=_order, reverse=True)[:size]

    def merge(left: Values, right: Values) -> Values:
        for value in right:
            left = add(left, value)
        return left

    return ValueFold(start=list, add=add, result=list, merge=merge)


def top_rows(size: int, names: tuple[str, ...]) -> ValueFold[list[Values]]:
    """Returns TOPK with more columns: structs, by the first column. Among equals, the earlier comes first."""

    def add(state: list[Values], *values: SqlValue) -> list[Values]:
        if values[0] is None:
            return state
        return sorted([*state, list(values)], key=lambda row: _order(row[0]), reverse=True)[:size]

    def merge(left: list[Values], right: list[Values]) -> list[Values]:
        for row in right:
            left = add(left, *row)
        return left

    return ValueFold(
        start=list,
        add=add,
        result=lambda state: [dict(zip(names, row, strict=True)) for row in state],
        merge=merge,
    )


def deviation() -> ValueFold[list[float]]:
    """Returns the sample standard deviation; 0 of fewer than two values. The state is count, sum and the sum of squared
    distances (Youngs and Cramer, 1971).
    """

    def step(n: float, total_before: float, value: float) -> float:
        """Returns what value number `n` adds to the squared distances, after n - 1 values with this sum."""
        apart = n * value - (total_before + value)
        return apart * apart / (n * (n - 1)) if n > 1 else 0.0  # a product is Infinity where a power raises

    def add(state: list[float], value: float | None) -> list[float]:
        if value is None:
            return state
        n, before, squares = state
        value = float(value)
        return [n + 1, before + value, squares + step(n + 1, before, value)]

    def remove(state: list[float], value: float | None) -> list[float]:
        if value is None:
            return state
        n, after, squares = state
        value = float(value)
        return [n - 1, after - value, squares - step(n, after - value, value) if n > 2 else 0.0]

    def merge(left: list[float], right: list[float]) -> list[float]:
        if not left[0] or not right[0]:
            return left if left[0] else right
        n = left[0] + right[0]
        apart = left[1] / left[0] - right[1] / right[0]
        return [n, left[1] + right[1], left[2] + right[2] + left[0] * right[0] * apart * apart / n]

    return ValueFold(
        start=lambda: [0, 0.0, 0.0],
        add=add,
        undo=remove,
        result=lambda state: math.sqrt(max(state[2], 0.0) / (state[0] - 1)) if state[0] > 1 else 0.0,
        merge=merge,
    )


def correlation() -> ValueFold[list[float]]:
    """Returns Pearson's coefficient of two columns; NaN where a column does not vary."""

    def moved(sign: int) -> Callable[..., list[float]]:
        def change(state: list[float], x: float | None, y: float | None) -> list[float]:
            if x is None or y is None:
                return state
            parts = (1, x, y, x * x, y * y, x * y)
            return [old + sign * part for old, part in zip(state, parts, strict=True)]

        return change

    def result(state: list[float]) -> float:
        n, x, y, xx, yy, xy = state
        spread = (n * xx - x * x) * (n * yy - y * y)
        return float((n * xy - x * y) / math.sqrt(spread)) if spread > 0 else math.nan

    return ValueFold(
        start=lambda: [0, 0.0, 0.0, 0.0, 0.0, 0.0],
        add=moved(1),
        undo=moved(-1),
        result=result,
        merge=lambda left, right: [old + new for old, new in zip(left, right, strict=True)],
    )


def only_value() -> ValueFold[list[list[Any]]]:
    """Returns ATTR: the value if all are equal, nulls too; otherwise null. The state is a list of (value, count)."""

    def changed(state: list[list[Any]], value: SqlValue, by: int) -> list[list[Any]]:
        value = _plain(value)
        entries = [list(entry) for entry in state]
        for entry in entries:
            if _equal(entry[0], value):
                entry[1] += by
                return [entry for entry in entries if entry[1] > 0]
        return [*entries, [value, by]] if by > 0 else entries

    def merge(left: list[list[Any]], right: list[list[Any]]) -> list[list[Any]]:
        for value, times in right:
            left = changed(left, value, times)
        return left

    return ValueFold(
        start=list,
        add=lambda state, value: changed(state, value, 1),
        undo=lambda state, value: changed(state, value, -1),
        result=lambda state: state[0][0] if len(state) == 1 else None,
        merge=merge,
    )
