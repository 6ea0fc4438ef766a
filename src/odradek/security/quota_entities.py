"""The entities of quotas, their limits, and the checks and matches of requests about them (KIP-546, KIP-612).

An entity is a tuple of (type, name), sorted by type; the name None means "any other": the default.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, IntEnum
from ipaddress import ip_address
from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode, KafkaError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

Entity = tuple[tuple[str, str | None], ...]


class QuotaKind(Enum):
    """The limits, by Kafka's names."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATIONS = "controller_mutation_rate"
    CONNECTIONS = "connection_creation_rate"


_OF_CLIENTS: Final = frozenset(kind.value for kind in QuotaKind) - {QuotaKind.CONNECTIONS.value}
_OF_ADDRESSES: Final = frozenset({QuotaKind.CONNECTIONS.value})
_WHOLE: Final = {
    QuotaKind.PRODUCE.value: 2**63 - 1,
    QuotaKind.FETCH.value: 2**63 - 1,
    QuotaKind.CONNECTIONS.value: 2**31 - 1,
}
"""Limits that are whole numbers, and their maxima."""


class QuotaChange(NamedTuple):
    """One limit set (or, with None, removed)."""

    key: str
    value: float | None


def _refused(message: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> KafkaError:
    return KafkaError(code, message)


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Returns the entity: known types, each once, no empty names, addresses by themselves. Raises INVALID_REQUEST otherwise."""
    results: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise _refused(f"quota entities of type {kind!r} do not exist: use {USER}, {CLIENT_ID} or {IP}")
        if kind in results:
            raise _refused(f"the quota entity names its {kind} more than once")
        if name == "":
            raise _refused(f"the {kind} of a quota entity is empty: leave the name out for the default")
        if kind == IP and name is not None:
            name = _address(name)
        results[kind] = name
    if not results:
        raise _refused("the quota entity is empty: name a user, a client id or an address")
    if IP in results and len(results) > 1:
        raise _refused("a quota of an address cannot be combined with a user or a client id")
    return tuple(sorted(results.items()))


def _address(name: str) -> str:
    try:
        return str(ip_address(name))
    except ValueError:
        raise _refused(f"{name!r} is not an IP address") from None


def check_change(entity: Entity, change: QuotaChange) -> None:
    """Raises INVALID_REQUEST for a limit that the entity cannot have, or a value that means nothing."""
    allowed = _OF_ADDRESSES if entity[0][0] == IP else _OF_CLIENTS
    if change.key not in allowed:
        raise _refused(
            f"{change.key} is not a quota of a {'/'.join(kind for kind, _ in entity)}: use {', '.join(sorted(allowed))}"
        )
    value = change.value
    if value is None:
        return
    if math.isnan(value) or value <= 0:
        raise _refused(f"quota {change.key} must be greater than 0, not {value:g}")
    most = _WHOLE.get(change.key)
    if most is None and math.isinf(value):
        raise _refused(f"quota {change.key} must be finite")
    if most is not None and value > most:
        raise _refused(f"{value:g} is too large for quota {change.key}")
    if most is not None and value != int(value):
        raise _refused(f"quota {change.key} must be a whole number, not {value:g}")


def changed(before: Mapping[str, float], changes: Sequence[QuotaChange]) -> dict[str, float]:
    """Returns the limits after `changes`, in order."""
    after = dict(before)
    for change in changes:
        if change.value is None:
            after.pop(change.key, None)
        else:
            after[change.key] = change.value
    return after


class Match(IntEnum):
    """The ways in which a filter matches names."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class Component(NamedTuple):
    """A filter's condition on one type of entity."""

    kind: str
    match: Match
    name: str | None

    def accepts(self, entity: Mapping[str, str | None]) -> bool:
        if self.kind not in entity:
            return False
        # The name None is the default, which "any" includes.
        return self.match is Match.ANY or entity[self.kind] == self.name


class Filter:
    """Which entities DescribeClientQuotas is about. Raises INVALID_REQUEST, UNSUPPORTED_VERSION for unknown types."""

    def __init__(self, components: Iterable[tuple[str, int, str | None]], *, strict: bool) -> None:
        self._strict = strict
        self._components: dict[str, Component] = {}
        for kind, match, name in components:
            self._add(kind, match, name)
        if IP in self._components and len(self._components) > 1:
            raise _refused("a filter for addresses cannot be combined with users or client ids")

    def _add(self, kind: str, match: int, name: str | None) -> None:
        if not kind:
            raise _refused("a component of the filter has no entity type")
        if kind in self._components:
            raise _refused(f"the filter names {kind} more than once")
        if kind not in ENTITY_TYPES:
            raise _refused(f"quota entities of type {kind!r} do not exist", ErrorCode.UNSUPPORTED_VERSION)
        if match not in tuple(Match):
            raise _refused(f"match type {match} is not known: 0 is exact, 1 the default, 2 any name")
        if (match == Match.EXACT) == (name is None):
            raise _refused("a name is given with match type 0 (exact), and with no other")
        self._components[kind] = Component(kind, Match(match), name)

    def accepts(self, entity: Entity) -> bool:
        held = dict(entity)
        if self._strict and held.keys() != self._components.keys():
            return False
        return all(component.accepts(held) for component in self._components.values())
