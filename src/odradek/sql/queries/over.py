"""Calls with OVER, in pull queries over tables: what a row is among the others, as Spark computes it.

The rows are those that pass WHERE. Without a frame and with ORDER BY, a sum is of the rows up to this one and those that are
equal to it in the order; without both, of all rows of the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cmp_to_key
from itertools import groupby
from typing import Any, Final, TypeAlias

from sqlglot import exp

from odradek.sql.language.dialect import position_of
from odradek.sql.queries.expressions import Compute, LocalScope, LocalValue
from odradek.sql.queries.frames import RowFrame, Stretch, check_visits, frame_of
from odradek.values.errors import Position, SqlError, nearest
from odradek.values.exact_numbers import WIDE
from odradek.values.rows import Row, SqlValue
from odradek.values.types import BIGINT, DECIMAL_PRECISION_MAX, DOUBLE, INTEGER, NULL, SqlType, decimal_of

ROWS_MAX: Final = 100_000
"""The server has all of them in memory at once."""
Values: TypeAlias = list[SqlValue]
Peers: TypeAlias = list[list[Row]]
"""The rows of a partition in order; those that are equal in it are next to each other."""
_MARK: Final = "\0over "
"""No column of a user begins so."""
_RANKING: Final = ("ROW_NUMBER", "RANK", "DENSE_RANK")
_OFFSETS: Final = ("LAG", "LEAD")
_AGGREGATES: Final = ("COUNT", "SUM", "AVG", "MIN", "MAX")
FUNCTIONS: Final = (*_RANKING, *_OFFSETS, *_AGGREGATES, "FIRST_VALUE", "LAST_VALUE")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ordering:
    of: Compute
    type: SqlType
    descending: bool
    nulls_first: bool

    def compare(self, left: Row, right: Row) -> int:
        first, second = self.of(left), self.of(right)
        if first is None or second is None:
            if first is second:
                return 0
            return -1 if (first is None) is self.nulls_first else 1
        first, second = sort_key(first), sort_key(second)
        if first == second:
            return 0
        return -1 if (first < second) is not self.descending else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OverCall:
    """A call of a window function (OVER).

    `name`: of the column that it is computed into.
    """

    name: str
    type: SqlType
    partition: tuple[Compute, ...]
    ordering: tuple[_Ordering, ...]
    compute: Callable[[Peers], Values]
    """The value of each row of a partition, in order."""

    def fill(self, rows: Sequence[dict[str, SqlValue]]) -> None:
        partitions: dict[tuple[Hashable, ...], list[dict[str, SqlValue]]] = {}
        for row in rows:
            partitions.setdefault(tuple(sort_key(of(row)) for of in self.partition), []).append(row)
        by_order = cmp_to_key(self._compare)
        for members in partitions.values():
            members.sort(key=by_order)
            if self.ordering:
                peers: Peers = [list(equal) for _, equal in groupby(members, key=by_order)]
            else:
                peers = [list(members)]
            for row, value in zip(members, self.compute(peers), strict=True):
                row[self.name] = value

    def _compare(self, left: Row, right: Row) -> int:
        return next((way for part in self.ordering if (way := part.compare(left, right))), 0)


def overs_in(tree: exp.Expr, scope: LocalScope, number: int) -> tuple[exp.Expr, list[OverCall]]:
    """Returns the expression with columns in place of its calls, and the calls. NeedsSpark; SqlError for what is wrong."""
    if not tree.find(exp.Window):
        return tree, []
    holder = exp.Paren(this=tree.copy())
    calls: list[OverCall] = []
    while (window := holder.find(exp.Window)) is not None:
        call = _call(window, scope, f"{_MARK}{number + len(calls)}")
        calls.append(call)
        window.replace(exp.column(call.name, quoted=True))
    return holder.this, calls


def scope_with(scope: LocalScope, calls: Iterable[OverCall]) -> LocalScope:
    return LocalScope({**scope.columns, **{call.name: call.type for call in calls}}, scope.aliases)


def _call(window: exp.Window, scope: LocalScope, name: str) -> OverCall:
    function, position = window.this, position_of(window)
    called = function.name.upper() if isinstance(function, exp.Anonymous) else ""
    if called not in FUNCTIONS:
        raise SqlError(f"{called or function.sql()} has no OVER", position, nearest(called, FUNCTIONS))
    ordered: list[exp.Expr] = window.args["order"].expressions
    if called in (*_RANKING, *_OFFSETS) and not ordered:
        raise SqlError(f"{called} needs an order", position, f"Write {called}(…) OVER (ORDER BY …).")
    if called in (*_RANKING, *_OFFSETS) and window.args.get("spec") is not None:
        raise SqlError(f"{called} has no frame", position, "Leave ROWS or RANGE out.")
    arguments = [argument for argument in function.expressions if not isinstance(argument, exp.Star)]
    ordering = tuple(_ordering(part, scope) for part in ordered)
    frame = frame_of(window, called, [part.type for part in ordering], position)
    kind, compute = _compute(called, arguments, scope, function, _Framing(frame, ordering, position))
    return OverCall(
        name=name,
        type=kind,
        partition=tuple(
            _with_order(scope.compiled(tree), "PARTITION BY", position).of
            for tree in window.args["partition_by"]
        ),
        ordering=ordering,
        compute=compute,
    )


def _ordering(part: exp.Expr, scope: LocalScope) -> _Ordering:
    value = _with_order(scope.compiled(part.this), "ORDER BY", position_of(part.this))
    return _Ordering(
        of=value.of,
        type=value.type,
        descending=bool(part.args["desc"]),
        nulls_first=bool(part.args["nulls_first"]),
    )


def _with_order(value: LocalValue, clause: str, position: Position | None) -> LocalValue:
    """Returns the value. SqlError for a type that has no order."""
    if value.type.holds_map:
        raise SqlError(
            f"OVER takes no {clause} of {value.type}", position, "A MAP has no order; name one of its values."
        )
    return value


@dataclass(frozen=True, slots=True)
class _Framing:
    """Which rows each row of a partition has in its frame."""

    frame: RowFrame
    ordering: tuple[_Ordering, ...]
    position: Position | None

    def stretches(self, peers: Peers) -> list[Stretch]:
        rows = [row for equal in peers for row in equal]
        values = [self.ordering[0].of(row) for row in rows] if self.ordering else []
        descending = bool(self.ordering) and self.ordering[0].descending
        return self.frame.stretches([len(equal) for equal in peers], values, descending=descending)


def _compute(
    called: str, arguments: list[exp.Expr], scope: LocalScope, function: exp.Expr, framing: _Framing
) -> tuple[SqlType, Callable[[Peers], Values]]:
    least, most = (0, 0) if called in _RANKING else (1, 3) if called in _OFFSETS else (1, 1)
    if called == "COUNT":
        least = 0
    if not least <= len(arguments) <= most:
        raise SqlError(f"{called} takes {least} to {most} arguments", position_of(function))
    if called in _RANKING:
        return INTEGER, _RANKS[called]
    values = [scope.compiled(argument) for argument in arguments]
    if called in _OFFSETS:
        return values[0].type, _shifted(values, arguments, -1 if called == "LAG" else 1)
    if called in ("FIRST_VALUE", "LAST_VALUE"):
        is_first = called == "FIRST_VALUE"
        return values[0].type, lambda peers: _at_an_end(is_first, values[0].of, peers, framing)
    kind = _aggregate_type(called, values, function)
    return kind, lambda peers: _framed(
        called, values[0].of if values else lambda row: 1, peers, kind, framing
    )


def _aggregate_type(called: str, values: list[LocalValue], function: exp.Expr) -> SqlType:
    if called == "COUNT":
        return BIGINT
    kind = values[0].type
    if called in ("MIN", "MAX"):
        if kind.is_simple:
            return kind
    elif kind in (INTEGER, BIGINT, DOUBLE):
        return DOUBLE if called == "AVG" or kind == DOUBLE else BIGINT
    elif kind.kind == "DECIMAL" and called == "SUM":
        return decimal_of(min(DECIMAL_PRECISION_MAX, kind.precision + 10), kind.scale)
    raise SqlError(f"{called} OVER takes no {kind}", position_of(function))


def _row_numbers(peers: Peers) -> Values:
    return list(range(1, sum(map(len, peers)) + 1))


def _ranks(peers: Peers) -> Values:
    ranks: Values = []
    for equal in peers:
        ranks += [len(ranks) + 1] * len(equal)
    return ranks


def _dense_ranks(peers: Peers) -> Values:
    return [number for number, equal in enumerate(peers, 1) for _ in equal]


_RANKS: Final[dict[str, Callable[[Peers], Values]]] = {
    "ROW_NUMBER": _row_numbers,
    "RANK": _ranks,
    "DENSE_RANK": _dense_ranks,
}


def _shifted(
    values: list[LocalValue], arguments: list[exp.Expr], direction: int
) -> Callable[[Peers], Values]:
    """Returns LAG or LEAD: the value, the number of rows (1), and the result where there is no such row (null)."""
    distance = 1
    if len(values) > 1:
        if not isinstance(arguments[1], exp.Literal) or values[1].type != INTEGER:
            raise SqlError("the second argument is a whole number", position_of(arguments[1]))
        distance = values[1].of({})
    if len(values) > 2 and values[2].type not in (values[0].type, NULL):
        raise SqlError(f"the third argument must be a {values[0].type}", position_of(arguments[2]))

    def compute(peers: Peers) -> Values:
        rows = [row for equal in peers for row in equal]
        others = (number + direction * distance for number in range(len(rows)))
        return [
            values[0].of(rows[other])
            if 0 <= other < len(rows)
            else (values[2].of(row) if len(values) > 2 else None)
            for row, other in zip(rows, others, strict=True)
        ]

    return compute


def _at_an_end(is_first: bool, of: Compute, peers: Peers, framing: _Framing) -> Values:
    """Returns the value of the first or last row of each frame; null for an empty frame."""
    rows = [row for equal in peers for row in equal]
    return [
        of(rows[first if is_first else end - 1]) if first < end else None
        for first, end in framing.stretches(peers)
    ]


def _framed(called: str, of: Compute, peers: Peers, kind: SqlType, framing: _Framing) -> Values:
    """Returns the aggregate of each frame; null where all values are. A frame with the same start continues the one before."""
    values = [of(row) for equal in peers for row in equal]
    stretches = framing.stretches(peers)
    check_visits(stretches, framing.position)
    results: Values = []
    begun, added, count, best = -1, 0, 0, None
    total: Any = 0
    for first, end in stretches:
        if first != begun:
            begun, added, count, total, best = first, first, 0, 0, None
        for value in values[added:end]:
            if value is None:
                continue
            count += 1
            if called in ("SUM", "AVG"):
                total = WIDE.add(total, value) if isinstance(value, Decimal) else total + value
            elif best is None or _is_beyond(called, value, best):
                best = value
        added = max(added, end)
        results.append(_result(called, count, total, best, kind))
    return results


def _result(called: str, count: int, total: Any, best: Any, kind: SqlType) -> SqlValue:
    if called == "COUNT":
        return count
    if count == 0:
        return None
    if called == "AVG":
        return float(total) / count
    if kind == BIGINT and called == "SUM":
        wrapped: int = (total + (1 << 63)) % (1 << 64) - (1 << 63)  # as Java's
        return wrapped
    if (
        kind.kind == "DECIMAL"
        and called == "SUM"
        and total.adjusted() >= kind.precision - kind.scale
        and total
    ):
        return None  # it has more digits than the type
    value: SqlValue = best if called in ("MIN", "MAX") else total
    return value


def _is_beyond(called: str, value: object, best: object) -> bool:
    """Returns whether the value replaces the smallest or largest of the values before it. NaN is the largest number."""
    new, held = sort_key(value), sort_key(best)
    return bool(new < held if called == "MIN" else new > held)


def sort_key(value: object) -> Any:
    """Returns a key that sorts as Spark sorts, with a hash: null comes first, NaN is the largest number, and equals itself.

    Arrays and structs compare part by part, and an array that begins another one is the smaller one.
    """
    match value:
        case None:
            return (0,)
        case float():
            return (1, value != value, 0.0 if value != value else value)
        case list():
            return (1, *map(sort_key, value))
        case dict():
            return (1, *map(sort_key, value.values()))
    return (1, value)
