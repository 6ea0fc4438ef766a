"""Numbers of columns as records have them: whole ones in their range, decimals with all their digits.

Python's own decimal context rounds in silence at 28 digits. A DECIMAL has up to 38, and a sum of them more: every operation on
decimals names the context of this file.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from typing import Final

from odradek.model.java_numbers import decimal_number, double_number, whole_number
from odradek.values.errors import SqlError
from odradek.values.types import SqlType

INT_BITS: Final = 31
BIGINT_BITS: Final = 63
"""The bits of a BIGINT without its sign."""
_DIGITS_MAX: Final = 19
"""The digits of the largest BIGINT."""
_BYTES_MAX: Final = 31
"""The bytes of a decimal without its point: more than any DECIMAL has."""
WIDE: Final = Context(prec=76, traps=[InvalidOperation, DivisionByZero, Overflow])
"""Twice the digits of the widest DECIMAL. More of them are an InvalidOperation of `quantize`, never a rounding."""


def whole(value: object, bits: int) -> int:
    """Drops the digits after the point, as Java does. ValueError for what is no number of this many bits.

    How large a decimal is, is looked at first: 1e999999999 is short as text, and has a billion digits as an integer.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise ValueError(f"{value!r:.80} is no whole number")
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() >= _DIGITS_MAX:
        raise ValueError(f"{value!s:.80} has more than {bits + 1} bits")
    try:
        number = whole_number(value) if isinstance(value, str) else int(value)  # digits: no text
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{value!r:.80} is no whole number") from error
    if not -(1 << bits) <= number < (1 << bits):
        raise ValueError(f"{number!s:.80} has more than {bits + 1} bits")
    return number


def whole_of_literal(text: str) -> int:
    """Returns a whole number of a statement, perhaps with a sign. Raises SqlError for one that no BIGINT holds."""
    number = whole_number(text) if len(text) <= _DIGITS_MAX + 1 else 1 << BIGINT_BITS
    if not -(1 << BIGINT_BITS) <= number < 1 << BIGINT_BITS:
        raise SqlError(
            f"{text:.40} does not fit into a BIGINT", hint="Write 1.0 for a DECIMAL, or 1e0 for a DOUBLE"
        )
    return number


def double(value: float | Decimal | str) -> float:
    """Infinity for what is too large, as Java does. ValueError for a text that is no number."""
    if isinstance(value, str):
        return double_number(value)
    try:
        return float(value)
    except OverflowError:
        return float("-inf" if value < 0 else "inf")  # only a whole number overflows


def rounded_decimal(value: float | Decimal | str, kind: SqlType) -> Decimal:
    """Decimal rounding: half up, as a CAST does. Raises ValueError for text that is no number, and for too large a number."""
    number = decimal_number(value) if isinstance(value, str) else Decimal(value)
    try:
        rounded = number.quantize(Decimal(1).scaleb(-kind.scale), rounding=ROUND_HALF_UP, context=WIDE)
    except InvalidOperation as error:
        raise ValueError(f"{value!r:.80} is no {kind}") from error
    if not rounded.is_finite() or (rounded and rounded.adjusted() >= kind.precision - kind.scale):
        raise ValueError(f"{value!s:.80} does not fit into {kind}")
    return rounded


def exact_decimal(value: float | Decimal | str, kind: SqlType) -> Decimal:
    """Raises ValueError for more digits after the point than the type has, as `rounded_decimal` does for other values."""
    rounded = rounded_decimal(value, kind)
    if rounded != (decimal_number(value) if isinstance(value, str) else Decimal(value)):
        raise ValueError(f"{value!s:.80} does not fit into {kind}")
    return rounded


def decimal_of_bytes(data: bytes, scale: int, kind: SqlType) -> Decimal:
    """Reads a decimal as Avro and Protobuf store it: a whole number in two's complement, and how many digits follow the point.

    Raises ValueError for one that does not fit the type.
    """
    if len(data) > _BYTES_MAX:
        raise ValueError(f"a decimal of {len(data)} bytes does not fit into {kind}")
    try:
        unscaled = Decimal(int.from_bytes(data, "big", signed=True))  # digits: no text
        return exact_decimal(unscaled.scaleb(-scale, WIDE), kind)
    except ArithmeticError:
        raise ValueError(f"a decimal with the scale {scale} does not fit into {kind}") from None


def unscaled_bytes(value: Decimal, kind: SqlType, size: int | None = None) -> bytes:
    """Returns the shortest bytes of a decimal without its point, as Java writes them, or `size` bytes.

    Raises ValueError for a decimal that needs more bytes.
    """
    unscaled = int(value.scaleb(kind.scale, WIDE).to_integral_value())
    shortest = unscaled.bit_length() // 8 + 1
    if size is not None and size < shortest:
        raise ValueError(f"{value} needs {shortest} bytes, and there are {size}")
    return unscaled.to_bytes(size or shortest, "big", signed=True)
