"""Aggregate functions: a state that is built up value by value, and taken down again where a table takes values back.

A state is made of plain values and lists, so that it can be kept. Nulls are left out by all of them, as SQL does;
`count(*)` counts rows because its argument is never null. Values are compared as Spark compares them.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from itertools import islice
from math import isnan
from typing import Any, Final, Generic, TypeAlias, TypeVar

from odradek.spark.rows.result_types import EXACT

_AS_IN_PYTHON: Final = frozenset({bool, int, str, bytes, Decimal, date, datetime})
"""Values of these types Spark sorts as Python does."""
State = TypeVar("State")
_Best: TypeAlias = list[object]
"""The value that is kept, and what it was chosen by; empty before the first value."""
_Values: TypeAlias = list[object]
_Counted: TypeAlias = dict[str, int] | list[object]
"""The count of each value, by its text. An earlier version kept the values, in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateFunction(Generic[State]):
    """An aggregate function of SQL, over Python values.

    `add` and `remove` return the new state. `typed` is a function of Spark whose result has this one's type.
    `arguments`: how many it adds up. `constants`: how many more follow them, such as the k of top_k.
    """

    start: Callable[[], State]
    add: Callable[..., State]
    result: Callable[..., object]
    merge: Callable[[State, State], State]
    typed: str
    remove: Callable[..., State] | None = None
    arguments: int = 1
    constants: int = 0
    add_column: Callable[[State, list[Any]], State] | None = None
    """Adds the values of a list in turn, as `add` would, but faster."""
    add_count: Callable[[State, int], State] | None = None
    """Adds this number of values that are not null, for a function to which values are all the same."""

    def add_all(self, state: State, *columns: list[Any]) -> State:
        """Adds the values of these lists, one after another."""
        if self.add_column is not None:
            return self.add_column(state, columns[0])
        add = self.add
        for values in zip(*columns, strict=True):
            state = add(state, *values)
        return state


def _count_add(state: int, value: object) -> int:
    return state + (value is not None)


def _count_remove(state: int, value: object) -> int:
    return state - (value is not None)


def _sum_add(state: list[Any], value: object) -> list[Any]:
    return state if value is None else [value if state[1] == 0 else _plus(state[0], value), state[1] + 1]


def _plus(left: Any, right: Any) -> object:
    return EXACT.add(left, right) if isinstance(right, Decimal) else left + right


def _sum_add_column(state: list[Any], values: list[Any]) -> list[Any]:
    """Adds values from left to right: sums of floating-point numbers depend on the order."""
    present = [value for value in values if value is not None]
    if not present:
        return state
    plus = EXACT.add if isinstance(present[0], Decimal) else operator.add
    total = reduce(plus, present) if state[1] == 0 else reduce(plus, present, state[0])
    return [total, state[1] + len(present)]


def _sum_remove(state: list[Any], value: object) -> list[Any]:
    if value is None:
        return state
    left = EXACT.subtract(state[0], value) if isinstance(value, Decimal) else state[0] - value
    return [left, state[1] - 1]


def _sum_merge(left: list[Any], right: list[Any]) -> list[Any]:
    if not left[1] or not right[1]:
        return left if left[1] else right
    return [_plus(left[0], right[0]), left[1] + right[1]]


def _average(state: list[Any]) -> object:
    total, count = state
    if not count:
        return None
    return EXACT.divide(total, Decimal(count)) if isinstance(total, Decimal) else float(total) / count


def _rank(value: object) -> Any:
    """Returns a key that sorts as the value does in Spark: NaN is the largest number, a null in a struct or array the least."""
    if isinstance(value, float):
        return (1, 0.0) if isnan(value) else (0, value)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [(0,) if part is None else (1, _rank(part)) for part in value]
    return value


def _is_less(left: Any, right: Any) -> bool:
    if isinstance(left, float):
        return left < right or (isnan(right) and not isnan(left))
    return bool(left < right if type(left) in _AS_IN_PYTHON else _rank(left) < _rank(right))


def _ordered_add(state: list[Any], value: object) -> list[Any]:
    if value is not None:
        insort(state, value, key=None if type(value) in _AS_IN_PYTHON else _rank)
    return state


def _ordered_remove(state: list[Any], value: object) -> list[Any]:
    if value is not None:
        rank = _rank(value)
        index = bisect_left(state, rank, key=_rank)
        if index < len(state) and _rank(state[index]) == rank:
            del state[index]
    return state


def _top_result(state: _Values, size: int) -> _Values:
    return state[: -size - 1 : -1]


def _list_add(state: _Values, value: object) -> _Values:
    if value is not None:
        state.append(value)
    return state


def _list_remove(state: _Values, value: object) -> _Values:
    try:
        state.remove(value)
    except ValueError:  # no NaN is equal to another
        rank = None if type(value) in _AS_IN_PYTHON else _rank(value)
        indexes = (index for index, held in enumerate(state) if rank is not None and _rank(held) == rank)
        for index in islice(indexes, 1):
            del state[index]
    return state


