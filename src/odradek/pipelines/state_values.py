"""State as an operator keeps it, as JSON. Bytes of a topic are never run: of classes that are not Python's own, only the names
and the parts are shown.
"""

from __future__ import annotations

import ast
import base64
import builtins
import collections
import datetime
import decimal
import fractions
import io
import math
import pickle
import uuid
from typing import Any, Final, NamedTuple, Self

from odradek.model.errors import ErrorCode, KafkaError

_KNOWN: Final[dict[tuple[str, str], Any]] = {
    **{
        ("builtins", name): getattr(builtins, name)
        for name in ("set", "frozenset", "bytearray", "complex", "list", "dict", "tuple", "range")
    },
    **{("collections", kind.__name__): kind for kind in (collections.OrderedDict, collections.deque)},
    **{
        ("datetime", kind.__name__): kind
        for kind in (
            datetime.date,
            datetime.datetime,
            datetime.time,
            datetime.timedelta,
            datetime.timezone,
        )
    },
    ("decimal", "Decimal"): decimal.Decimal,
    ("fractions", "Fraction"): fractions.Fraction,
    ("uuid", "UUID"): uuid.UUID,
}


class StateName(NamedTuple):
    """What a row of a task's state is called: which of the operator's maps it is in, and the key."""

    part: str
    key: Any
    """One value, a list of several; text where it is not made of Python's own values; None for the whole task."""


def name_in(name: bytes) -> StateName | None:
    """None for what a task keeps of itself."""
    text = name.decode("utf-8", "replace")
    end = text.find("/(")
    if end >= 0:
        return StateName(text[:end], _key_in(text[end + 1 :]))
    return StateName(text[:-3], None) if text.endswith("/''") else None


def _key_in(text: str) -> Any:
    try:
        fields = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text.removeprefix("(").removesuffix(")").removesuffix(",")
    return plain_value(fields[0] if len(fields) == 1 else fields)


def value_in(data: bytes) -> Any:
    """What is kept, as JSON. KafkaError INVALID_RECORD for what no operator has written."""
    try:
        return plain_value(_Reader(io.BytesIO(data)).load())
    except Exception as error:  # noqa: BLE001 - a pickle that is damaged may raise anything
        raise KafkaError(ErrorCode.INVALID_RECORD, f"a row of state is unreadable: {error}") from None


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module, name))
        return type(name, (_Unknown,), {"path": f"{module}.{name}"}) if known is None else known


class _Unknown:
    """An object of a class that is not loaded: what it was made of."""

    path = ""

    def __new__(cls, *args: Any, **fields: Any) -> Self:
        made = super().__new__(cls)
        made.parts = list(args)
        made.fields = dict(fields)
        return made

    def __init__(self, *args: Any, **fields: Any) -> None:
        self.parts: list[Any]
        self.fields: dict[Any, Any]

    def __setstate__(self, state: Any) -> None:
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.fields.update(part)
            elif part is not None:
                self.parts.append(part)

    def append(self, part: Any) -> None:
        self.parts.append(part)

    def extend(self, parts: Any) -> None:
        self.parts.extend(parts)

    def __setitem__(self, name: Any, part: Any) -> None:
        self.fields[name] = part


def plain_value(value: Any) -> Any:
    """The same as JSON has it: tuples and sets as lists, numbers that it lacks as text, bytes as text or base64."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray():
            return _text(bytes(value))
        case dict():
            return {_name(name): plain_value(part) for name, part in value.items()}
        case set() | frozenset():
            return [plain_value(part) for part in sorted(value, key=repr)]
        case list() | tuple() | collections.deque():
            return [plain_value(part) for part in value]
        case datetime.date() | datetime.time():
            return value.isoformat()
        case _Unknown():
            known = {"parts": plain_value(value.parts), "fields": plain_value(value.fields)}
            return {"class": type(value).path, **{name: part for name, part in known.items() if part}}
    return getattr(value, "path", None) or str(value)


def _name(name: Any) -> str:
    plain = plain_value(name)
    return plain if isinstance(plain, str) else str(plain)


def _text(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
