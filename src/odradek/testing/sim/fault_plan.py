"""Which disk faults each life of a host meets, as a line of text that a command can repeat.

`kill@79,eio@12+power@40` reads: the first life is killed at its I/O point 79; in the second the operation at
point 12 fails with EIO and the power goes at point 40; later lives are spared. `none` spares a life in
between.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

from odradek.testing.sim.chance import stream
from odradek.testing.sim.disk_faults import GROWING, SYNCS, CrashAt, CrashKind, DiskFault, FailAt

_ERRORS: Final = {"eio": errno.EIO, "fsync": errno.EIO, "enospc": errno.ENOSPC}
_STRIKES: Final = {"fsync": SYNCS, "enospc": GROWING}
_CRASHES: Final = {kind.value: kind for kind in CrashKind}
_POINT_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """`kind` at I/O point `point` of a life."""

    kind: str
    point: int

    def __str__(self) -> str:
        return f"{self.kind}@{self.point}"


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
        for _ in range(rng.randint(0, 3)):
            faults = []
            for _ in range(rng.choice((1, 1, 2))):
                kind = rng.choice((*_CRASHES, *_CRASHES, *_ERRORS))
                early = int(_POINT_MAX ** rng.random())
                faults.append(PlannedFault(kind, rng.choice((early, rng.randint(1, _POINT_MAX)))))
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
        if planned.kind in _CRASHES:
            return CrashAt(number=planned.point, kind=_CRASHES[planned.kind], rng=rng)
        return FailAt(
            number=planned.point,
            error=_ERRORS[planned.kind],
            operations=_STRIKES.get(planned.kind),
            done=rng.random(),
        )


def _parse_life(text: str) -> tuple[PlannedFault, ...]:
    if text == "none":
        return ()
    faults = []
    for part in text.split("+"):
        kind, _, point = part.partition("@")
        if kind not in _CRASHES and kind not in _ERRORS:
            raise ValueError(
                f"{part!r}: a fault is one of {', '.join((*_CRASHES, *_ERRORS))} and a point: kill@79"
            )
        faults.append(PlannedFault(kind, int(point)))
    return tuple(faults)
