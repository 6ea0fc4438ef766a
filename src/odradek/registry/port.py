"""The coordination store as its users see it: a small tree of versioned values with atomic multi-writes.

Paths look like `/topics/flights`. Three implementations share one contract suite: embedded (a journal on one machine),
ZooKeeper, and the simulated one. A store is used through one session at a time; nodes that are made ephemeral live as long
as it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from odradek.model.errors import OdradekError


class RegistryConflict(OdradekError):
    """A write lost a race: the node exists, is missing, or has another version than the one expected. Nothing was changed."""


class RegistryError(OdradekError):
    """The store cannot be read or written now; the message names the store and what to do.

    A commit that raises this may still have succeeded.
    """


class SessionExpired(RegistryError):
    """The session is over, and its ephemeral nodes are deleted. `renew` begins another."""


class Node(NamedTuple):
    """A value and how often it was written (0 for a fresh one).

    `created` grows with every commit of the store, so a node that is made again has a higher one. `owner` is the id of the
    session that an ephemeral node lives by, 0 for others.
    """

    data: bytes
    version: int
    created: int = 0
    owner: int = 0


class Create(NamedTuple):
    """The operation that makes a node, which must not exist. Its parents need not exist."""

    path: str
    data: bytes
    ephemeral: bool = False


class Put(NamedTuple):
    """The operation that replaces the data of a node, whose version must be the given one."""

    path: str
    data: bytes
    version: int


class Delete(NamedTuple):
    """The operation that removes a node, whose version must be the given one."""

    path: str
    version: int


class Check(NamedTuple):
    """The operation that changes nothing, and fails the commit unless the node has the given version."""

    path: str
    version: int


Operation = Create | Put | Delete | Check


class Registry(Protocol):
    """A session with the coordination store. A commit is durable once `commit` returns.

    Reads see every commit of this session that returned before them, and other sessions' commits that
    returned before `sync` was called."""

    on_expired: Callable[[], None]
    """Called on the loop when the session is over, not when the connection is merely lost."""

    @property
    def session_id(self) -> int:
        """Never 0, never used again."""

    async def get(self, path: str) -> Node | None: ...

    async def children(self, path: str) -> list[str]:
        """Returns the names one level below `path`, sorted."""

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Makes all of the operations or none; raises `RegistryConflict` when one does not apply."""

    async def sync(self) -> None:
        """Returns when reads see everything that was committed before this call."""

    def watch(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        """Calls `on_change` on the loop whenever the node at `path`, or the set of its children, may have changed.

        A child that was removed and made again is another one, even if both happened in one commit.
        It may be called without need, also after a lost connection is back, and it is never lost: a change that follows a read
        made after `watch` returned is reported. Returns a function that ends the watch.
        """

    async def renew(self) -> None:
        """Begins a new session after `SessionExpired`; watches continue."""

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes go at once."""
