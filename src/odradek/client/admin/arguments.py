"""The check of what a user passes to the admin client: by the annotations of its methods, before anything is sent.

A text in place of a number would else travel until a codec or a comparison stops it, deep in a call and with a traceback that
does not show the mistake. The check returns what it has read: an iterable that can be read only once is a tuple afterwards,
and a plain pair in place of a `TopicPartition` is one.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, wraps
from operator import index
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from odradek.client.network.errors import WrongArgumentError

C = TypeVar("C", bound=type)
_NOT_CHECKED: Final = frozenset({"self", "return"})
_NAMES: Final = {NoneType: "None", str: "str", int: "int", float: "a number", bool: "bool", bytes: "bytes"}


def checks_arguments(cls: C) -> C:
    """Makes every public coroutine method of a class check its arguments. Raises WrongArgumentError from the call."""
    for name, method in list(vars(cls).items()):
        if not name.startswith("_") and inspect.iscoroutinefunction(method):
            setattr(cls, name, _checked(method))
    return cls


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)
    hints: dict[str, Any] = {}

    @wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        if not hints:  # later than the module's import: annotations may name what is imported lazily
            hints.update(get_type_hints(method))
        for name, value in bound.arguments.items():
            if name not in _NOT_CHECKED:
                where = f"{method.__name__}: {name}"
                bound.arguments[name] = checked_value(value, hints[name], where)
        return await method(*bound.args, **bound.kwargs)

    return call


def checked_value(value: Any, hint: Any, where: str) -> Any:
    """Returns a value that an annotation allows, as described above. `where` begins the error's text."""
    hint = getattr(hint, "__supertype__", hint)
    origin = get_origin(hint)
    if hint is Any or (hint is None and value is None):
        return value
    if origin in (Union, UnionType):
        return _checked_union(value, hint, where)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _checked_mapping(value, hint, where)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _checked_items(value, hint, where)
    if hint is int:
        return _checked_integer(value, where)
    if hint is float:
        if isinstance(value, bool) or not (isinstance(value, float) or hasattr(value, "__index__")):
            raise _wrong(value, hint, where)
        return float(value)
    return _checked_object(value, hint, where)


def _checked_integer(value: Any, where: str) -> int:
    """Returns an int, also for an integer of numpy; refuses bool, which is a slip where a number is asked for."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _wrong(value, int, where)
    return index(value)


def _checked_object(value: Any, hint: Any, where: str) -> Any:
    """Returns an instance of a class, with its fields checked; a plain tuple becomes the named one that is wanted."""
    names = getattr(hint, "_fields", None)
    if names is not None and isinstance(value, tuple) and len(value) == len(names):
        checked = (
            checked_value(part, _hints_of(hint)[name], f"{where}.{name}")
            for name, part in zip(names, value, strict=True)
        )
        return hint(*checked)
    if not isinstance(value, hint):
        raise _wrong(value, hint, where)
    return _checked_fields(value, where) if is_dataclass(value) else value


def _checked_fields(value: Any, where: str) -> Any:
    cls: Any = type(value)
    hints = _hints_of(cls)
    changed = {}
    for field in fields(value):
        before = getattr(value, field.name)
        checked = checked_value(before, hints[field.name], f"{where}.{field.name}")
        if checked is not before:
            changed[field.name] = checked
    return replace(value, **changed) if changed else value


def _checked_union(value: Any, hint: Any, where: str) -> Any:
    """Returns the value as the member of the union that fits it; the error of a member with parts names the part."""
    members = get_args(hint)
    if value is None and NoneType in members:
        return None
    likely = [member for member in members if member is not NoneType and _may_be(value, member)]
    if not likely:
        raise _wrong(value, hint, where)
    return checked_value(value, likely[0], where)


def _may_be(value: Any, hint: Any) -> bool:
    """Tells whether a value has the outer type of an annotation."""
    hint = getattr(hint, "__supertype__", hint)
    if hint is int or hint is float:
        return not isinstance(value, bool) and (isinstance(value, (int, hint)) or hasattr(value, "__index__"))
    outer = get_origin(hint) or hint
    if issubclass(outer, Iterable) and outer not in (str, bytes):
        return isinstance(value, outer) and not isinstance(value, (str, bytes))
    return isinstance(value, outer)


def _checked_mapping(value: Any, hint: Any, where: str) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(value, hint, where)
    key_hint, value_hint = get_args(hint)
    return {
        checked_value(key, key_hint, f"{where}, key {_shown(key)},"): checked_value(
            content, value_hint, f"{where}[{_shown(key)}]"
        )
        for key, content in value.items()
    }


def _checked_items(value: Any, hint: Any, where: str) -> tuple[Any, ...]:
    """Returns the items. One text is no list of texts, although Python would go through its characters."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise _wrong(value, hint, where)
    element_hint = get_args(hint)[0]
    return tuple(
        checked_value(element, element_hint, f"{where}[{number}]") for number, element in enumerate(value)
    )


@cache
def _hints_of(cls: Hashable) -> dict[str, Any]:
    return get_type_hints(cls)


def _wrong(value: Any, hint: Any, where: str) -> WrongArgumentError:
    """Returns the error. It has the value's type and not the value, which may be a password."""
    kind = "None" if value is None else type(value).__name__
    return WrongArgumentError(f"{where} must be {_name_of(hint)}, not {kind}")


def _name_of(hint: Any) -> str:
    """Returns an annotation in words."""
    hint = getattr(hint, "__supertype__", hint)
    origin, members = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_name_of(member) for member in members)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a mapping from {_name_of(members[0])} to {_name_of(members[1])}"
    if origin is not None:
        return f"an iterable of {_name_of(members[0])}"
    return _NAMES.get(hint) or str(getattr(hint, "__name__", hint))


def _shown(key: Any) -> str:
    """Returns a key of a mapping on one short line."""
    return " ".join(reprlib.repr(key).split())
