"""Windows: how time is cut. All lengths are in milliseconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from odradek.model.errors import ConfigError
from odradek.model.java_numbers import trimmed
from odradek.model.public import public

Length: TypeAlias = str | int | timedelta
"""A length of time: text such as 5 minutes, a timedelta, or milliseconds."""
LENGTH_MS_MAX: Final = 2**61
"""A timestamp, a size and a grace are added in 64 bits."""
_UNITS: Final = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_LENGTH: Final = re.compile(r"([0-9]{1,15})\s*([a-z]+?)s?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowKind:
    """The kind of a window, and when it closes.

    `grace_ms`: the grace period, in which a window still takes records after its end. `idle_ms`: after how long
    without a record, on the clock, a task closes its windows. None: it waits for a record.
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
    """A window for every set of records that are at most `size_ms` apart."""

    size_ms: int

    def __str__(self) -> str:
        return f"sliding windows of {duration(self.size_ms)}, grace {duration(self.grace_ms)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindows(WindowKind):
    """Records at most `gap_ms` apart belong together."""

    gap_ms: int
    retention_ms: int | None = None
    """The time after its end in which other records may join a session. None: the gap and the grace."""

    @property
    def store_retention_ms(self) -> int:
        return self.gap_ms + self.grace_ms if self.retention_ms is None else self.retention_ms

    def check_retention(self) -> None:
        """Raises ConfigError for sessions that would be forgotten while they are open."""
        if self.store_retention_ms < self.gap_ms + self.grace_ms:
            raise ConfigError(
                f"retention is {duration(self.store_retention_ms)}; it is at least the gap and the grace,"
                f" {duration(self.gap_ms + self.grace_ms)}"
            )

    def __str__(self) -> str:
        return f"sessions with gaps of {duration(self.gap_ms)}, grace {duration(self.grace_ms)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """Limits how long a table's updates are held back, and how many of them. `time_limit` makes one."""

    wait_ms: int
    records_max: int | None
    bytes_max: int | None
    when_full: Literal["emit", "fail"]

    def __str__(self) -> str:
        limits = [f"until {duration(self.wait_ms)}"]
        limits += [] if self.records_max is None else [f"{self.records_max} records"]
        limits += [] if self.bytes_max is None else [f"{self.bytes_max} bytes"]
        return ", ".join(limits) + (f", {self.when_full} when full" if len(limits) > 1 else "")


@public("odradek.streams")
def time_limit(
    wait: Length,
    *,
    max_records: int | None = None,
    max_bytes: int | None = None,
    when_full: Literal["emit", "fail"] = "emit",
) -> TimeLimit:
    """Returns a limit for `table.suppress(until=time_limit("5 minutes"))`: a key's updates are held back this long after the
    first one, in stream time. `max_records` and `max_bytes` bound what a task holds; when it is full, it emits the oldest
    updates early (`emit`), or the query ends (`fail`).
    """
    if when_full not in ("emit", "fail"):
        raise ConfigError(f"when_full is 'emit' or 'fail', not {when_full!r}")
    for name, count in (("max_records", max_records), ("max_bytes", max_bytes)):
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
            raise ConfigError(f"{name} is a number from 0 on, not {count!r}")
    return TimeLimit(
        wait_ms=milliseconds(wait, "time_limit"),
        records_max=max_records,
        bytes_max=max_bytes,
        when_full=when_full,
    )


def duration(length_ms: int) -> str:
    """Formats a time in the largest unit that is exact: `90 minutes`."""
    unit, size = next(
        (unit, size)
        for unit, size in reversed(_UNITS.items())
        if (length_ms % size == 0 and length_ms >= size) or size == 1
    )
    return f"{length_ms // size} {unit if size > 1 else 'ms'}{'s' * (size > 1 and length_ms != size)}"


def idle_time(idle_timeout: Length | None) -> int | None:
    return None if idle_timeout is None else positive_milliseconds(idle_timeout, "idle_timeout")


def time_windows(
    size: Length, every: Length | None, grace: Length, idle_timeout: Length | None
) -> TimeWindows:
    """Returns tumbling windows, or hopping ones. ConfigError for windows with gaps between them."""
    size_ms = positive_milliseconds(size, "window")
    every_ms = size_ms if every is None else positive_milliseconds(every, "every")
    if every_ms > size_ms:
        raise ConfigError(f"windows of {size_ms} ms begin every 1 to {size_ms} ms, not every {every_ms} ms")
    return TimeWindows(
        size_ms=size_ms,
        every_ms=every_ms,
        grace_ms=milliseconds(grace, "grace"),
        idle_ms=idle_time(idle_timeout),
    )


def positive_milliseconds(length: Length, what: str) -> int:
    """Returns `milliseconds`. ConfigError for 0: Kafka Streams refuses windows without a size, and sessions without a gap."""
    length_ms = milliseconds(length, what)
    if length_ms == 0:
        raise ConfigError(f"{what} is {length!r:.80}; it is 1 ms or longer")
    return length_ms


def milliseconds(length: Length, what: str) -> int:
    """Parses `"5 minutes"`, a timedelta of whole milliseconds, or a number of milliseconds. ConfigError for others."""
    length_ms = _milliseconds(length, what)
    if length_ms > LENGTH_MS_MAX:
        raise ConfigError(f"{what} is {length!r:.80}; a length of time is at most {LENGTH_MS_MAX} ms")
    return length_ms


def _milliseconds(length: Length, what: str) -> int:
    if isinstance(length, timedelta):
        if length % timedelta(milliseconds=1):
            raise ConfigError(f"{what} is {length}; a length of time is whole milliseconds")
        length = length // timedelta(milliseconds=1)
    if isinstance(length, bool) or not isinstance(length, (int, str)):
        raise ConfigError(
            f"{what}={length!r:.80} is no length of time: write '5 minutes', a timedelta, or whole milliseconds"
        )
    if isinstance(length, int):
        if length < 0:
            raise ConfigError(f"{what} is {length} ms; a length of time is not negative")
        return length
    match = _LENGTH.fullmatch(trimmed(length).lower())
    unit = None if match is None else _UNITS.get(match[2])
    if match is None or unit is None:
        raise ConfigError(
            f"{what}={length!r:.80} is no length of time: write '5 minutes', units {', '.join(_UNITS)}"
        )
    return int(match[1]) * unit
