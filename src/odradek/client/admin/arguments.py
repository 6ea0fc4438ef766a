"""The check of what a user passes to the admin client: by the annotations of its methods, before anything is sent.

A text in place of a number would else travel until a codec or a comparison stops it, deep in a call and with a traceback that
does not show the mistake. The check returns what it has read: an iterable that can be read only once is a tuple afterwards,
and a plain pair in place of a `TopicPartition` is one.

A call may have a million partitions, and the check runs on the event loop. So plain values, and tuples of them, are checked
together by loops of the interpreter's own (`_plain`), and only an error has its path formatted (`_Path`).
"""

from __future__ import annotations

import copy
import inspect
import reprlib
import sys
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import IntEnum
from functools import cache, wraps
from numbers import Real
from operator import index, itemgetter
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    SupportsFloat,
    SupportsIndex,
    TypeAlias,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from odradek.client.network.errors import WrongArgumentError

C = TypeVar("C", bound=type)
_NOT_CHECKED: Final = frozenset({"self", "return"})
_NAMES: Final = {NoneType: "None", str: "str", int: "int", float: "a number", bool: "bool", bytes: "bytes"}
_PLAIN: Final = frozenset({str, int, bool, bytes})
"""Types whose instances pass as they are."""
_Path: TypeAlias = "str | tuple[_Path, str, object]"
"""The path of a value: the parameter, or the path of what contains it, with the form of a step and the step."""
_FIELD: Final = ".{}"
_ITEM: Final = "[{}]"
_KEY: Final = ", key {},"


def checks_arguments(cls: C) -> C:
    """Makes every public coroutine method of a class check its arguments. Raises WrongArgumentError from the call."""
    for name, method in list(vars(cls).items()):
        if not name.startswith("_") and inspect.iscoroutinefunction(method):
            setattr(cls, name, _checked(method))
    return cls


def _checked(method: Callable[..., Awaitable[object]]) -> Callable[..., object]:
    signature = inspect.signature(method)
    hints: dict[str, object] = {}

    @wraps(method)
    async def call(*args: object, **kwargs: object) -> object:
        bound = signature.bind(*args, **kwargs)
        if not hints:  # later than the module's import: annotations may name what is imported lazily
            hints.update(get_type_hints(method))
        for name, value in bound.arguments.items():
            if name not in _NOT_CHECKED:
                where = f"{method.__name__}: {name}"
                bound.arguments[name] = checked_value(value, hints[name], where)
        return await method(*bound.args, **bound.kwargs)

    return call


def checked_value(value: object, hint: Any, where: _Path) -> Any:
    """Returns a value that an annotation allows, as described above. `where` begins the error's text."""
    hint = getattr(hint, "__supertype__", hint)
    if hint in _PLAIN and type(value) is hint:
        return value
    origin = get_origin(hint)
    if hint is Any or (hint is None and value is None):
        return value
    if origin in (Union, UnionType):
        return _checked_union(value, hint, where)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _checked_mapping(value, hint, where)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _checked_items(value, hint, where)
    convert = _CONVERSIONS.get(hint)
    if convert is not None:
        return convert(value, where)
    if issubclass(hint, IntEnum):
        return _checked_member(value, hint, where)
    return _checked_object(value, hint, where)


def _checked_integer(value: object, where: _Path) -> int:
    """Returns an int, also for an integer of numpy; refuses bool, which is a slip where a number is asked for."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not _is_integer(value):
        raise _wrong(value, int, where)
    return index(value)


def _is_integer(value: object) -> TypeGuard[SupportsIndex]:
    return not isinstance(value, bool) and hasattr(value, "__index__")


def _checked_number(value: object, where: _Path) -> float:
    """Returns a float, for any real number."""
    if not _is_number(value):
        raise _wrong(value, float, where)
    try:
        return float(value)
    except OverflowError:
        raise WrongArgumentError(
            f"{_text_of(where)} must be a number up to {sys.float_info.max:.2g}, not a larger one"
        ) from None


def _is_number(value: object) -> TypeGuard[SupportsFloat]:
    return _is_integer(value) or (isinstance(value, Real) and not isinstance(value, bool))


def _checked_bool(value: object, where: _Path) -> bool:
    if not _is_bool(value):
        raise _wrong(value, bool, where)
    return bool(value)


def _is_bool(value: object) -> bool:
    """Tells whether a value is a bool, also one of numpy; its type is only there when numpy is imported."""
    numpy = sys.modules.get("numpy")
    return isinstance(value, bool) or (numpy is not None and isinstance(value, numpy.bool_))


_CONVERSIONS: Final[Mapping[object, Callable[[object, _Path], object]]] = {
    int: _checked_integer,
    float: _checked_number,
    bool: _checked_bool,
}


def _checked_member(value: object, hint: type[IntEnum], where: _Path) -> IntEnum:
    """Returns a member of an enumeration, also for its value."""
    if isinstance(value, hint):
        return value
    shown = _kind_of(value)
    if _is_integer(value):
        number = index(value)
        try:
            return hint(number)
        except ValueError:
            shown = _shown(number)
    members = ", ".join(f"{member.name} ({member.value})" for member in hint)
    raise WrongArgumentError(f"{_text_of(where)} must be {hint.__name__}: {members}; not {shown}")


def _checked_object(value: object, hint: Any, where: _Path) -> object:
    """Returns an instance of a class, with its fields checked; a plain tuple or list becomes the named tuple that is wanted."""
    names = getattr(hint, "_fields", None)
    if names is not None and isinstance(value, (tuple, list)) and len(value) == len(names):
        hints = _hints_of(hint)
        checked = [
            checked_value(part, hints[name], (where, _FIELD, name))
            for name, part in zip(names, value, strict=True)
        ]
        is_same = isinstance(value, hint) and all(map(_is, checked, value))
        return value if is_same else hint(*checked)
    if not isinstance(value, hint):
        raise _wrong(value, hint, where)
    return _checked_fields(value, hint, where) if is_dataclass(hint) else value


def _is(value: object, other: object) -> bool:
    return value is other


def _checked_fields(value: object, cls: Any, where: _Path) -> object:
    """Returns the instance; a copy of it where a field is converted. A user's subclass may have any fields of its own."""
    hints = _hints_of(cls)
    changed = {}
    for field in fields(cls):
        before = getattr(value, field.name)
        checked = checked_value(before, hints[field.name], (where, _FIELD, field.name))
        if checked is not before:
            changed[field.name] = checked
    if not changed:
        return value
    copied = copy.copy(value)
    for name, checked in changed.items():
        object.__setattr__(copied, name, checked)  # it may be frozen
    return copied


