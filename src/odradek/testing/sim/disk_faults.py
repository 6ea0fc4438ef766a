"""Faults at I/O points: what goes wrong, and when.

Every operation of `SimDisk` is a numbered point. Before it acts, the disk shows the point to its faults; the
first one with an answer decides.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final, Protocol

WRITES: Final = frozenset({"pwrite", "pwritev", "truncate"})
GROWING: Final = frozenset({"pwrite", "pwritev", "create", "make_directory"})
"""The operations that need space."""
SYNCS: Final = frozenset({"sync", "sync_directory"})
READS: Final = frozenset({"pread", "read"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One operation about to happen; `number` counts from 1 over the life of the mounted disk."""

    number: int
    operation: str
    path: str


class CrashKind(Enum):
    PROCESS_KILL = "kill"
    """The process is lost; the kernel, its page cache and its sockets' last bytes stay."""
    POWER_LOSS = "power"
    """Everything is lost except the platter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The fault that ends the host at an I/O point, after the share `done` (0 to 1) of the operation's effect."""

    kind: CrashKind
    done: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The fault that raises OSError `number`, after the share `done` of a write went into the file."""

    number: int
    done: float = 0.0


Outcome = Crash | Failure


class DiskFault(Protocol):
    def at(self, point: Point) -> Outcome | None:
        """Returns the fault at this point; None for none."""


@dataclass(slots=True, kw_only=True)
class CrashAt:
    """Dies at point `number`, or at the first later one that is one of `operations`."""

    number: int
    kind: CrashKind
    rng: Random
    operations: Collection[str] | None = None
    """The operations at which it happens; None: any operation."""
    suffix: str = ""
    """The end of the paths at which it happens."""

    def at(self, point: Point) -> Outcome | None:
        if point.number < self.number or not point.path.endswith(self.suffix):
            return None
        if self.operations is not None and point.operation not in self.operations:
            return None
        return Crash(kind=self.kind, done=self.rng.choice((0.0, self.rng.random(), 1.0, 1.0)))


@dataclass(slots=True, kw_only=True)
class FailAt:
    """Returns an error once: at point `number`, or at the first later one that is one of `operations`."""

    number: int
    error: int
    operations: Collection[str] | None = None
    """The operations at which it happens; None: any operation."""
    suffix: str = ""
    """The end of the paths at which it happens."""
    done: float = 0.0
    _struck: bool = False

    def at(self, point: Point) -> Outcome | None:
        if self._struck or point.number < self.number or not point.path.endswith(self.suffix):
            return None
        if self.operations is not None and point.operation not in self.operations:
            return None
        self._struck = True
        return Failure(number=self.error, done=self.done)


@dataclass(slots=True, kw_only=True)
class FailOperations:
    """Answers errors to operations of these names whose path the test accepts, until `remaining` runs out."""

    operations: Collection[str]
    error: int = errno.EIO
    done: float = 0.0
    remaining: int = 1
    path_test: Callable[[str], bool] = field(default=lambda path: True)

    def at(self, point: Point) -> Outcome | None:
        if self.remaining <= 0 or point.operation not in self.operations or not self.path_test(point.path):
            return None
        self.remaining -= 1
        return Failure(number=self.error, done=self.done)


@dataclass(slots=True, kw_only=True)
class RandomFailures:
    """Fails each kind of operation at its own rate while `active`."""

    rng: Random
    write_rate: float = 0.0
    sync_rate: float = 0.0
    read_rate: float = 0.0
    active: bool = True

    def at(self, point: Point) -> Outcome | None:
        if not self.active:
            return None
        if point.operation in WRITES:
            number, rate = errno.ENOSPC, self.write_rate
        elif point.operation in SYNCS:
            number, rate = errno.EIO, self.sync_rate
        elif point.operation in READS:
            number, rate = errno.EIO, self.read_rate
        else:
            return None
        if self.rng.random() >= rate:
            return None
        return Failure(number=number, done=self.rng.random())
