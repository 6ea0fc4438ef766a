"""LIKE as a regular expression of Java: % is any text, _ is one sign, and after an escape the next sign is literal."""

from __future__ import annotations

import re
from typing import Final

from odradek.sql.functions.literals import quoted

_NO_PATTERN: Final = "cast(null as string)"
_START: Final = r"(?s)\A"
_END: Final = r"\z"
_QUOTED: Final = r"concat('\\Q', right(s_, 1), '\\E')"


def like_regex(pattern: str, escape: str | None) -> str:
    """Returns Spark SQL for a constant pattern; null if it ends with the escape character."""
    regex, is_escaped = "", False
    for letter in pattern:
        if letter == escape and not is_escaped:
            is_escaped = True
            continue
        wild = {"%": ".*", "_": "."}.get(letter)
        regex += re.escape(letter) if is_escaped or wild is None else wild
        is_escaped = False
    return _NO_PATTERN if is_escaped else quoted(f"{_START}{regex}{_END}")


def like_regex_of(pattern: str, escape: str | None) -> str:
    """Returns the same for a pattern that is computed: Spark takes it apart sign by sign, each that escapes with its next."""
    mark = "" if escape is None else re.escape(escape)
    sign = f"(?s){mark}.|." if mark else "(?s)."
    signs = f"regexp_extract_all({pattern}, {quoted(sign)}, 0)"
    wild = "".join(
        f" when {quoted(sign)} then {quoted(meaning)}"
        for sign, meaning in (("%", ".*"), ("_", "."))
        if sign != escape
    )
    parts = f"transform({signs}, s_ -> case s_{wild} else {_QUOTED} end)"
    regex = f"concat({quoted(_START)}, array_join({parts}, ''), {quoted(_END)})"
    if escape is None:
        return regex
    dangling = quoted(f"{_START}(?:{mark}.|[^{mark}])*+{mark}{_END}")
    return f"if({pattern} rlike {dangling}, {_NO_PATTERN}, {regex})"