def _checked_union(value: object, hint: object, where: _Path) -> object:
    """Returns the value as the member of the union that fits it; the error of a member with parts names the part."""
    members = get_args(hint)
    if value is None and NoneType in members:
        return None
    likely = [member for member in members if member is not NoneType and _may_be(value, member)]
    if not likely:
        raise _wrong(value, hint, where)
    return checked_value(value, likely[0], where)


def _may_be(value: object, hint: Any) -> bool:
    """Tells whether a value has the outer type of an annotation, or is converted to it."""
    hint = getattr(hint, "__supertype__", hint)
    outer = get_origin(hint) or hint
    if hint in _OUTER_CHECKS:
        return _OUTER_CHECKS[hint](value)
    if issubclass(outer, IntEnum):
        return _is_integer(value)
    if hasattr(outer, "_fields"):
        return isinstance(value, (tuple, list))
    if issubclass(outer, Iterable) and outer not in (str, bytes):
        return isinstance(value, outer) and not isinstance(value, (str, bytes))
    return isinstance(value, outer)


_OUTER_CHECKS: Final[Mapping[object, Callable[[object], bool]]] = {
    int: _is_integer,
    float: _is_number,
    bool: _is_bool,
}


def _checked_mapping(value: object, hint: object, where: _Path) -> dict[object, object]:
    if not isinstance(value, Mapping):
        raise _wrong(value, hint, where)
    key_hint, value_hint = get_args(hint)
    keys, contents = list(value.keys()), list(value.values())
    checked_keys = _plain(keys, key_hint)
    if checked_keys is None:
        checked_keys = [checked_value(key, key_hint, (where, _KEY, key)) for key in keys]
    checked_contents = _plain(contents, value_hint)
    if checked_contents is None:
        checked_contents = [
            checked_value(content, value_hint, (where, _ITEM, key))
            for key, content in zip(keys, contents, strict=True)
        ]
    return dict(zip(checked_keys, checked_contents, strict=True))


def _checked_items(value: object, hint: object, where: _Path) -> tuple[object, ...]:
    """Returns the items. One text is no list of texts, although Python would go through its characters."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise _wrong(value, hint, where)
    element_hint = get_args(hint)[0]
    items = tuple(value)
    checked = _plain(items, element_hint)
    if checked is None:
        checked = [
            checked_value(element, element_hint, (where, _ITEM, number))
            for number, element in enumerate(items)
        ]
    return tuple(checked)


def _plain(values: Collection[Any], hint: Any) -> Collection[Any] | None:
    """Returns the values as an annotation wants them, if all are of one plain type, or tuples of plain fields; else None.

    It has no loop of its own: a million values cost what a copy of them does.
    """
    hint = getattr(hint, "__supertype__", hint)
    kinds = set(map(type, values))
    if hint in _PLAIN:
        return values if kinds <= {hint} else None
    names = getattr(hint, "_fields", None)
    if names is None or not kinds <= {hint, tuple} or not set(map(len, values)) <= {len(names)}:
        return None
    hints = _hints_of(hint)
    for number, name in enumerate(names):
        if not set(map(type, map(itemgetter(number), values))) <= _PLAIN & {hints[name]}:
            return None
    return values if kinds <= {hint} else list(map(hint._make, values))


@cache
def _hints_of(cls: Hashable) -> dict[str, object]:
    return get_type_hints(cls)


def _wrong(value: object, hint: object, where: _Path) -> WrongArgumentError:
    """Returns the error. It has the value's type and not the value, which may be a password."""
    return WrongArgumentError(f"{_text_of(where)} must be {_name_of(hint)}, not {_kind_of(value)}")


def _kind_of(value: object) -> str:
    return "None" if value is None else type(value).__name__


def _text_of(where: _Path) -> str:
    """Returns a path as text: `changes['ann'].password`."""
    if isinstance(where, str):
        return where
    parent, form, step = where
    return _text_of(parent) + form.format(step if form == _FIELD else _shown(step))


def _name_of(hint: object) -> str:
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


def _shown(key: object) -> str:
    """Returns a key of a mapping on one short line."""
    return " ".join(reprlib.repr(key).split())
