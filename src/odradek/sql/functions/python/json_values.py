"""JSON as ksqlDB's functions see it: fields keep their order, numbers their text, and nothing but JSON is read."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, Final


class _Number(str):
    """A number, as it was written."""

    __slots__ = ()


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


_STEP: Final = re.compile(
    r"""\.(?P<name>[^.\[\]'"]+)|\[(?P<index>[0-9]{1,9})\]|\['(?P<quoted>(?:[^'\\]|\\.)*)'\]|\["(?P<double>(?:[^"\\]|\\.)*)"\]"""
)
_ESCAPED: Final = re.compile(r"\\(.)")
_INDEX: Final = re.compile(r"[0-9]{1,9}")
_ABSENT: Final = object()
"""Marks the absence of a value, which JSON's null is not."""
_DECODER: Final = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_no_constant)


def read(text: str) -> Any:
    """Parses JSON. ValueError for other text. Numbers stay text, of a class of their own."""
    return _DECODER.decode(text)


def written(value: object) -> str:
    """Writes JSON without spaces, as Jackson does."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(key)}:{written(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, str):
        return _text(value)
    return json.dumps(value)


def _shown(value: object) -> str:
    """Returns a text without its quotes, a number as it was written, anything else as JSON."""
    return str(value) if isinstance(value, str) else written(value)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def is_json(text: str | None) -> bool:
    """Tells whether it is JSON; of null, too, an answer."""
    if text is None:
        return False
    try:
        read(text)
    except (ValueError, RecursionError):
        return False
    return True


def array_length(text: str) -> int | None:
    value = read(text)
    return len(value) if isinstance(value, list) else None


def keys(text: str) -> list[str] | None:
    value = read(text)
    return list(value) if isinstance(value, dict) else None


def records(text: str) -> dict[str, str] | None:
    """Returns the fields of an object: texts as they are, other values as JSON."""
    value = read(text)
    if not isinstance(value, dict):
        return None
    return {key: _shown(part) for key, part in value.items()}


def items(text: str) -> list[str] | None:
    """Returns the items of an array of objects; null for other values."""
    value = read(text)
    if not isinstance(value, list) or not all(isinstance(element, dict) for element in value):
        return None
    return [written(element) for element in value]


def concatenated(texts: list[str | None]) -> str | None:
    """Concatenates as PostgreSQL's || for JSON. Null when one of the values is null."""
    values = []
    for text in texts:
        if text is None:
            return None
        values.append(read(text))
    if all(isinstance(value, dict) for value in values):
        return written({key: part for value in values for key, part in value.items()})
    return written(
        [element for value in values for element in (value if isinstance(value, list) else [value])]
    )


def array_contains(text: str | None, wanted: str | None) -> bool:
    """Returns whether a JSON array contains a value. `wanted`: a JSON object whose field v is the value; empty for null.
    Numbers with a point are not whole ones."""
    try:
        value = read(text or "")
        looked_for = read(wanted or "{}").get("v")
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, list):
        return False
    return any(_is_same(element, looked_for) for element in value)


def _is_same(element: object, wanted: object) -> bool:
    if isinstance(wanted, _Number) and isinstance(element, _Number):
        return _is_whole(element) == _is_whole(wanted) and float(element) == float(wanted)
    return type(element) is type(wanted) and bool(element == wanted)


def _is_whole(number: str) -> bool:
    return not any(letter in ".eE" for letter in number)


def at_path(text: str, path: str) -> str | None:
    """Returns the value at a JSONPath: a text without its quotes, anything else as JSON, numbers digit by digit; `null` for
    JSON's null. Null if there is none.

    Raises ValueError for text that is no JSON, and for a path that is none.
    """
    value = read(text)
    for step in path_steps(path):
        if isinstance(value, dict):
            value = value.get(step, _ABSENT)
        elif isinstance(value, list):
            value = value[int(step)] if _INDEX.fullmatch(step) and int(step) < len(value) else _ABSENT
        else:
            return None
        if value is _ABSENT:
            return None
    return _shown(value)


@lru_cache(256)
def path_steps(path: str) -> tuple[str, ...]:
    """Returns the names and indexes of `$.a['b'][0]`. Raises ValueError for a path that is none."""
    if not path.startswith("$"):
        raise ValueError(f"the path {path!r:.80} does not begin with $")
    steps, index = [], 1
    while index < len(path):
        match = _STEP.match(path, index)
        if match is None:
            raise ValueError(f"{path[index:]!r:.80} is no step of a path")
        name = next(group for group in match.groups() if group is not None)
        steps.append(_ESCAPED.sub(r"\1", name) if match["quoted"] or match["double"] else name)
        index = match.end()
    return tuple(steps)
