"""JSON as ksqlDB's functions see it: fields keep their order, numbers their text, and nothing but JSON is read."""

from __future__ import annotations

import json
from typing import Any, Final


class _Number(str):
    """A number, as it was written."""

    __slots__ = ()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_no_constant)


def read(text: str) -> Any:
    """ValueError for what is no JSON. Numbers stay text, of a class of their own."""
    return _DECODER.decode(text)


def written(value: Any) -> str:
    """Without spaces, as Jackson writes it."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(key)}:{written(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, str):
        return _text(value)
    return json.dumps(value)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def is_json(text: str | None) -> bool:
    """Whether it is JSON; of null, too, an answer."""
    if text is None:
        return False
    try:
        read(text)
    except ValueError:
        return False
    return True


def array_length(text: str) -> int | None:
    value = read(text)
    return len(value) if isinstance(value, list) else None


def keys(text: str) -> list[str] | None:
    value = read(text)
    return list(value) if isinstance(value, dict) else None


def records(text: str) -> dict[str, str] | None:
    value = read(text)
    return {key: written(part) for key, part in value.items()} if isinstance(value, dict) else None


def items(text: str) -> list[str] | None:
    """Null unless it is an array of objects."""
    value = read(text)
    if not isinstance(value, list) or not all(isinstance(element, dict) for element in value):
        return None
    return [written(element) for element in value]


def concatenated(texts: list[str | None]) -> str | None:
    """PostgreSQL's || for JSON. Null when one of them is null."""
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
    """`wanted`: a JSON object whose field v is the value; empty for null. Numbers with a point are not whole ones."""
    try:
        value = read(text or "")
        looked_for = read(wanted or "{}").get("v")
    except ValueError:
        return False
    if not isinstance(value, list):
        return False
    return any(_is_same(element, looked_for) for element in value)


def _is_same(element: Any, wanted: Any) -> bool:
    if isinstance(wanted, _Number) and isinstance(element, _Number):
        return _is_whole(element) == _is_whole(wanted) and float(element) == float(wanted)
    return type(element) is type(wanted) and bool(element == wanted)


def _is_whole(number: str) -> bool:
    return not any(letter in ".eE" for letter in number)
