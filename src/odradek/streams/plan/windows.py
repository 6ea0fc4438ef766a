"""Windows: how time is cut. All lengths are in milliseconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from odradek.model.errors import ConfigError

_UNITS: Final = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_LENGTH: Final = re.compile(r"(\d+)\s*([a-z]+?)s?")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowKind:
    """`grace_ms`: how long after its end a window still takes records. `idle_ms`: after how long without a record, on the
    clock, a task closes its windows. None: it waits for a record.
    """

    grace_ms: int
    idle_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindows(WindowKind):
    """A window begins every `every_ms`: hopping, or tumbling when that is its size."""

    size_ms: int
    every_ms: int

    def __str__(self) -> str:
        return f"windows of {duration(self.size_ms)} every {duration(self.every_ms)}, grace {duration(self.grace_ms)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindows(WindowKind):
    """A window for every set of records that lie at most `size_ms` apart."""

    size_ms: int

    def __str__(self) -> str:
        return f"sliding windows of {duration(self.size_ms)}, grace {duration(self.grace_ms)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindows(WindowKind):
    """Records at most `gap_ms` apart belong together."""

    gap_ms: int

    def __str__(self) -> str:
        return f"sessions with gaps of {duration(self.gap_ms)}, grace {duration(self.grace_ms)}"


def duration(length_ms: int) -> str:
    """In the largest unit that says it exactly: `90 minutes`."""
    unit, size = next(
        (unit, size)
        for unit, size in reversed(_UNITS.items())
        if (length_ms % size == 0 and length_ms >= size) or size == 1
    )
    return f"{length_ms // size} {unit if size > 1 else 'ms'}{'s' * (size > 1 and length_ms != size)}"


def idle_time(idle_timeout: str | int | None) -> int | None:
    return None if idle_timeout is None else milliseconds(idle_timeout, "idle_timeout")


def time_windows(
    size: str | int, every: str | int | None, grace: str | int, idle_timeout: str | int | None
) -> TimeWindows:
    """Tumbling windows, or hopping ones. ConfigError for what would leave gaps between them."""
    size_ms = milliseconds(size, "window")
    every_ms = size_ms if every is None else milliseconds(every, "every")
    if not 0 < every_ms <= size_ms:
        raise ConfigError(f"windows of {size_ms} ms begin every 1 to {size_ms} ms, not every {every_ms} ms")
    return TimeWindows(
        size_ms=size_ms,
        every_ms=every_ms,
        grace_ms=milliseconds(grace, "grace"),
        idle_ms=idle_time(idle_timeout),
    )


def milliseconds(length: str | int, what: str) -> int:
    """`"5 minutes"` or a number of milliseconds. ConfigError for anything else."""
    if isinstance(length, int):
        if length < 0:
            raise ConfigError(f"{what} is {length} ms; a length of time is not negative")
        return length
    match = _LENGTH.fullmatch(length.strip().lower())
    unit = None if match is None else _UNITS.get(match[2])
    if match is None or unit is None:
        raise ConfigError(
            f"{what}={length!r} is no length of time: write '5 minutes', units {', '.join(_UNITS)}"
        )
    return int(match[1]) * unit
