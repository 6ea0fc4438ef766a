"""Moments, and positions to start reading from, as people write them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from odradek.model.durations import iso_duration_ms
from odradek.model.errors import ConfigError
from odradek.model.java_numbers import trimmed

_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>ms|s|m|h|d|w)(?: ago)?\Z")
_NUMBER = re.compile(r"-?[0-9]{1,18}\Z")


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first record that the partition still holds."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of the log as a position: only records that arrive from now on are read."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class LastRecords:
    """The last `count` offsets of each partition."""

    count: int


@dataclass(frozen=True, slots=True)
class FromTimestamp:
    """The first record whose timestamp is at least this, in milliseconds since 1970."""

    timestamp_ms: int


Start = Beginning | End | AtOffset | LastRecords | FromTimestamp

START_FORMS: Final = (
    "beginning, end, an offset (1500), the last N records (-10), how long ago (15m, 2h, 7d), a time "
    "(2013-07-04T12:00, local unless it has a zone), or @ and milliseconds since 1970"
)


def parse_start(text: str, *, now_ms: int) -> Start:
    """Parses a start. Raises ConfigError, which lists the valid forms."""
    word = trimmed(text)
    if word in ("beginning", "start", "earliest"):
        return Beginning()
    if word in ("end", "latest"):
        return End()
    if _NUMBER.match(word):
        number = int(word)
        return AtOffset(number) if not word.startswith("-") else LastRecords(-number)
    moment = parse_moment(word, now_ms=now_ms)
    if moment is None:
        raise ConfigError(f"{text!r:.80} is no place to start: expected {START_FORMS}")
    return FromTimestamp(moment)


def parse_moment(text: str, *, now_ms: int) -> int | None:
    """Milliseconds since 1970 of a time, of a duration ago, or of `@MILLISECONDS`; None for anything else."""
    if text.startswith("@") and _NUMBER.match(text[1:]):
        return int(text[1:])
    duration = _DURATION.match(text)
    if duration:
        return now_ms - int(duration["count"]) * _UNIT_MS[duration["unit"]]
    try:
        moment = datetime.fromisoformat(text)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None


def duration_ms(text: str) -> int:
    """Milliseconds of `500ms`, `30s`, `15m`, `2h`, `7d`, `1w`."""
    duration = _DURATION.match(trimmed(text))
    if duration is None:
        raise ConfigError(f"{text!r:.80} is no duration: expected 30s, 15m, 2h or 7d")
    return int(duration["count"]) * _UNIT_MS[duration["unit"]]


def parse_timestamp(text: str, *, now_ms: int) -> int:
    """Parses a record's timestamp as `parse_moment` does; a bare number is milliseconds since 1970."""
    if _NUMBER.match(text):
        return int(text)
    moment = parse_moment(text, now_ms=now_ms)
    if moment is None:
        raise ConfigError(
            f"{text!r:.80} is no time: expected milliseconds since 1970, 2013-07-04T12:00:00Z, or how long ago (15m)"
        )
    return moment


def time_text(timestamp_ms: int) -> str:
    """Returns a record's timestamp as ISO 8601 in UTC; empty where there is none."""
    if timestamp_ms < 0:
        return ""
    try:
        seconds, millis = divmod(timestamp_ms, 1000)
        return f"{datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()}.{millis:03d}Z"
    except (ValueError, OverflowError, OSError):
        return f"@{timestamp_ms}"  # beyond the year 9999: still a form that is understood


def parse_moment_or_duration(text: str, *, now_ms: int) -> int:
    """Parses a time, or how long ago: 15m, PT15M."""
    ago = iso_duration_ms(text)
    moment = now_ms - ago if ago is not None else parse_moment(text, now_ms=now_ms)
    if moment is None:
        raise ConfigError(
            f"{text!r:.80} is no time: expected 2013-07-04T12:00:00Z, or how long ago: 15m, 2h, P1DT6H"
        )
    return moment
