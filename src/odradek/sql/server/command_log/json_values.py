"""Frozen dataclasses as JSON and back, by the types of their fields. Each field is written, defaults too: a default may change.

It knows text, numbers, truth, enumerations of text, literals, tuples, named tuples, and dataclasses of these; each may be None.
A type of SQL without parts is its name. A type that is not known raises TypeError when its class is used first. Pure.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from odradek.values.schema_registry import SchemaRegistryTerms
from odradek.values.types import SqlType

T = TypeVar("T")
_PLAIN: Final = (str, int, bool, float)


class _Form(NamedTuple):
    """The two functions between values of a type and JSON. `write` makes JSON of a value; `read` makes the value again, with
    ValueError, TypeError or KeyError for other JSON."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def to_json(value: object) -> Any:
    """Returns a dataclass as JSON."""
    kind: object = type(value)
    return _form(kind).write(value)


def from_json(kind: type[T], json: object) -> T:
    """Returns the dataclass of a JSON value. ValueError, TypeError or KeyError for a value of another form."""
    form_of: Any = kind
    value: T = _form(form_of).read(json)
    return value


@cache
def _form(kind: object) -> _Form:
    if kind is SqlType:
        return _Form(_written_type, _read_type)
    if kind is SchemaRegistryTerms:
        return _Form(lambda value: None, lambda json: None)  # the password of a registry is in no topic
    if kind in _PLAIN:
        return _Form(_same, lambda json: _checked(json, kind))
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _union_form(get_args(kind))
    if origin is Literal:
        return _Form(_same, lambda json: _chosen(json, get_args(kind)))
    if origin is tuple:
        return _tuple_form(get_args(kind))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _Form(str, kind)
    if is_dataclass(kind):
        return _dataclass_form(kind)
    if isinstance(kind, type) and issubclass(kind, tuple):
        parts = _tuple_form(tuple(get_type_hints(kind).values()))
        return _Form(parts.write, lambda json: kind(*parts.read(json)))
    raise TypeError(f"{kind} is no value of a snapshot")


def _union_form(kinds: tuple[object, ...]) -> _Form:
    present = tuple(kind for kind in kinds if kind is not type(None))
    if len(present) > 1:
        if all(kind in _PLAIN for kind in present):
            return _Form(_same, lambda json: _checked(json, present))
        raise TypeError(f"{kinds} is no value of a snapshot")
    form = _form(present[0])
    return _Form(
        lambda value: None if value is None else form.write(value),
        lambda json: None if json is None else form.read(json),
    )


def _tuple_form(kinds: tuple[object, ...]) -> _Form:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        form = _form(kinds[0])
        return _Form(
            lambda value: [form.write(part) for part in value],
            lambda json: tuple(form.read(part) for part in _checked(json, list)),
        )
    forms = tuple(map(_form, kinds))
    return _Form(
        lambda value: [form.write(part) for form, part in zip(forms, value, strict=True)],
        lambda json: tuple(form.read(part) for form, part in zip(forms, _checked(json, list), strict=True)),
    )


def _dataclass_form(kind: Any) -> _Form:
    hints = get_type_hints(kind)
    forms = {field.name: _form(hints[field.name]) for field in fields(kind)}

    def write(value: object) -> dict[str, object]:
        return {name: form.write(getattr(value, name)) for name, form in forms.items()}

    def read(json: object) -> object:
        members = _checked(json, dict)
        if members.keys() != forms.keys():
            raise ValueError(f"{kind.__name__} has other members: {', '.join(sorted(members))}")
        return kind(**{name: form.read(members[name]) for name, form in forms.items()})

    return _Form(write, read)


def _written_type(kind: SqlType) -> object:
    if not kind.parts and not kind.fields and kind.kind != "DECIMAL":
        return kind.kind
    return {
        "kind": kind.kind,
        "precision": kind.precision,
        "scale": kind.scale,
        "parts": [_written_type(part) for part in kind.parts],
        "fields": [[name, _written_type(part)] for name, part in kind.fields],
    }


def _read_type(json: Any) -> SqlType:
    if isinstance(json, str):
        return _simple_type(json)
    return SqlType(
        kind=json["kind"],
        precision=json["precision"],
        scale=json["scale"],
        parts=tuple(map(_read_type, json["parts"])),
        fields=tuple((name, _read_type(part)) for name, part in json["fields"]),
    )


@cache
def _simple_type(name: str) -> SqlType:
    return SqlType(kind=name)


def _same(value: object) -> object:
    return value


def _checked(json: Any, kinds: Any) -> Any:
    if not isinstance(json, kinds):
        raise TypeError(f"{json!r:.100} is of another type")
    return json


def _chosen(json: object, choices: tuple[object, ...]) -> object:
    if json not in choices:
        raise ValueError(f"{json!r:.100} is none of {', '.join(map(str, choices))}")
    return json
