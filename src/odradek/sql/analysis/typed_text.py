"""Spark SQL with its type: constants, and arithmetic by ksqlDB's rules."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final, NamedTuple

from odradek.sql.analysis.casts import converted
from odradek.values.errors import SqlError
from odradek.values.exact_numbers import whole_of_literal
from odradek.values.types import (
    BIGINT,
    DECIMAL_PRECISION_MAX,
    DOUBLE,
    INTEGER,
    SqlType,
    as_decimal,
    common_type,
    decimal_of,
)

_INT_MAX: Final = 2**31 - 1


class TypedText(NamedTuple):
    """Spark SQL, and the type of what it computes."""

    text: str
    type: SqlType


def quoted(text: str) -> str:
    """Returns a text as a literal of Spark."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def number(text: str) -> TypedText:
    """Types a number: INTEGER, or BIGINT when it is large; DECIMAL with a point, DOUBLE with an exponent."""
    if "e" in text.lower():
        if math.isinf(float(text)):
            raise SqlError(f"Number overflows DOUBLE: {text}")
        return TypedText(f"cast({quoted(text)} as double)", DOUBLE)
    if "." in text:
        digits = Decimal(text).as_tuple()
        scale = -int(digits.exponent)
        kind = decimal_of(max(len(digits.digits), scale), scale)
        return TypedText(f"cast({quoted(text)} as {kind.ddl})", kind)
    value = whole_of_literal(text)
    if -_INT_MAX - 1 <= value <= _INT_MAX:
        return TypedText(f"({text})" if value < 0 else text, INTEGER)
    return TypedText(f"({text}L)", BIGINT)


def arithmetic(sign: str, left: TypedText, right: TypedText) -> TypedText:
    """The result is null where it cannot be computed. Whole numbers that grow too large begin again at the other end."""
    common = common_type(left.type, right.type)
    assert common is not None
    if common.kind == "DECIMAL":
        return _decimal_arithmetic(sign, left, right)
    first, second = converted(*left, common), converted(*right, common)
    if sign == "/" and common.kind == "DOUBLE":
        return TypedText(f"if({second} = 0, {first} * double('Infinity'), {first} / {second})", common)
    if sign == "/":
        return TypedText(f"cast({first} div nullif({second}, 0) as {common.ddl})", common)
    if sign == "%":
        return TypedText(f"({first} % nullif({second}, 0))", common)
    return TypedText(f"({first} {sign} {second})", common)


def _decimal_arithmetic(sign: str, left: TypedText, right: TypedText) -> TypedText:
    first, second = as_decimal(left.type), as_decimal(right.type)
    kind = _decimal_result(sign, first, second)
    left_text, right_text = converted(*left, first), converted(*right, second)
    function = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide"}.get(sign)
    text = (
        f"{left_text} % nullif({right_text}, 0)"
        if function is None
        else f"{function}({left_text}, {right_text})"
    )
    return TypedText(f"try_cast({text} as {kind.ddl})", kind)


def _decimal_result(sign: str, left: SqlType, right: SqlType) -> SqlType:
    """Returns the type of a result by ksqlDB's rules, which it has from SQL Server."""
    whole = max(left.precision - left.scale, right.precision - right.scale)
    scale = max(left.scale, right.scale)
    match sign:
        case "+" | "-":
            precision = whole + scale + 1
        case "*":
            precision, scale = left.precision + right.precision + 1, left.scale + right.scale
        case "/":
            scale = max(6, left.scale + right.precision + 1)
            precision = left.precision - left.scale + right.scale + scale
        case _:
            precision = min(left.precision - left.scale, right.precision - right.scale) + scale
    precision = min(precision, DECIMAL_PRECISION_MAX)
    return decimal_of(precision, min(scale, precision))
