"""Values for the parameters of the admin client's methods, made from their annotations: one that fits, and many that do not."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from odradek.client import Admin

NOT_CALLS = frozenset({"close", "from_config"})
METHODS = sorted(
    name
    for name, member in vars(Admin).items()
    if inspect.isfunction(member) and not name.startswith("_") and name not in NOT_CALLS
)
"""Every public method of the admin client that asks a cluster."""
_PLAIN = {str: "x", int: 1, float: 1.0, bool: False, bytes: b"x", UUID: UUID(int=1)}

_HOSTILE: dict[Any, tuple[Any, ...]] = {
    int: (-1, -(2**31) - 1, 2**31, 2**63, -(2**70)),
    float: (float("nan"), float("inf"), -1.0, 1e300),
    str: ("", "\ud800", "a\nb\0", "x" * 40_000),
    bytes: (b"", bytes(70_000)),
}


def hints_of(method: str) -> dict[str, Any]:
    """Returns the annotations of a method's parameters."""
    hints = get_type_hints(getattr(Admin, method))
    return {name: hint for name, hint in hints.items() if name != "return"}


def fitting(hint: Any) -> Any:
    """Returns a value that an annotation allows, with one element wherever there may be some."""
    hint = getattr(hint, "__supertype__", hint)
    origin, members = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin in (Union, UnionType):
        return fitting(next(member for member in members if member is not NoneType))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {fitting(members[0]): fitting(members[1])}
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return [fitting(members[0])]
    if issubclass(hint, Enum):
        return next(iter(hint))
    if hasattr(hint, "_fields"):
        return hint(*(fitting(get_type_hints(hint)[name]) for name in hint._fields))
    wanted = [field for field in fields(hint) if field.default is field.default_factory is MISSING]
    return hint(**{field.name: fitting(get_type_hints(hint)[field.name]) for field in wanted})


def wrong_types(hint: Any) -> Iterator[Any]:
    """Yields values of which no annotation of this form allows one, at every depth."""
    hint = getattr(hint, "__supertype__", hint)
    origin, members = get_origin(hint), get_args(hint)
    yield object()
    if origin in (Union, UnionType):
        allowed = {getattr(member, "__supertype__", member) for member in members}
        yield from (wrong for wrong in (3j, b"x", {"x"}) if not _fits_one(wrong, allowed))
        return
    yield None
    if isinstance(origin, type) and issubclass(origin, Mapping):
        yield from (5, "text", ["x"], {object(): fitting(members[1])})
        yield from ({fitting(members[0]): wrong} for wrong in wrong_types(members[1]))
    elif isinstance(origin, type) and issubclass(origin, Iterable):
        yield from (5, "text", b"bytes")
        yield from ([wrong] for wrong in wrong_types(members[0]))
        yield (wrong for wrong in [object()])
    elif hint in (int, float):
        yield from ("text", "1", True, [1], 1j)
    elif hint is bool:
        yield from (1, "yes", [])
    elif hint is str:
        yield from (5, b"text", ["text"])
    elif hint is bytes:
        yield from (5, "text")
    elif issubclass(hint, Enum):
        yield from (-99, "text", {})  # the value of a member is allowed
    else:
        yield from (5, "text", {})
        yield from _wrong_fields(hint)


def _wrong_fields(hint: Any) -> Iterator[Any]:
    """Yields values of a class, each with one field of a wrong type."""
    good = fitting(hint)
    if hasattr(hint, "_fields"):
        for name in hint._fields:
            yield from (good._replace(**{name: wrong}) for wrong in wrong_types(get_type_hints(hint)[name]))
        return
    given = {field.name: getattr(good, field.name) for field in fields(hint)}
    for name in given:
        yield from (
            hint(**{**given, name: wrong}) for wrong in _hashable(wrong_types(get_type_hints(hint)[name]))
        )


def _hashable(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        try:
            hash(value)
        except TypeError:
            continue
        yield value


def _fits_one(value: Any, allowed: set[Any]) -> bool:
    return any(isinstance(value, get_origin(kind) or kind) for kind in allowed)


def hostile(hint: Any) -> Iterator[Any]:
    """Yields values of the right type that no field of a request, or no cluster, has room for."""
    hint = getattr(hint, "__supertype__", hint)
    origin, members = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        for member in members:
            yield from hostile(member)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield {}
        yield from ({wrong: fitting(members[1])} for wrong in hostile(members[0]))
        yield from ({fitting(members[0]): wrong} for wrong in hostile(members[1]))
    elif isinstance(origin, type) and issubclass(origin, Iterable):
        yield from ([], (value for value in [fitting(members[0])]))
        yield from ([wrong] for wrong in hostile(members[0]))
        yield [fitting(members[0])] * 3
    elif hint in _HOSTILE:
        yield from _HOSTILE[hint]
    elif hasattr(hint, "_fields"):
        good = fitting(hint)
        for name in hint._fields:
            yield from (good._replace(**{name: wrong}) for wrong in hostile(get_type_hints(hint)[name]))
    elif hasattr(hint, "__dataclass_fields__"):
        given = {field.name: getattr(fitting(hint), field.name) for field in fields(hint)}
        for name in given:
            yield from (
                hint(**{**given, name: wrong}) for wrong in _hashable(hostile(get_type_hints(hint)[name]))
            )


def arguments(method: str, parameter: str, value: Any) -> dict[str, Any]:
    """Returns arguments for a method: this one, and fitting ones for those that it requires."""
    signature = inspect.signature(getattr(Admin, method))
    hints = hints_of(method)
    required = {
        name: fitting(hints[name])
        for name, wanted in signature.parameters.items()
        if name != "self" and wanted.default is wanted.empty
    }
    return {**required, parameter: value}
