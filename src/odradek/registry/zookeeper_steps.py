"""Translates a commit to ZooKeeper's steps, and values to their stored form. No I/O.

**Values.** A znode holds a node's data as it is, so that people can read it, with three exceptions, marked in
its first byte:

    (nothing at all)   no node: a parent that was only made because ZooKeeper needs one
    0x00               the data follows; used where it is empty, or begins with one of these bytes
    0x01               the data follows, compressed by zlib

**Commits.** One operation is one step of a multi. Where ZooKeeper knows less than the port promises, the plan is amended and
sent again, always as one multi: missing parents are made by the commit itself, a node is made at a mere parent by writing to
it, and a node that has children is removed by emptying it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from odradek.registry.port import Check, Create, Delete, Operation, Put, RegistryError

COMPRESSED_FROM_BYTES: Final = 16 * 1024
"""Values that are smaller stay readable."""
VALUE_BYTES_MAX: Final = 64 << 20
"""The most bytes that a compressed value may expand to."""
PACKET_BYTES_MAX: Final = 0xFFFFF
"""The most bytes that a ZooKeeper takes in one request, unless its jute.maxbuffer is another."""
_STEP_BYTES: Final = 160
"""An upper bound of a step's bytes without its path and data."""
_PLAIN: Final = b"\x00"
_ZLIB: Final = b"\x01"


def encode(data: bytes) -> bytes:
    if len(data) >= COMPRESSED_FROM_BYTES:
        packed = _ZLIB + zlib.compress(data, 1)
        if len(packed) < len(data):
            return packed
    return _PLAIN + data if not data or data[:1] in (_PLAIN, _ZLIB) else data


def decode(stored: bytes, path: str) -> bytes | None:
    """Returns None for a mere parent. Raises `RegistryError` for data that no one here wrote."""
    if not stored:
        return None
    if stored[:1] == _PLAIN:
        return stored[1:]
    if stored[:1] != _ZLIB:
        return stored
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(stored[1:], VALUE_BYTES_MAX)
    except zlib.error as error:
        raise RegistryError(f"the znode of {path} is damaged: {error}") from None
    if not unpacking.eof:
        raise RegistryError(
            f"the znode of {path} is damaged: it does not unpack to {VALUE_BYTES_MAX} bytes or less"
        )
    return data


class StepRefusal(Enum):
    """The reasons why ZooKeeper refuses a step."""

    EXISTS = auto()
    MISSING = auto()
    """The node; for a creation, its parent."""
    VERSION = auto()
    HAS_CHILDREN = auto()
    CHILD_OF_EPHEMERAL = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperStep:
    """One operation of a multi. Creations have no version; others without one take any."""

    operation: int | None
    """Its place in the commit; None for a mere parent."""
    path: str
    creates: bool = False
    ephemeral: bool = False
    deletes: bool = False
    data: bytes | None = None
    """The data to write, in its stored form; None for a removal and a check."""
    version: int = -1


class CommitPlan:
    """A commit, and what was learned about it from ZooKeeper's refusals. `encoded` are the values of its operations."""

    def __init__(self, operations: Sequence[Operation], encoded: Mapping[int, bytes]) -> None:
        self._operations = operations
        self._encoded = encoded
        self._parents: dict[str, None] = {}
        self._emptied: set[int] = set()
        self._filled: dict[int, int] = {}

    def steps(self) -> list[ZooKeeperStep]:
        """Raises RegistryError for more than ZooKeeper takes at once."""
        steps = [ZooKeeperStep(operation=None, path=path, creates=True, data=b"") for path in self._parents]
        steps += [self._step(number, operation) for number, operation in enumerate(self._operations)]
        size = sum(_STEP_BYTES + len(step.path.encode()) + len(step.data or b"") for step in steps)
        if size > PACKET_BYTES_MAX:
            largest = max(steps, key=lambda step: len(step.data or b""))
            raise RegistryError(
                f"a change of {size} bytes is more than ZooKeeper takes at once ({PACKET_BYTES_MAX} bytes); the largest part "
                f"is {largest.path} with {len(largest.data or b'')} bytes: change less at once, or give topics fewer partitions"
            )
        return steps

    def _step(self, number: int, operation: Operation) -> ZooKeeperStep:
        path = operation.path
        match operation:
            case Create(ephemeral=ephemeral):
                version = 0 if path in self._parents else self._filled.get(number)
                if version is not None and not ephemeral:
                    return ZooKeeperStep(
                        operation=number, path=path, data=self._encoded[number], version=version
                    )
                return ZooKeeperStep(
                    operation=number,
                    path=path,
                    creates=True,
                    ephemeral=ephemeral,
                    data=self._encoded[number],
                )
            case Put(version=version):
                return ZooKeeperStep(operation=number, path=path, data=self._encoded[number], version=version)
            case Delete(version=version) if number in self._emptied:
                return ZooKeeperStep(operation=number, path=path, data=b"", version=version)
            case Delete(version=version):
                return ZooKeeperStep(operation=number, path=path, deletes=True, version=version)
            case Check(version=version):
                return ZooKeeperStep(operation=number, path=path, version=version)

    # -- what was learned

    def parents_are_missing(self, paths: Sequence[str]) -> None:
        """Creates these nodes, too; a parent before its children."""
        for path in paths:
            self._parents.setdefault(path)

    def parent_exists(self, path: str) -> None:
        self._parents.pop(path, None)

    def is_mere_parent(self, operation: int, version: int) -> None:
        """Notes that there is only a parent where this creation's node goes."""
        self._filled[operation] = version

    def is_no_longer_mere_parent(self, operation: int) -> bool:
        """Returns whether the node was thought to be a mere parent."""
        return self._filled.pop(operation, None) is not None

    def has_children(self, operation: int) -> None:
        """Notes that the node of this removal has children."""
        self._emptied.add(operation)


def ancestors(path: str) -> list[str]:
    """Returns the paths above a path: for `/a/b/c`, `/a` and `/a/b`."""
    names = path.strip("/").split("/")[:-1]
    return ["/" + "/".join(names[: count + 1]) for count in range(len(names))]
