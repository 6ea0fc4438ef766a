"""Numbers as Java writes them: `Double.toString`, and decimals with their scale."""

from __future__ import annotations

import math
from decimal import Decimal


def double_text(value: float) -> str:
    """Writes a double as Double.toString does since JDK 19: shortest digits, an exponent below 0.001 and from 10,000,000 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign, digits, exponent = Decimal(_digits(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)
    prefix = "-" if sign else ""
    if -3 < point <= 7:
        if point <= 0:
            return f"{prefix}0.{'0' * -point}{text}"
        whole, part = text[:point].ljust(point, "0"), text[point:]
        return f"{prefix}{whole}.{part or '0'}"
    return f"{prefix}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _digits(value: float) -> str:
    """Returns the shortest digits of a double. Java writes at least two digits, which changes the digits near zero: the
    smallest double is 4.9E-324, where Python writes 5e-324."""
    shortest, two = repr(value), f"{value:.1e}"
    return two if float(two) == value else shortest


def decimal_text(value: Decimal, scale: int) -> str:
    """Writes a decimal without an exponent, with all digits of its scale."""
    return f"{value:.{scale}f}"
