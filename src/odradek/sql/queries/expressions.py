"""Expressions that Python computes exactly as Spark would: columns, constants, comparisons, AND/OR/NOT, whole numbers.

Everything else needs Spark (`NeedsSpark`). So a pull query by key, or a filter of a stream, is answered without a JVM, and it
says the same as it would with one. Null is as in SQL: unknown.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

from sqlglot import exp

from odradek.sql.errors import SqlError, nearest
from odradek.sql.exact_numbers import rounded_decimal
from odradek.sql.language.dialect import position_of
from odradek.sql.queries.row_codec import UnreadableRecord, of_text
from odradek.sql.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, NULL, STRING, SqlType, decimal_of

Row: TypeAlias = Mapping[str, Any]
Compute: TypeAlias = Callable[[Row], Any]
_COMPARISONS: Final[dict[type[exp.Expr], Callable[[Any, Any], bool]]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_ARITHMETIC: Final[dict[type[exp.Expr], Callable[[int, int], int]]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}
_WHOLE: Final = ("INTEGER", "BIGINT")
_TIMES: Final = ("DATE", "TIME", "TIMESTAMP")
_INT_MAX: Final = (1 << 31) - 1


class NeedsSpark(Exception):
    """Python does not compute this expression."""


@dataclass(frozen=True, slots=True)
class LocalValue:
    """`name`: of a column on its own."""

    type: SqlType
    of: Compute
    name: str | None = None


@dataclass(frozen=True, slots=True)
class LocalScope:
    """The columns that an expression may name. `aliases`: names of the source, as in `orders.item`."""

    columns: Mapping[str, SqlType]
    aliases: frozenset[str] = frozenset()

    def compiled(self, tree: exp.Expr) -> LocalValue:
        """NeedsSpark; SqlError for a column that is not there, or types that cannot be compared."""
        comparison = _COMPARISONS.get(type(tree))
        if comparison is not None:
            return self._comparison(tree, comparison)
        compile_it = _COMPILED.get(type(tree))
        if compile_it is None:
            raise NeedsSpark
        return compile_it(self, tree)

    def condition(self, tree: exp.Expr) -> Callable[[Row], bool]:
        """Of a WHERE: what is unknown does not pass."""
        of = self._condition(tree)
        return lambda row: of(row) is True

    def _condition(self, tree: exp.Expr) -> Compute:
        computed = self.compiled(tree)
        if computed.type not in (BOOLEAN, NULL):
            raise SqlError(f"a condition must be a BOOLEAN, and this is a {computed.type}", position_of(tree))
        return computed.of

    def _column(self, tree: exp.Column) -> LocalValue:
        name, table = tree.name, tree.table
        if table and table not in self.aliases:
            raise NeedsSpark
        kind = self.columns.get(name)
        if kind is None:
            raise SqlError(
                f"Column '{name}' cannot be resolved.", position_of(tree), nearest(name, self.columns)
            )
        return LocalValue(kind, lambda row: row[name], name)

    def _not(self, tree: exp.Not) -> LocalValue:
        inner = self._condition(tree.this)
        return LocalValue(BOOLEAN, lambda row: None if (value := inner(row)) is None else not value)

    def _is_null(self, tree: exp.Is) -> LocalValue:
        if not isinstance(tree.expression, exp.Null):
            raise NeedsSpark
        of = self.compiled(tree.this).of
        return LocalValue(BOOLEAN, lambda row: of(row) is None)

    def _between(self, tree: exp.Between) -> LocalValue:
        low = exp.GTE(this=tree.this, expression=tree.args["low"])
        high = exp.LTE(this=tree.this, expression=tree.args["high"])
        return self.compiled(exp.And(this=low, expression=high))

    def _negative(self, tree: exp.Neg) -> LocalValue:
        inner = self.compiled(tree.this)
        if not inner.type.is_number:
            raise NeedsSpark
        of = inner.of
        return LocalValue(inner.type, lambda row: None if (value := of(row)) is None else _negated(value))

    def _both(self, tree: exp.And | exp.Or) -> LocalValue:
        left, right = self._condition(tree.this), self._condition(tree.expression)
        decides = isinstance(tree, exp.Or)

        def of(row: Row) -> bool | None:
            first: bool | None = left(row)
            if first is decides:
                return decides
            second: bool | None = right(row)
            if second is decides:
                return decides
            return None if first is None or second is None else not decides

        return LocalValue(BOOLEAN, of)

    def _in(self, tree: exp.In) -> LocalValue:
        if tree.args.get("query") is not None or not tree.expressions:
            raise NeedsSpark
        parts = [exp.EQ(this=tree.this, expression=member) for member in tree.expressions]
        tests = [self.compiled(part).of for part in parts]

        def of(row: Row) -> bool | None:
            answers = [test(row) for test in tests]
            return True if True in answers else None if None in answers else False

        return LocalValue(BOOLEAN, of)

    def _comparison(self, tree: exp.Expr, compare: Callable[[Any, Any], bool]) -> LocalValue:
        left, right = self.compiled(tree.this), self.compiled(tree.expression)
        first, second = _comparable(left, right, tree)

        def of(row: Row) -> bool | None:
            left_value, right_value = first(row), second(row)
            return None if left_value is None or right_value is None else compare(left_value, right_value)

        return LocalValue(BOOLEAN, of)

    def _arithmetic(self, tree: exp.Expr) -> LocalValue:
        left, right = self.compiled(tree.this), self.compiled(tree.expression)
        if left.type.kind not in _WHOLE or right.type.kind not in _WHOLE:
            raise NeedsSpark
        work = _ARITHMETIC[type(tree)]
        kind = BIGINT if BIGINT in (left.type, right.type) else INTEGER
        bits = 64 if kind is BIGINT else 32
        first, second = left.of, right.of

        def of(row: Row) -> int | None:
            left_value, right_value = first(row), second(row)
            if left_value is None or right_value is None:
                return None
            whole: int = work(left_value, right_value)
            return (whole + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))  # it wraps, as Java's

        return LocalValue(kind, of)


def _comparable(left: LocalValue, right: LocalValue, tree: exp.Expr) -> tuple[Compute, Compute]:
    kinds = (left.type.kind, right.type.kind)
    if "NULL" in kinds:
        return left.of, right.of
    if left.type.is_number and right.type.is_number:
        if "DOUBLE" in kinds:
            return _as_double(left.of), _as_double(right.of)
        return left.of, right.of
    if left.type == right.type and left.type.kind in ("STRING", "BOOLEAN", "BYTES", *_TIMES):
        return left.of, right.of
    for text, other, is_left in ((left, right, True), (right, left, False)):
        if text.type == STRING and other.type.kind in _TIMES:
            if text.name is not None:
                raise NeedsSpark
            written = text.of({})
            try:
                value = of_text(written, other.type)
            except (ValueError, UnreadableRecord) as error:
                raise SqlError(f"'{written}' is no {other.type}", position_of(tree)) from error
            constant: Compute = lambda row, value=value: value  # type: ignore[misc]  # noqa: E731
            return (constant, other.of) if is_left else (other.of, constant)
    if left.type.is_simple and right.type.is_simple and left.type != right.type:
        raise SqlError(f"{left.type} and {right.type} cannot be compared", position_of(tree))
    raise NeedsSpark


def _negated(value: Any) -> Any:
    """A decimal keeps its digits: Python's minus would round it to 28."""
    return value.copy_negate() if isinstance(value, Decimal) else -value


