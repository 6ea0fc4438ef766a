"""Which disk faults each life of a host meets, as a line of text that a command can repeat.

`kill@79,eio@12:sync+power@40` reads: the first life is killed at its I/O point 79; in the second the first
sync at or behind point 12 fails with EIO, and the power goes at point 40; later lives are spared. `none`
spares a life in between. `kill` and `power` end a life, `eio` and `enospc` fail an operation. What may stand
behind the colon: `write` (to a log file), `sync`, `create` (a log file), `delete` (the renaming of a log
file).
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.testing.sim.disk_faults import (
    GROWING,
    SYNCS,
    WRITES,
    CrashAt,
    CrashKind,
    DiskFault,
    FailAt,
)
from odradek.testing.sim.entropy import stream

_POINT_MAX: Final = 250
_ERRORS: Final = {"eio": errno.EIO, "enospc": errno.ENOSPC}
_CRASHES: Final = {kind.value: kind for kind in CrashKind}


class _Target(NamedTuple):
    operations: Collection[str] | None = None
    suffix: str = ""


_TARGETS: Final = {
    "": _Target(),
    "write": _Target(WRITES, ".log"),
    "sync": _Target(SYNCS),
    "create": _Target(frozenset({"create"}), ".log"),
    "delete": _Target(frozenset({"rename"}), ".log"),
}
_DRAWN: Final = (
    *(("kill", target) for target in ("", "write", "sync", "create", "delete")),
    *(("power", target) for target in ("", "write", "write", "write", "sync", "sync", "create", "delete")),
    *(("eio", target) for target in ("", "sync", "sync")),
    *(("enospc", target) for target in ("", "write", "create")),
)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """`kind` at I/O point `point` of a life, or at the first one behind it that is a `target`."""

    kind: str
    point: int
    target: str = ""

    def __str__(self) -> str:
        return f"{self.kind}@{self.point}:{self.target}".rstrip(":")


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The faults of each life in turn."""

    lives: tuple[tuple[PlannedFault, ...], ...] = ()

    def __str__(self) -> str:
        return ",".join("+".join(map(str, faults)) or "none" for faults in self.lives) or "none"

    @classmethod
    def parse(cls, text: str) -> FaultPlan:
        """Raises ValueError for what is not such a line."""
        return cls(tuple(_parse_life(life) for life in text.split(",")))

    @classmethod
    def draw(cls, seed: int) -> FaultPlan:
        """Up to three lives that end badly. Early points are likelier, so that recovery is hit as well."""
        rng = stream(seed, "faults")
        lives = []
        for _ in range(rng.choice((0, 1, 2, 3, 3))):
            faults = []
            for _ in range(rng.choice((1, 1, 2))):
                kind, target = rng.choice(_DRAWN)
                early = int(_POINT_MAX ** rng.random())
                faults.append(PlannedFault(kind, rng.choice((early, rng.randint(1, _POINT_MAX))), target))
            lives.append(tuple(faults))
        return cls(tuple(lives))

    def faults(self, seed: int) -> list[list[DiskFault]]:
        """What the disks are given. How a write tears depends on the seed and on the plan's text alone."""
        return [
            [self._fault(seed, number, planned) for planned in faults]
            for number, faults in enumerate(self.lives)
        ]

    @staticmethod
    def _fault(seed: int, life: int, planned: PlannedFault) -> DiskFault:
        rng = stream(seed, f"fault {life} {planned}")
        target = _TARGETS[planned.target]
        if planned.kind in _CRASHES:
            return CrashAt(
                number=planned.point,
                kind=_CRASHES[planned.kind],
                rng=rng,
                operations=target.operations,
                suffix=target.suffix,
            )
        operations = target.operations
        if planned.kind == "enospc" and operations is None:
            operations = GROWING
        return FailAt(
            number=planned.point,
            error=_ERRORS[planned.kind],
            operations=operations,
            suffix=target.suffix,
            done=rng.random(),
        )


def _parse_life(text: str) -> tuple[PlannedFault, ...]:
    if text == "none":
        return ()
    faults = []
    for part in text.split("+"):
        kind, _, where = part.partition("@")
        point, _, target = where.partition(":")
        if not (kind in _CRASHES or kind in _ERRORS) or target not in _TARGETS or not point.isdigit():
            raise ValueError(f"{part!r} is no fault: a fault reads like kill@79 or eio@12:sync")
        faults.append(PlannedFault(kind, int(point), target))
    return tuple(faults)
