"""Strategies for messages, derived from their declarations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st

from odradek.protocol import Message, Struct
from odradek.protocol.schema import ArrayKind, Field, Kind, StructKind

_NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.uuids(),
}
# Lengths on both sides of one-byte varints, and records on both sides of the copying threshold.
_TEXT = st.text(max_size=6) | st.sampled_from(["x" * 126, "y" * 127, "é" * 64, "z" * 300])
_BYTES = st.binary(max_size=8) | st.sampled_from([b"b" * 126, b"b" * 127, b"b" * 20_000])
_RECORDS = st.binary(max_size=8) | st.sampled_from([b"r" * 126, b"r" * 16_383, b"r" * 16_384, b"r" * 40_000])


def _of_kind(kind: Kind[Any], version: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, StructKind):
        return _of_struct(kind.cls, version)
    if isinstance(kind, ArrayKind):
        element = _of_kind(kind.element, version)
        lists = st.lists(element, max_size=2)
        if isinstance(kind.element, StructKind):
            return lists
        return lists | element.map(lambda value: [value] * 126) | element.map(lambda value: [value] * 300)
    if kind.size:
        return _NUMBERS[kind.name]
    return {"string": _TEXT, "bytes": _BYTES, "records": _RECORDS}[kind.name]


def _of_field(field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _of_kind(field.kind, version)
    if version in field.nullable:
        values = st.none() | values
    if version in field.tagged and field.default is not None:
        values = st.just([] if isinstance(field.kind, ArrayKind) else field.default) | values
    return values


def is_ours(field: Field) -> bool:
    """Tags from this one on are no fields of Kafka's: its clients skip them."""
    return field.tag is not None and field.tag >= 10_000


@cache
def _of_struct(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    fields = (field for field in cls.FIELDS if version in field.versions and not is_ours(field))
    present = {field.name: _of_field(field, version) for field in fields}
    return st.builds(cls, **present)


@pytest.fixture(scope="session")
def messages() -> Callable[[type[Message], int], st.SearchStrategy[Any]]:
    """(message class, version) -> strategy for messages that this version can carry in full."""
    return _of_struct


def _full_value(kind: Kind[Any], version: int) -> Any:
    if isinstance(kind, StructKind):
        return full(kind.cls, version)
    if isinstance(kind, ArrayKind):
        return [_full_value(kind.element, version) for _ in range(2)]
    if kind.name == "uuid":
        return UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
    if kind.name == "float64":
        return 1.5
    if kind.size:
        return True if kind.name == "bool" else 5
    return {"string": "text", "bytes": b"bytes", "records": b"records"}[kind.name]


def full(cls: type[Struct], version: int) -> Any:
    """A message with every field of the version set: no nulls, no defaults, two elements in each array."""
    return cls(**{f.name: _full_value(f.kind, version) for f in cls.FIELDS if version in f.versions})


@pytest.fixture(scope="session")
def full_message() -> Callable[[type[Message], int], Message]:
    """(message class, version) -> a message that uses everything the version has."""
    return full