def _as_double(of: Compute) -> Compute:
    return lambda row: None if (value := of(row)) is None else float(value)


def _literal(tree: exp.Literal) -> LocalValue:
    text: str = tree.this
    if tree.is_string:
        return LocalValue(STRING, lambda row: text)
    if re.fullmatch(r"\d+", text):
        whole = int(text)
        return LocalValue(INTEGER if whole <= _INT_MAX else BIGINT, lambda row: whole)
    if "e" in text.lower():
        number = float(text)
        return LocalValue(DOUBLE, lambda row: number)
    exact = Decimal(text)
    digits = exact.as_tuple()
    scale = -int(digits.exponent)
    return LocalValue(decimal_of(max(len(digits.digits), scale), scale), lambda row: exact)


def _boolean(tree: exp.Expr) -> LocalValue:
    value = bool(tree.this)
    return LocalValue(BOOLEAN, lambda row: value)


_COMPILED: Final[dict[type[exp.Expr], Callable[[LocalScope, Any], LocalValue]]] = {
    exp.Paren: lambda scope, tree: scope.compiled(tree.this),
    exp.Column: LocalScope._column,
    exp.Literal: lambda scope, tree: _literal(tree),
    exp.Boolean: lambda scope, tree: _boolean(tree),
    exp.Null: lambda scope, tree: LocalValue(NULL, lambda row: None),
    exp.Neg: LocalScope._negative,
    exp.And: LocalScope._both,
    exp.Or: LocalScope._both,
    exp.Not: LocalScope._not,
    exp.Is: LocalScope._is_null,
    exp.Between: LocalScope._between,
    exp.In: LocalScope._in,
    exp.Add: LocalScope._arithmetic,
    exp.Sub: LocalScope._arithmetic,
    exp.Mul: LocalScope._arithmetic,
}


