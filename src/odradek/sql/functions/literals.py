"""Arguments that are written down in a statement: what Spark SQL text of a constant says."""

from __future__ import annotations

import re
from typing import Final

_NULL: Final = re.compile(r"(?:null|cast\(null as [^()]*\))", re.IGNORECASE)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}


def quoted(text: str) -> str:
    """Returns Spark SQL for this text."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def literal(sql: str) -> str | None:
    """Returns the text that Spark SQL's '…' says; None for what is no single constant text."""
    sql = sql.strip()
    if len(sql) < 2 or sql[0] != "'" or sql[-1] != "'":
        return None
    text, place = "", 1
    while place < len(sql) - 1:
        letter = sql[place]
        if letter == "\\" and place + 2 < len(sql):
            place += 1
            text += _ESCAPES.get(sql[place], sql[place])
        elif letter == "'":
            if sql[place + 1] != "'" or place + 2 >= len(sql):
                return None
            place += 1
            text += "'"
        else:
            text += letter
        place += 1
    return text


def is_null(sql: str) -> bool:
    return _NULL.fullmatch(sql.strip()) is not None
