"""CAST of one value, as `analysis/casts.py` has Spark compute it: `tests/spark/sql/test_sql_casts.py` compares both.

Text as a DATE or a TIMESTAMP is read in ISO's form alone: Spark's parser reads more, such as `2020-1-2`.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, Final

from odradek.model.java_numbers import double_number
from odradek.values.exact_numbers import BIGINT_BITS, INT_BITS, rounded_decimal, whole
from odradek.values.java_text import decimal_text, double_text
from odradek.values.times import moment_text, time_of_text
from odradek.values.types import SqlType

_DAY_MS: Final = 86_400_000
_BLANKS: Final = "".join(map(chr, (*range(33), 127)))
"""What Spark leaves out at both ends of a text: blanks and control characters of ASCII."""
_TRUE: Final = ("true", "t", "tr", "tru", "yes", "ye", "y")
_NAMED: Final = {
    **{f"{sign}{name}": float(f"{sign}inf") for sign in ("", "+", "-") for name in ("inf", "infinity")},
    "nan": math.nan,
}
"""Numbers that Spark reads by name, in any case."""


def cast_value(value: Any, source: SqlType, target: SqlType) -> Any:
    """Returns CAST(value AS target) between types without parts, if the cast exists. ValueError where a query has null."""
    if value is None or source == target:
        return value
    match target.kind:
        case "STRING":
            return _text(value, source)
        case "BOOLEAN":
            return value.strip(" ").lower() in _TRUE
        case "INTEGER":
            return _whole(value, INT_BITS)
        case "BIGINT":
            return _whole(value, BIGINT_BITS)
        case "DOUBLE":
            return _double(value)
        case "DECIMAL":
            return _decimal(value, target)
        case "TIMESTAMP" if source.kind == "DATE":
            return value * _DAY_MS
        case "DATE" if source.kind == "TIMESTAMP":
            return value // _DAY_MS
        case "TIME" if source.kind == "TIMESTAMP":
            return value % _DAY_MS
        case "DATE" | "TIME" | "TIMESTAMP":
            return _time(value, target)
    raise ValueError(f"Cast of {source} to {target} is not supported")


def _text(value: Any, source: SqlType) -> str:
    match source.kind:
        case "BOOLEAN":
            return str(value).lower()
        case "DOUBLE":
            return double_text(value)
        case "DECIMAL":
            return decimal_text(value, source.scale)
        case "DATE":
            return moment_text(value * _DAY_MS).partition("T")[0]
        case "TIMESTAMP":
            return moment_text(value)
        case "TIME":
            clock = moment_text(value).partition("T")[2]
            return clock if value % 1000 else clock[:8] if value % 60_000 else clock[:5]
    return str(value)


def _whole(value: Any, bits: int) -> int:
    """Drops the digits after the point. As in Java, a DOUBLE stops at the limits, and other numbers lose their upper bits."""
    if isinstance(value, str):
        return whole(value.strip(_BLANKS), bits)
    low, high = -(1 << bits), (1 << bits) - 1
    if isinstance(value, float):
        return 0 if math.isnan(value) else int(min(max(value, low), high))
    return (int(value) - low) % (1 << (bits + 1)) + low


def _double(value: Any) -> float:
    if not isinstance(value, str):
        return float(value)
    word = value.strip(_BLANKS)
    return _NAMED[word.lower()] if word.lower() in _NAMED else double_number(word)


def _decimal(value: Any, target: SqlType) -> Decimal:
    if isinstance(value, float):
        return rounded_decimal(repr(value), target)
    return rounded_decimal(value.strip(_BLANKS) if isinstance(value, str) else value, target)


def _time(text: str, target: SqlType) -> int:
    word = text if target.kind == "TIME" else text.strip(_BLANKS)
    if word != word.strip():
        raise ValueError(f"{text!r:.80} is no {target}")
    return time_of_text(word, target)