def _distinct(state: Sequence[object]) -> list[object]:
    seen: dict[str, object] = {}
    for value in state:
        seen.setdefault(repr(value), value)
    return list(seen.values())


def _counts(state: _Counted) -> dict[str, int]:
    """Returns the count of each value."""
    return dict(Counter(map(repr, state))) if isinstance(state, list) else state


def _counts_changed(by: int) -> Callable[[_Counted, object], _Counted]:
    def change(state: _Counted, value: object) -> dict[str, int]:
        counts = _counts(state)
        if value is not None:
            name = repr(value)
            count = counts.get(name, 0) + by
            if count > 0:
                counts[name] = count
            else:
                counts.pop(name, None)
        return counts

    return change


def _counts_merged(left: _Counted, right: _Counted) -> _Counted:
    merged = dict(_counts(left))
    for name, count in _counts(right).items():
        merged[name] = merged.get(name, 0) + count
    return merged


def _extreme(better: Callable[[Any, Any], bool]) -> AggregateFunction[_Best]:
    def add(state: _Best, value: object) -> _Best:
        return [value] if value is not None and (not state or better(value, state[0])) else state

    return AggregateFunction(
        start=list,
        add=add,
        result=lambda state: state[0] if state else None,
        merge=lambda left, right: add(left, right[0]) if right else left,
        typed="first",
    )


def _by(better: Callable[[Any, Any], bool]) -> AggregateFunction[_Best]:
    def add(state: _Best, value: object, rank: object) -> _Best:
        return [value, rank] if rank is not None and (not state or better(rank, state[1])) else state

    return AggregateFunction(
        start=list,
        add=add,
        result=lambda state: state[0] if state else None,
        merge=lambda left, right: add(left, *right) if right else left,
        typed="first",
        arguments=2,
    )


_SUM: Final = AggregateFunction(
    start=lambda: [0, 0],
    add=_sum_add,
    remove=_sum_remove,
    result=lambda state: state[0] if state[1] else None,
    merge=_sum_merge,
    typed="sum",
    add_column=_sum_add_column,
)
_COUNT: Final = AggregateFunction(
    start=int,
    add=_count_add,
    remove=_count_remove,
    result=lambda state: state,
    merge=lambda left, right: left + right,
    typed="count",
    add_count=operator.add,
)
_ORDERED: Final = AggregateFunction(
    start=list,
    add=_ordered_add,
    remove=_ordered_remove,
    result=list,
    merge=lambda left, right: sorted(left + right, key=_rank),
    typed="collect_list",
)
_LIST: Final = AggregateFunction(
    start=list,
    add=_list_add,
    remove=_list_remove,
    result=list,
    merge=lambda left, right: left + right,
    typed="collect_list",
)


def _like(
    function: AggregateFunction[State], result_of: Callable[..., object], typed: str, constants: int = 0
) -> AggregateFunction[State]:
    return AggregateFunction(
        start=function.start,
        add=function.add,
        remove=function.remove,
        result=result_of,
        merge=function.merge,
        typed=typed,
        constants=constants,
        add_column=function.add_column,
    )


_MIN: Final = _extreme(_is_less)
_MAX: Final = _extreme(lambda new, old: _is_less(old, new))
_EARLIEST: Final = _extreme(lambda new, old: False)
_LATEST: Final = _extreme(lambda new, old: True)

FUNCTIONS: Final[dict[str, AggregateFunction[Any]]] = {
    "count": _COUNT,
    "sum": _SUM,
    "avg": _like(_SUM, _average, "avg"),
    "mean": _like(_SUM, _average, "avg"),
    "min": _MIN,
    "max": _MAX,
    "earliest": _EARLIEST,
    "first": _EARLIEST,
    "latest": _LATEST,
    "last": _LATEST,
    "min_by": _by(_is_less),
    "max_by": _by(lambda new, old: not _is_less(new, old)),
    "collect_list": _LIST,
    "collect_set": _like(_LIST, _distinct, "collect_list"),
    "count_distinct": AggregateFunction(
        start=dict,
        add=_counts_changed(1),
        remove=_counts_changed(-1),
        result=lambda state: len(_counts(state)),
        merge=_counts_merged,
        typed="count",
    ),
    "top_k": _like(_ORDERED, _top_result, "collect_list", constants=1),
    "bottom_k": _like(_ORDERED, lambda state, size: state[:size], "collect_list", constants=1),
}
REMOVABLE: Final[dict[str, AggregateFunction[Any]]] = FUNCTIONS | {
    "min": _like(_ORDERED, lambda state: state[0] if state else None, "first"),
    "max": _like(_ORDERED, lambda state: state[-1] if state else None, "first"),
}
"""The functions for tables: min and max remember all values, since an update may remove the least."""
