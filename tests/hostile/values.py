"""Requests made from the message schemas alone: valid leaves, arrays as large as asked for, and every place where one can be.

What a leaf holds follows from its type and its name. Nothing here changes settings of brokers or quotas, makes topics, or takes
a broker away: a frame is to be hard to carry out, not to be obeyed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final
from uuid import UUID

from tests.interop.wire import batch, records

from odradek.model.ids import ZERO_UUID
from odradek.protocol import Message, Struct, encode
from odradek.protocol.api import APIS
from odradek.protocol.schema import ArrayKind, Field, Kind, StructKind

_TOPIC: Final = "target"
_ABSENT_BROKER: Final = 99
_BATCH: Final = batch(records(b"hostile"), 1, timestamp_ms=1_750_000_000_000)

_NUMBERS: Final[dict[str, int]] = {
    "acks": -1,
    "allow_auto_topic_creation": 0,
    "broker_id": _ABSENT_BROKER,
    "replica_id": -1,
    "count": 8,
    "num_partitions": 1,
    "replication_factor": 1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 16,
    "max_records": 10,
    "batch_size": 10,
    "resource_type": 2,
    "resource_type_filter": 2,
    "session_timeout_ms": 10_000,
    "transaction_timeout_ms": 10_000,
    "timeout_ms": 200,
    "rebalance_timeout_ms": 200,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "validate_only": 1,
    "verify_only": 1,
    "timestamp": -1,
    "session_epoch": -1,
    "producer_id": -1,
    "producer_epoch": -1,
    "v3_and_below_producer_id": -1,
    "v3_and_below_producer_epoch": -1,
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "response_partition_limit": 2000,
    "iterations": 4096,
    "pattern_type_filter": 3,
    "resource_pattern_type": 3,
    "permission_type": 3,
    "operation": 3,
    "upgrade_type": 1,
    "broker_epoch": -1,
    "controller_epoch": -1,
    "version": -1,
}
_TEXTS: Final[dict[str, str]] = {
    "topic": _TOPIC,
    "topic_name": _TOPIC,
    "resource_name": _TOPIC,
    "topic_names": _TOPIC,
    "subscribed_topic_names": _TOPIC,
    "subscribed_topic_regex": "target.*",
    "principal": "User:hostile",
    "protocol_type": "consumer",
    "protocol_name": "range",
    "mechanism": "PLAIN",
    "path": "/nowhere",
    "configuration_keys": "retention.ms",
    "key": "hostile",
    "value": "1",
    "entity_type": "client-id",
    "entity_name": "hostile",
    "server_assignor": "uniform",
}
_TOPIC_STRUCTS: Final = frozenset({"name", "names"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the brokers have, that leaves refer to."""

    topic_id: UUID = ZERO_UUID
    group_ids: tuple[str, ...] = ("hostile",)
    topics: tuple[str, ...] = (_TOPIC,)
    api_keys: frozenset[int] = frozenset(APIS)
    """What the brokers serve, to anyone or to one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayPlace:
    """An array in a request, by the names of the fields that lead to it."""

    path: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.path)


@cache
def array_places(cls: type[Struct], version: int) -> tuple[ArrayPlace, ...]:
    """Every array that a request of this version can have, nested ones included."""
    return tuple(ArrayPlace(path=path) for path in _paths(cls, version))


def _paths(cls: type[Struct], version: int) -> Iterator[tuple[str, ...]]:
    for field in cls.FIELDS:
        if version not in field.versions:
            continue
        kind = field.kind
        if isinstance(kind, ArrayKind):
            yield (field.name,)
            kind = kind.element
        if isinstance(kind, StructKind):
            for rest in _paths(kind.cls, version):
                yield (field.name, *rest)


class Blowing:
    """Makes requests in which one array has many elements: all the same, or each with other leaves."""

    def __init__(self, known: Known) -> None:
        self.known = known

    def request(
        self, cls: type[Message], version: int, place: ArrayPlace, *, count: int, are_equal: bool
    ) -> Message:
        made: Message = self._struct(cls, version, place.path, count, are_equal, 0)
        return made

    def element_count(
        self, cls: type[Message], version: int, place: ArrayPlace, budget_bytes: int, *, are_equal: bool
    ) -> int:
        """How many elements make a request of about this size."""
        sizes = [
            len(encode(self.request(cls, version, place, count=count, are_equal=are_equal), version))
            for count in (100, 200)
        ]
        return max(budget_bytes * 100 // max(sizes[1] - sizes[0], 1), 1)

    def _struct(
        self,
        cls: type[Struct],
        version: int,
        path: tuple[str, ...],
        count: int,
        are_equal: bool,
        number: int,
    ) -> Any:
        values = {}
        for field in cls.FIELDS:
            if version not in field.versions:
                continue
            is_on_path = bool(path) and field.name == path[0]
            rest = path[1:] if is_on_path else ()
            kind = field.kind
            if isinstance(kind, ArrayKind):
                is_blown = is_on_path and not rest
                values[field.name] = self._array(
                    field, kind, version, rest, count, are_equal, number, is_blown
                )
            elif isinstance(kind, StructKind):
                values[field.name] = self._struct(kind.cls, version, rest, count, are_equal, number)
            else:
                values[field.name] = leaf(field.name, kind, cls, number, self.known)
        return cls(**values)

    def _array(
        self,
        field: Field,
        kind: ArrayKind[Any],
        version: int,
        rest: tuple[str, ...],
        count: int,
        are_equal: bool,
        number: int,
        is_blown: bool,
    ) -> list[Any]:
        def element(index: int) -> Any:
            if isinstance(kind.element, StructKind):
                return self._struct(kind.element.cls, version, rest, count, are_equal, index)
            return leaf(field.name, kind.element, None, index, self.known)

        if not is_blown:
            return [element(number)]
        return [element(0)] * count if are_equal else [element(index) for index in range(count)]


def leaf(name: str, kind: Kind[Any], owner: type[Struct] | None, number: int, known: Known) -> Any:
    """A valid value. Element number 0 refers to what is there; others are names and numbers of their own."""
    if kind.name == "records":
        return _BATCH
    if kind.name == "bytes":
        return b"hostile"
    if kind.name == "uuid":
        return UUID(int=known.topic_id.int + number)
    if kind.name == "float64":
        return 1e9 + number
    if kind.name == "bool":
        return bool(_NUMBERS.get(name, 0))
    if kind.name == "string":
        return _text(name, owner, number, known)
    return _number(name, kind, number)


def _text(name: str, owner: type[Struct] | None, number: int, known: Known) -> str:
    text = _TEXTS.get(name)
    if text is None:
        is_topic = name in _TOPIC_STRUCTS and (owner is None or "Topic" in owner.__name__)
        text = known.topics[0] if is_topic else known.group_ids[0]
    if name == "name" and owner is not None and "Config" in owner.__name__:
        text = "retention.ms"
    return text if number == 0 else f"{text}-{number}"


_ENUMERATIONS: Final = frozenset(
    {"acks", "isolation_level", "key_type", "config_operation", "election_type", "max_wait_ms", "timeout_ms"}
)


def _number(name: str, kind: Kind[Any], number: int) -> int:
    base = _NUMBERS.get(name, 0)
    if kind.size < 4 or name in _ENUMERATIONS or name.endswith("_ms"):
        return base
    return base + number


# -- random requests, for generated frames

_ODD_TEXTS: Final = ("", "x", "__no_such_internal", "é" * 20, "..", "a b", "x" * 249, "x" * 300)
_ODD_NUMBERS: Final = (0, 1, -1, 2, 127, -128, 32767, -32768, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
_UNTOUCHED_NUMBERS: Final = frozenset(
    {
        "num_partitions",
        "replication_factor",
        "count",
        "broker_id",
        "allow_auto_topic_creation",
        "validate_only",
    }
)
"""A changed count may be a wish for thousands of partitions, which is legal and takes its time."""
_UNTOUCHED_TEXTS: Final = frozenset({"key", "entity_type", "entity_name"})
"""A quota for everyone is legal, too."""


class Wild:
    """Random requests that their version can carry: mostly sensible leaves, now and then odd ones."""

    def __init__(self, chance: random.Random, known: Known) -> None:
        self._chance = chance
        self._known = known

    def request(self, cls: type[Message], version: int) -> Message:
        made: Message = self._struct(cls, version)
        return made

    def _struct(self, cls: type[Struct], version: int) -> Any:
        return cls(
            **{
                field.name: self._field(field, cls, version)
                for field in cls.FIELDS
                if version in field.versions
            }
        )

    def _field(self, field: Field, owner: type[Struct], version: int) -> Any:
        if version in field.nullable and self._chance.random() < 0.15 and field.name != "entity_name":
            return None
        kind = field.kind
        if isinstance(kind, ArrayKind):
            count = self._chance.choice((0, 1, 1, 1, 2, 3))
            element: Callable[[], Any] = lambda: self._plain(field.name, kind.element, owner, version)  # noqa: E731
            return [element() for _ in range(count)]
        return self._plain(field.name, kind, owner, version)

    def _plain(self, name: str, kind: Kind[Any], owner: type[Struct], version: int) -> Any:
        chance = self._chance
        if isinstance(kind, StructKind):
            return self._struct(kind.cls, version)
        is_odd = chance.random() < 0.1
        if owner.__name__.startswith("DeleteTopic") and kind.name in {"string", "uuid"}:
            return leaf(
                name, kind, owner, chance.randrange(1, 4), self._known
            )  # of a topic that is not there
        if kind.name == "string":
            return self._wild_text(name, owner, is_odd)
        if is_odd and kind.name == "uuid":
            return UUID(int=chance.getrandbits(128))
        if is_odd and kind.name in {"bytes", "records"}:
            return chance.randbytes(chance.randrange(80))
        if is_odd and kind.size and kind.name not in {"float64", "bool"} and name not in _UNTOUCHED_NUMBERS:
            return chance.choice([number for number in _ODD_NUMBERS if _fits(number, kind)])
        if kind.name == "bool" and name not in _UNTOUCHED_NUMBERS:
            return chance.random() < 0.5
        return leaf(name, kind, owner, 0, self._known)

    def _wild_text(self, name: str, owner: type[Struct], is_odd: bool) -> str:
        if name in _UNTOUCHED_TEXTS:
            return _text(name, owner, 0, self._known)
        if is_odd:
            return self._chance.choice(_ODD_TEXTS)
        return _text(name, owner, self._chance.randrange(4), self._known)


def _fits(number: int, kind: Kind[Any]) -> bool:
    bits = 8 * kind.size
    if kind.name == "uint16":
        return 0 <= number < 1 << 16
    return -(1 << (bits - 1)) <= number < 1 << (bits - 1)
