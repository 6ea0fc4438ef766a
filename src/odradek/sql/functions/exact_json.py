"""Spark SQL that takes a value out of JSON and keeps the digits of numbers.

Spark's `get_json_object` reads a number as a double: 0.10 becomes 0.1, and 12345678901234567890.5 loses digits. A Python
function would keep them, but Spark calls none within a lambda. So the JSON is rewritten before: each number becomes a text
that begins with d, each text begins with s, and null becomes the text n. Names of fields stay as they are, so that paths
still find them. Afterwards
the value is written back. All quantifiers are possessive: Java then matches in a loop, and a long text cannot overflow its
stack.
"""

from __future__ import annotations

from typing import Final

from odradek.model.java_numbers import is_digits
from odradek.sql.functions.literals import literal, quoted
from odradek.sql.functions.python import json_values

_INSIDE: Final = r'(?:[^"\\]|\\.)*+'
_TEXT: Final = f'"{_INSIDE}"'
_NAME: Final = rf"{_TEXT}[ \t\r\n]*+:"
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+(?![0-9.eE+-])"
_DOUBLE_QUOTED: Final = rf"""(?s)(?:[^"']|{_TEXT})*+"""
"""Matches a single quote outside of a text, which Spark reads though it is no JSON."""
_MARKED: Final = (
    (rf'(?s)\G((?:[^"]|{_NAME})*+)"({_INSIDE})"', '$1"s$2"'),
    (rf'(?s)\G((?:[^"0-9-]|{_TEXT})*+)({_NUMBER})', '$1"d$2"'),
    (rf'(?s)\G((?:[^"n]|{_TEXT})*+)null', '$1"n"'),
)
_UNMARKED: Final = (
    (rf'(?s)\G((?:[^"]|{_NAME}|"[sd]{_INSIDE}")*+)"n"', "$1null"),
    (rf'(?s)\G((?:[^"]|{_NAME}|"s{_INSIDE}")*+)"d([^"]*+)"', "$1$2"),
    (rf'(?s)\G((?:[^"]|{_NAME})*+)"s({_INSIDE})"', '$1"$2"'),
)


def json_at_in_lambda(text: str, path: str) -> str:
    """Returns the value at a JSONPath: a text without its quotes, anything else as JSON, numbers digit by digit."""
    is_json = f"regexp_like(__json, {quoted(f'^{_DOUBLE_QUOTED}$')})"
    marked = _replaced("__json", _MARKED)
    path = _path_of_spark(path)
    value = f"get_json_object({marked}, {path})"
    extracted = f"transform(array({text}), __json -> if({is_json}, {value}, NULL))"
    written = (
        "CASE left(__at, 1) WHEN 's' THEN substring(__at, 2) WHEN 'd' THEN substring(__at, 2) WHEN 'n' THEN 'null' "
        f"ELSE {_replaced('__at', _UNMARKED)} END"
    )
    return f"get(transform({extracted}, __at -> {written}), 0)"


def _path_of_spark(path: str) -> str:
    """Returns a constant path as Spark reads it: Spark has no names in double quotes."""
    written = literal(path)
    if written is None:
        return path
    try:
        steps = json_values.path_steps(written)
    except ValueError:
        return "cast(null as string)"
    return quoted("$" + "".join(f"[{step}]" if is_digits(step) else f"['{step}']" for step in steps))


def _replaced(text: str, replacements: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in replacements:
        text = f"regexp_replace({text}, {quoted(pattern)}, {quoted(replacement)})"
    return text
