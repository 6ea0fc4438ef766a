"""The coordination store as its users see it: a small tree of versioned values with atomic multi-writes.

Paths look like `/topics/flights`. Three implementations share one contract suite in the finished house: embedded (here),
ZooKeeper, and the simulated one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from odradek.model.errors import OdradekError


class RegistryConflict(OdradekError):
    """A write lost a race: the node exists, is missing, or has another version than the one expected."""


class RegistryError(OdradekError):
    """The store cannot be read or written; the message says where and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value and how often it was written (0 for a fresh one)."""

    data: bytes
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Make a node that must not exist."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Replace a node whose version must be the one given."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Remove a node whose version must be the one given."""

    path: str
    version: int


Operation = Create | Put | Delete


class Registry(Protocol):
    """Durable once `commit` returns. Reads see every commit that returned before them."""

    async def get(self, path: str) -> Node | None: ...

    async def children(self, path: str) -> list[str]:
        """Names one level below `path`, sorted."""

    async def commit(self, operations: Sequence[Operation]) -> None:
        """All of the operations or none; `RegistryConflict` when one does not apply."""

    async def close(self) -> None: ...
