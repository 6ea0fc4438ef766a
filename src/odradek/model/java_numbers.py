"""Numbers that are written as text, as Java reads them.

Python's `int`, `float` and `Decimal` read more: underscores, digits of other scripts, blanks, `inf` and `nan`. Java refuses
such text, so another client of the same topic would refuse what Python accepts.
"""

from __future__ import annotations

import math
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
_DIGITS_MAX: Final = 18
"""Any number of this many digits has 64 bits."""
_BLANKS: Final = "".join(map(chr, range(33)))
"""Java's `trim` removes these characters."""


def trimmed(text: str) -> str:
    """Leaves out what Java's `trim` does at both ends: blanks and control characters, but no blanks of other scripts."""
    return text.strip(_BLANKS)


def is_digits(text: str, at_most: int = _DIGITS_MAX) -> bool:
    """Tells whether text is `at_most` digits from 0 to 9 and nothing else.

    Python's own methods count digits of other scripts, and superscripts, which `int` refuses.
    """
    return len(text) <= at_most and text.isascii() and text.isdigit()  # digits: ASCII


def whole_number(text: str) -> int:
    """Reads text as `Long.parseLong` does, of any length. Raises ValueError for anything else.

    Kafka trims the text of a setting before: `whole_number(trimmed(text))`.
    """
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"{text!r:.80} is no whole number")
    return int(text)


def finite_number(text: str) -> float:
    """Reads digits with a point or an exponent, perhaps with a sign. Raises ValueError for anything else, and for infinity."""
    number = float(decimal_number(text))
    if not math.isfinite(number):
        raise ValueError(f"{text!r:.80} is too large")
    return number


def decimal_number(text: str) -> Decimal:
    """Reads text as `new BigDecimal` does. Raises ValueError for anything else."""
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(f"{text!r:.80} is no number")
    try:
        return Decimal(text)  # digits: as the pattern allows
    except InvalidOperation as error:
        raise ValueError(f"{text!r:.80} is no number") from error


def double_number(text: str) -> float:
    """Reads text as `Double.parseDouble` does: too large a number is Infinity. Raises ValueError for anything else."""
    word = trimmed(text)
    if word in _NAMED:
        return _NAMED[word]
    match = _DOUBLE.fullmatch(word)
    if match is not None:
        return float(match["number"])
    match = _HEXADECIMAL.fullmatch(word)
    if match is None:
        raise ValueError(f"{text!r:.80} is no number")
    try:
        return float.fromhex(match["number"])
    except OverflowError:
        return float("-inf" if match["number"].startswith("-") else "inf")
