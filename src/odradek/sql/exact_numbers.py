"""Numbers of columns as records have them: whole ones in their range, decimals with all their digits.

Python's own decimal context rounds in silence at 28 digits. A DECIMAL has up to 38, and a sum of them more: every operation on
decimals names the context of this file.
"""

from __future__ import annotations

from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from typing import Any, Final

from odradek.sql.types import SqlType

INT_BITS: Final = 31
BIGINT_BITS: Final = 63
"""Of the number, without its sign."""
_DIGITS_MAX: Final = 19
"""Of a BIGINT."""
WIDE: Final = Context(prec=76, traps=[InvalidOperation, DivisionByZero, Overflow])
"""Twice the digits of the widest DECIMAL. More of them are an InvalidOperation of `quantize`, never a rounding."""


def whole(value: Any, bits: int) -> int:
    """What stands behind the point is left out, as Java does. ValueError for what is no number of so many bits.

    How large a decimal is, is looked at first: 1e999999999 is short as text, and has a billion digits as an integer.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise ValueError(f"{value!r:.80} is no whole number")
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() >= _DIGITS_MAX:
        raise ValueError(f"{value!s:.80} has more than {bits + 1} bits")
    try:
        number = int(value)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{value!r:.80} is no whole number") from error
    if not -(1 << bits) <= number < (1 << bits):
        raise ValueError(f"{number!s:.80} has more than {bits + 1} bits")
    return number


def double(value: float | Decimal | str) -> float:
    """Infinity for what is too large, as Java does. ValueError for a text that is no number."""
    try:
        return float(value)
    except OverflowError:
        return float("-inf" if value < 0 else "inf")  # type: ignore[operator]  # only a whole number overflows


def rounded_decimal(value: float | Decimal | str, kind: SqlType) -> Decimal:
    """With as many places behind the point as the type has. ValueError for what is no number, and for too large a one."""
    try:
        number = Decimal(value)
        rounded = number.quantize(Decimal(1).scaleb(-kind.scale), context=WIDE)
    except InvalidOperation as error:
        raise ValueError(f"{value!r:.80} is no {kind}") from error
    if not rounded.is_finite() or (rounded and rounded.adjusted() >= kind.precision - kind.scale):
        raise ValueError(f"{value!s:.80} does not fit into {kind}")
    return rounded


def exact_decimal(value: float | Decimal | str, kind: SqlType) -> Decimal:
    """As `rounded_decimal`; ValueError for more places behind the point than the type has."""
    rounded = rounded_decimal(value, kind)
    if rounded != Decimal(value):
        raise ValueError(f"{value!s:.80} does not fit into {kind}")
    return rounded
