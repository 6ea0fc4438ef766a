"""Constant arguments of functions: text as a literal of Spark SQL, and back."""

from __future__ import annotations

import re
from typing import Final

_NULL: Final = re.compile(r"(?:null|cast\(null as [^()]*\))", re.IGNORECASE)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}


def quoted(text: str) -> str:
    """Returns the literal of Spark SQL for this text."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def literal(sql: str) -> str | None:
    """Returns the text of a literal '…' of Spark SQL; None for SQL that is not one literal."""
    sql = sql.strip()
    if len(sql) < 2 or sql[0] != "'" or sql[-1] != "'":
        return None
    text, index = "", 1
    while index < len(sql) - 1:
        letter = sql[index]
        if letter == "\\" and index + 2 < len(sql):
            index += 1
            text += _ESCAPES.get(sql[index], sql[index])
        elif letter == "'":
            if sql[index + 1] != "'" or index + 2 >= len(sql):
                return None
            index += 1
            text += "'"
        else:
            text += letter
        index += 1
    return text


def is_null(sql: str) -> bool:
    return _NULL.fullmatch(sql.strip()) is not None
