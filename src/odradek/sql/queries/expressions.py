"""Expressions that Python computes exactly as Spark would: columns, constants, comparisons, AND/OR/NOT, whole numbers.

Everything else needs Spark (`NeedsSpark`). So a pull query by key, or a filter of a stream, is answered without a JVM, and the
result is the same as with one. A comparison with null is false, as ksqlDB has it, and so is one with NaN.
"""

from __future__ import annotations

import base64
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

from sqlglot import exp

from odradek.sql.analysis.casts import comparison_with_null
from odradek.sql.analysis.listed import beside, in_one_type
from odradek.sql.analysis.times import TIME_COLUMNS, epoch_ms
from odradek.sql.language.dialect import chained, position_of
from odradek.sql.queries.casts import cast_value
from odradek.values.errors import SqlError, nearest
from odradek.values.exact_numbers import (
    BIGINT_BITS,
    INT_BITS,
    double,
    exact_decimal,
    whole_of_literal,
)
from odradek.values.rows import Row
from odradek.values.times import time_of_text
from odradek.values.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    SqlType,
    are_comparable,
    can_cast,
    common_type,
    decimal_of,
    parse_type,
)

Compare: TypeAlias = Callable[[Any, Any], bool]
"""Compares two values of one type, neither of them null."""
Compute: TypeAlias = Callable[[Row], Any]
_COMPARISONS: Final[dict[type[exp.Expr], Compare]] = {
    exp.EQ: operator.eq,
    exp.NEQ: lambda left, right: bool(left != right and left == left and right == right),
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_OF_ORDER: Final = (operator.lt, operator.le, operator.gt, operator.ge)
_ARITHMETIC: Final[dict[type[exp.Expr], Callable[[int, int], int]]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}
_WHOLE: Final = ("INTEGER", "BIGINT")
_TIMES: Final = ("DATE", "TIME", "TIMESTAMP")
_INT_MAX: Final = (1 << 31) - 1
_DAY_MS: Final = 86_400_000
_TIME_NUMBERS: Final = {
    "DATE": (-719_162, 2_932_896),
    "TIME": (0, _DAY_MS - 1),
    "TIMESTAMP": (-62_135_596_800_000, 253_402_300_799_999),
}
"""The first and last number of each type: of the years 1 to 9999, and of one day."""


class NeedsSpark(Exception):
    """Python does not compute this expression."""


@dataclass(frozen=True, slots=True)
class LocalValue:
    """An expression that Python computes.

    `name`: of a column on its own.
    """

    type: SqlType
    of: Compute
    name: str | None = None


@dataclass(frozen=True, slots=True)
class LocalScope:
    """The columns that an expression may name. `aliases`: names of the source, as in `orders.item`."""

    columns: Mapping[str, SqlType]
    aliases: frozenset[str] = frozenset()

    def compiled(self, tree: exp.Expr) -> LocalValue:
        """Compiles an expression. NeedsSpark; SqlError for a column that does not exist, or types that cannot be compared."""
        comparison = _COMPARISONS.get(type(tree))
        if comparison is not None:
            return self._comparison(tree, comparison)
        compile_it = _COMPILED.get(type(tree))
        if compile_it is None:
            raise NeedsSpark
        return compile_it(self, tree)

    def condition(self, tree: exp.Expr) -> Callable[[Row], bool]:
        """Compiles the condition of a WHERE: a row with an unknown result does not pass."""
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
        value = self.compiled(tree.this)
        low = self._value_test(value, tree.this, tree.args["low"], operator.ge)
        high = self._value_test(value, tree.this, tree.args["high"], operator.le)

        def of(row: Row) -> bool:
            compared = value.of(row)
            return low(compared, row) and high(compared, row)

        return LocalValue(BOOLEAN, of)

    def _value_test(
        self,
        value: LocalValue,
        tree: exp.Expr,
        other: exp.Expr,
        compare: Compare,
        right_value: LocalValue | None = None,
    ) -> Callable[[Any, Row], bool]:
        """Returns a test of a value that is computed once per row: operands that nest would be computed again and again."""
        _check_order(value, tree, compare)
        sides = self._sides(_as_operand(value), tree, other, right_value)
        is_not_text = value.type != STRING
        left, right = sides.left, sides.right

        def of(compared: Any, row: Row) -> bool:
            left_value, right_value = left(compared if is_not_text else row), right(row)
            return (
                left_value is not None and right_value is not None and bool(compare(left_value, right_value))
            )

        return of

    def _negative(self, tree: exp.Neg) -> LocalValue:
        if isinstance(tree.this, exp.Literal) and not tree.this.is_string:
            return _number(f"-{tree.this.this}")
        inner = self.compiled(tree.this)
        if not inner.type.is_number:
            raise NeedsSpark
        of, kind = inner.of, inner.type
        return LocalValue(kind, lambda row: None if (value := of(row)) is None else _negated(value, kind))

    def _both(self, tree: exp.And | exp.Or) -> LocalValue:
        """Compiles a chain of ANDs, or of ORs, of any length."""
        parts = [self._condition(part) for part in chained(tree)]
        decides = isinstance(tree, exp.Or)

        def of(row: Row) -> bool | None:
            is_unknown: bool = False
            for part in parts:
                value: bool | None = part(row)
                if value is decides:
                    return decides
                is_unknown = is_unknown or value is None
            return None if is_unknown else not decides

        return LocalValue(BOOLEAN, of)

    def _in(self, tree: exp.In) -> LocalValue:
        """Constants are looked up in a set: a list may have thousands of them."""
        if tree.args.get("query") is not None or not tree.expressions:
            raise NeedsSpark
        value = self.compiled(tree.this)
        sets: dict[bool, set[Any]] = {}
        tests: list[Callable[[Any, Row], bool]] = []
        written = beside(tree.this, tree.expressions)
        members = in_one_type(written, self.compiled, lambda part: part.type, value.type)
        for member, right in members:
            if isinstance(member, exp.Null):
                continue  # nothing equals it
            sides = self._sides(value, tree.this, member, right)
            if isinstance(member, exp.Literal | exp.Neg) and member.find(exp.Column) is None:
                sets.setdefault(sides.as_double, set()).add(sides.right({}))
            else:
                tests.append(self._value_test(value, tree.this, member, operator.eq, right))

        def of(row: Row) -> bool:
            compared = value.of(row)
            if compared is None:
                return False
            if any(
                (float(compared) if as_double else compared) in known for as_double, known in sets.items()
            ):
                return True
            return any(test(compared, row) for test in tests)

        return LocalValue(BOOLEAN, of)

    def _comparison(self, tree: exp.Expr, compare: Compare) -> LocalValue:
        value = self.compiled(tree.this)
        _check_order(value, tree.this, compare)
        return LocalValue(BOOLEAN, self._compared(value, tree.this, tree.expression, compare))

    def _compared(self, left: LocalValue, left_tree: exp.Expr, right: exp.Expr, compare: Compare) -> Compute:
        return _compares(self._sides(left, left_tree, right), compare)

    def _sides(
        self,
        left: LocalValue,
        left_tree: exp.Expr,
        right_tree: exp.Expr,
        right_value: LocalValue | None = None,
    ) -> _Sides:
        """Returns both sides as values that Python compares. ROWTIME and the bounds of windows compare with times as texts.
        `right_value`: the right side, where it is compiled already.
        """
        right = right_value or self.compiled(right_tree)
        for column, text, is_left in ((left_tree, right_tree, False), (right_tree, left_tree, True)):
            if _is_text(text) and isinstance(column, exp.Column) and column.name in TIME_COLUMNS:
                moment = epoch_ms(text.this, position_of(column))
                constant: Compute = lambda row, moment=moment: moment  # type: ignore[misc]  # noqa: E731
                return _Sides(constant, right.of) if is_left else _Sides(left.of, constant)
        return _comparable(left, right, right_tree)

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


@dataclass(frozen=True, slots=True)
class _Sides:
    """The two sides of a comparison.

    `as_double`: both sides are converted to DOUBLE.
    """

    left: Compute
    right: Compute
    as_double: bool = False


def _check_order(value: LocalValue, tree: exp.Expr, compare: Compare) -> None:
    if value.type == BOOLEAN and compare in _OF_ORDER:
        raise SqlError("a BOOLEAN is not smaller or larger than another", position_of(tree), "Write = or <>.")


def _as_operand(value: LocalValue) -> LocalValue:
    """Returns the same value, whose computation takes the value itself. A text keeps its own: it may be a constant time."""
    return value if value.type == STRING else LocalValue(value.type, lambda computed: computed, value.name)


def _compares(sides: _Sides, compare: Compare) -> Compute:
    left, right = sides.left, sides.right

    def of(row: Row) -> bool:
        left_value, right_value = left(row), right(row)
        return left_value is not None and right_value is not None and bool(compare(left_value, right_value))

    return of


def _is_text(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Literal) and bool(tree.is_string)


def _comparable(left: LocalValue, right: LocalValue, tree: exp.Expr) -> _Sides:
    kinds = (left.type.kind, right.type.kind)
    if "NULL" in kinds:
        raise comparison_with_null(left.type, right.type).at(position_of(tree))
    if left.type.is_number and right.type.is_number:
        if "DOUBLE" in kinds:
            return _Sides(_as_double(left.of), _as_double(right.of), as_double=True)
        return _Sides(left.of, right.of)
    if left.type == right.type and left.type.kind in ("STRING", "BOOLEAN", "BYTES", *_TIMES):
        return _Sides(left.of, right.of)
    for text, other, is_left in ((left, right, True), (right, left, False)):
        if text.type == STRING and other.type.kind in _TIMES:
            if text.name is not None:
                raise NeedsSpark
            written = text.of({})
            try:
                value = time_of_text(written, other.type)
            except ValueError as error:
                raise SqlError(f"'{written}' is no {other.type}: {error}", position_of(tree)) from error
            constant: Compute = lambda row, value=value: value  # type: ignore[misc]  # noqa: E731
            return _Sides(constant, other.of) if is_left else _Sides(other.of, constant)
    if set(kinds) == {"DATE", "TIMESTAMP"}:
        return _Sides(_as_moment(left), _as_moment(right))
    if not are_comparable(left.type, right.type):
        raise SqlError(f"{left.type} and {right.type} cannot be compared", position_of(tree))
    raise NeedsSpark


def _negated(value: Any, kind: SqlType) -> Any:
    """A decimal keeps its digits: Python's minus would round it to 28. The smallest whole number wraps, as Java's."""
    if isinstance(value, Decimal):
        return value.copy_negate()
    bits = {"INTEGER": INT_BITS, "BIGINT": BIGINT_BITS}.get(kind.kind)
    return value if bits is not None and value == -(1 << bits) else -value


def _as_double(of: Compute) -> Compute:
    return lambda row: None if (value := of(row)) is None else float(value)


def _as_moment(value: LocalValue) -> Compute:
    """Milliseconds of a TIMESTAMP, or of the midnight that a DATE begins with."""
    of = value.of
    if value.type.kind == "TIMESTAMP":
        return of
    return lambda row: None if (days := of(row)) is None else days * _DAY_MS


def _literal(tree: exp.Literal) -> LocalValue:
    text: str = tree.this
    return LocalValue(STRING, lambda row: text) if tree.is_string else _number(text)


def _number(text: str) -> LocalValue:
    """Returns a number as it is written, perhaps with a sign. SqlError."""
    if "e" in text.lower():
        number = double(text)
        return LocalValue(DOUBLE, lambda row: number)
    if "." in text:
        exact = Decimal(text)
        digits = exact.as_tuple()
        scale = -int(digits.exponent)
        return LocalValue(decimal_of(max(len(digits.digits), scale), scale), lambda row: exact)
    value = whole_of_literal(text)
    return LocalValue(INTEGER if -_INT_MAX - 1 <= value <= _INT_MAX else BIGINT, lambda row: value)


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
EVALUATED: Final = frozenset((*_COMPARISONS, *_COMPILED))
"""The nodes that Python computes. `tests/spark/sql/test_sql_evaluators.py` compares each of them with Spark, over operands of
every type: a node that it does not compare must not be here.
"""


# ---- constants


def constant(tree: exp.Expr, kind: SqlType) -> Any:
    """Returns the value of INSERT VALUES for a column of a type. SqlError for what is no constant of it."""
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
    if isinstance(tree, exp.Paren):
        return _constant(tree.this, kind)
    if isinstance(tree, exp.Cast):
        return _cast(tree, kind)
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


def _cast(tree: exp.Cast, column: SqlType) -> Any:
    """Returns a CAST of a constant, as a query computes it. Raises ValueError where the query has null."""
    kind = parse_type(tree.args["to"].name)
    if not kind.is_simple:
        return _constant(tree.this, kind)
    if common_type(kind, column) != column and not (
        kind.kind == "STRING" and column.kind in (*_TIMES, "BYTES")
    ):
        raise ValueError(f"it is a {kind}")
    source = _cast_source(tree.this)
    if source is None:
        return _of_kind(_constant(tree.this, kind), kind)
    if not can_cast(source, kind):
        raise ValueError(f"Cast of {source} to {kind} is not supported")
    return cast_value(_constant(tree.this, source), source, kind)


def _cast_source(tree: exp.Expr) -> SqlType | None:
    """Returns the type of what is cast. None: ARRAY, MAP and STRUCT, whose constants have the type of the column."""
    while isinstance(tree, exp.Paren):
        tree = tree.this
    if isinstance(tree, exp.Cast):
        return parse_type(tree.args["to"].name)
    return None if isinstance(tree, exp.Array | exp.Anonymous) else LocalScope({}).compiled(tree).type


def _time_number(value: object, kind: SqlType) -> int:
    """Returns a number that is a day or milliseconds, as records have it. Raises ValueError for any other value."""
    low, high = _TIME_NUMBERS[kind.kind]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError("it is out of range" if type(value) is int else f"it is no {kind}")
    return value


def _of_kind(value: Any, kind: SqlType) -> Any:
    """A number becomes a wider one, as ksqlDB's strict coercion has it. Raises ValueError for any other change."""
    if value is None:
        return None
    is_text = isinstance(value, str)
    match kind.kind:
        case "INTEGER" | "BIGINT":
            bits = INT_BITS if kind.kind == "INTEGER" else BIGINT_BITS
            if (
                is_text
                or isinstance(value, bool)
                or int(value) != value
                or not -(1 << bits) <= value < 1 << bits
            ):
                raise ValueError("it does not fit")
            return int(value)
        case "DOUBLE" | "DECIMAL":
            if is_text or isinstance(value, bool):
                raise ValueError("it is no number")
            return float(value) if kind.kind == "DOUBLE" else exact_decimal(str(value), kind)
        case "STRING":
            if not is_text:
                raise ValueError("it is no text")
        case "BOOLEAN":
            if not isinstance(value, bool):
                raise ValueError("it is no BOOLEAN")
        case "DATE" | "TIME" | "TIMESTAMP":
            return time_of_text(value, kind) if is_text else _time_number(value, kind)
        case "BYTES":
            return value if isinstance(value, bytes) else base64.b64decode(value, validate=True)
    return value
