"""State as an operator keeps it, as JSON. Bytes of a topic are never run: of classes that are not Python's own, only the names
and the parts are shown.
"""

from __future__ import annotations

import ast
import base64
import collections
import datetime
import math
from collections.abc import Mapping
from typing import NamedTuple

from odradek.streams.processors.state.state_bytes import state_value


class StateName(NamedTuple):
    """The name of a row of a task's state: the operator's map that it is in, and the key."""

    part: str
    key: object
    """One value, a list of several; text where it is not made of Python's own values; None for the whole task."""


def name_in(name: bytes) -> StateName | None:
    """Returns the name of a row; None for a row that a task keeps about itself."""
    text = name.decode("utf-8", "replace")
    end = text.find("/(")
    if end >= 0:
        return StateName(text[:end], _key_in(text[end + 1 :]))
    return StateName(text[:-3], None) if text.endswith("/''") else None


def _key_in(text: str) -> object:
    try:
        fields = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text.removeprefix("(").removesuffix(")").removesuffix(",")
    return plain_value(fields[0] if len(fields) == 1 else fields)


def value_in(data: bytes) -> object:
    """Returns the value of a row, as JSON. KafkaError INVALID_RECORD for bytes that no operator has written."""
    return plain_value(state_value(data, _Named))


class _Named:
    """An object of a program's class, which need not be loaded here: what the class is called, and what the object holds."""

    def __init__(
        self, module: str, name: str, content: Mapping[str, object] | tuple[object, ...] | str
    ) -> None:
        self.path = f"{module}.{name}"
        self.fields = content if isinstance(content, Mapping) else {}
        self.parts = (
            [] if isinstance(content, Mapping) else [content] if isinstance(content, str) else list(content)
        )


def plain_value(value: object) -> object:
    """Returns a value in the form of JSON: tuples and sets as lists, numbers that it lacks as text, bytes as text or base64."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray():
            return _text(bytes(value))
        case collections.Counter():
            return {"class": "collections.Counter", "parts": [plain_value(dict(value))]}
        case dict():
            return {_name(name): plain_value(part) for name, part in value.items()}
        case set() | frozenset():
            return [plain_value(part) for part in sorted(value, key=repr)]
        case list() | tuple() | collections.deque():
            return [plain_value(part) for part in value]
        case datetime.date() | datetime.time():
            return value.isoformat()
        case _Named():
            known = {"parts": plain_value(value.parts), "fields": plain_value(value.fields)}
            return {"class": value.path, **{name: part for name, part in known.items() if part}}
    return str(value)


def _name(name: object) -> str:
    plain = plain_value(name)
    return plain if isinstance(plain, str) else str(plain)


def _text(data: bytes) -> object:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
