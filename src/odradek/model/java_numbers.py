"""Numbers that are written as text, as Java reads them.

Python's `int`, `float` and `Decimal` read more: underscores, digits of other scripts, blanks, `inf` and `nan`. Java refuses
such text, so another client of the same topic would refuse what Python accepts.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DOUBLE: Final = re.compile(rf"(?P<number>{_DECIMAL.pattern})[fFdD]?")
_HEXADECIMAL: Final = re.compile(
    r"(?P<number>[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_NAMED: Final = {
    f"{sign}{name}": float(f"{sign}{name}") for sign in ("", "+", "-") for name in ("NaN", "Infinity")
}
_BLANKS: Final = "".join(map(chr, range(33)))
"""Java's `trim` removes these characters."""


def whole_number(text: str) -> int:
    """Reads text as `Long.parseLong` does, of any length. Raises ValueError for anything else."""
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"{text!r:.80} is no whole number")
    return int(text)


def decimal_number(text: str) -> Decimal:
    """Reads text as `new BigDecimal` does. Raises ValueError for anything else."""
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(f"{text!r:.80} is no number")
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text!r:.80} is no number") from error


def double_number(text: str) -> float:
    """Reads text as `Double.parseDouble` does: too large a number is Infinity. Raises ValueError for anything else."""
    trimmed = text.strip(_BLANKS)
    if trimmed in _NAMED:
        return _NAMED[trimmed]
    match = _DOUBLE.fullmatch(trimmed)
    if match is not None:
        return float(match["number"])
    match = _HEXADECIMAL.fullmatch(trimmed)
    if match is None:
        raise ValueError(f"{text!r:.80} is no number")
    try:
        return float.fromhex(match["number"])
    except OverflowError:
        return float("-inf" if match["number"].startswith("-") else "inf")
