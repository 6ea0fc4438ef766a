"""Ranges of versions, in the notation of Kafka's message definitions: "3+", "0-12", "4", "none"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

VERSION_MAX: Final = 32767


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions from `min` to `max`, both included; none, and false, when `min` is above `max`."""

    min: int
    max: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.min <= version <= self.max

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.min, self.max + 1))

    def __bool__(self) -> bool:
        return self.min <= self.max

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.max == VERSION_MAX:
            return f"{self.min}+"
        return str(self.min) if self.min == self.max else f"{self.min}-{self.max}"


NO_VERSIONS: Final = VersionRange(1, 0)


@cache
def parse_versions(text: str) -> VersionRange:
    """Reads the notation above; raises ValueError for anything else."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), VERSION_MAX)
    first, _, last = text.partition("-")
    return VersionRange(int(first), int(last or first))
