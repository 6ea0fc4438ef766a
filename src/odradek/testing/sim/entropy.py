"""Clock and entropy of a simulated host, and how one seed becomes many independent streams of chance."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final
from uuid import UUID

EPOCH_MS: Final = 1_700_000_000_000
"""Wall time at the start of every simulation: 2023-11-14."""


def stream(seed: object, name: str) -> Random:
    """Returns a generator of its own for `name`, so that drawing more in one part of the world does not shift
    another.

    Seeded from text, which Random hashes with SHA-512: the same in every process.
    """
    return Random(f"{seed}/{name}")


class SimClock:
    """The clocks of a simulated host, over virtual time: implements `Clock`. `jump_wall` does what a bad time server does."""

    __slots__ = ("_now_s", "_wall_offset_ms")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._wall_offset_ms = EPOCH_MS

    def wall_ms(self) -> int:
        return self._wall_offset_ms + int(self._now_s() * 1000)

    def monotonic(self) -> float:
        return self._now_s()

    def jump_wall(self, milliseconds: int) -> None:
        """Move the wall clock forward, or back; the monotonic one stays."""
        self._wall_offset_ms += milliseconds


class SimEntropy:
    """The randomness of a simulated host, from a seeded stream: implements `Entropy`."""

    __slots__ = ("_rng",)

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def uuid(self) -> UUID:
        return UUID(int=self._rng.getrandbits(128), version=4)

    def uniform(self) -> float:
        return self._rng.random()
