"""Ranges of versions, in the notation of Kafka's message definitions: "3+", "0-12", "4", "none"."""

from __future__ import annotations

from typing import Final, NamedTuple

VERSION_MAX: Final = 32767


class VersionRange(NamedTuple):
    """Both ends are included; empty when `min` is above `max`."""

    min: int
    max: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.min <= version <= self.max

    def __str__(self) -> str:
        if self.min > self.max:
            return "none"
        if self.max == VERSION_MAX:
            return f"{self.min}+"
        return str(self.min) if self.min == self.max else f"{self.min}-{self.max}"


NO_VERSIONS: Final = VersionRange(1, 0)
ALL_VERSIONS: Final = VersionRange(0, VERSION_MAX)


def parse_versions(text: str) -> VersionRange:
    """Read the notation above; ValueError for anything else."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), VERSION_MAX)
    first, _, last = text.partition("-")
    return VersionRange(int(first), int(last or first))