# ---- constants


def constant(tree: exp.Expr, kind: SqlType) -> Any:
    """The value of INSERT VALUES for a column of a type. SqlError for what is no constant of it."""
    try:
        return _of_kind(_constant(tree, kind), kind)
    except NeedsSpark:
        raise SqlError(
            f"{tree.sql()} is no constant",
            position_of(tree),
            "INSERT INTO … VALUES takes constants, ARRAY[…], MAP(…) and STRUCT(…); for functions write INSERT INTO … SELECT.",
        ) from None
    except (ValueError, TypeError, ArithmeticError) as error:
        raise SqlError(
            f"Expected type {kind} for field but got {tree.sql()}: {error}", position_of(tree)
        ) from error


def _constant(tree: exp.Expr, kind: SqlType) -> Any:
    if isinstance(tree, exp.Paren | exp.Cast):
        return _constant(tree.this, kind)
    if isinstance(tree, exp.Array):
        if kind.kind != "ARRAY":
            raise ValueError("it is an ARRAY")
        return [constant(member, kind.element) for member in tree.expressions]
    if isinstance(tree, exp.Anonymous) and tree.name.upper() in ("MAP", "STRUCT"):
        if kind.kind != tree.name.upper():
            raise ValueError(f"it is a {tree.name.upper()}")
        return dict(_member(member, kind) for member in tree.expressions)
    return LocalScope({}).compiled(tree).of({})


def _member(member: exp.Expr, kind: SqlType) -> tuple[Any, Any]:
    if not isinstance(member, exp.PropertyEQ):
        raise NeedsSpark
    if kind.kind == "MAP":
        return constant(member.this, kind.map_key), constant(member.expression, kind.element)
    return member.this.name, constant(member.expression, kind.field(member.this.name))


def _of_kind(value: Any, kind: SqlType) -> Any:
    if value is None:
        return None
    match kind.kind:
        case "INTEGER" | "BIGINT":
            bits = 31 if kind is INTEGER or kind.kind == "INTEGER" else 63
            if isinstance(value, bool) or int(value) != value or not -(1 << bits) <= value < 1 << bits:
                raise ValueError("it does not fit")
            return int(value)
        case "DOUBLE":
            return float(value)
        case "DECIMAL":
            return rounded_decimal(str(value), kind)
        case "STRING":
            if not isinstance(value, str):
                raise ValueError("it is no text")
        case "BOOLEAN":
            if not isinstance(value, bool):
                raise ValueError("it is no BOOLEAN")
        case "BYTES" | "DATE" | "TIME" | "TIMESTAMP":
            return of_text(value, kind) if isinstance(value, str) else int(value)
    return value
