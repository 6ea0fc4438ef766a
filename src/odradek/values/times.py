"""Times of records: days, milliseconds; and what Spark hands to a format."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

from odradek.values.types import SqlType

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_CYCLE_YEARS: Final = 400
_CYCLE_MS: Final = 146_097 * 86_400_000
_YEAR_MAX: Final = 9999
_DATE: Final = r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
_CLOCK: Final = (
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?)?"
)
_ZONE: Final = r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?"
_WRITTEN: Final = {
    "DATE": (re.compile(_DATE), "yyyy-MM-dd"),
    "TIME": (re.compile(_CLOCK), "HH:mm:ss.SSS"),
    "TIMESTAMP": (re.compile(rf"{_DATE}(?:[T ]{_CLOCK})?{_ZONE}"), "yyyy-MM-dd'T'HH:mm:ss.SSS"),
}


def moment_ms(value: datetime) -> int:
    """Returns milliseconds since 1970, rounded down. A datetime without a zone is in UTC."""
    return (_in_utc(value) - _EPOCH) // _MILLISECOND


def moment_us(value: datetime) -> int:
    """Returns microseconds since 1970. A datetime without a zone is in UTC."""
    return (_in_utc(value) - _EPOCH) // _MICROSECOND


def _in_utc(value: datetime) -> datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def moment(milliseconds: int) -> datetime:
    """Raises ValueError beyond the years that Python knows."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError as error:
        raise ValueError(f"{milliseconds} ms are beyond the year 9999") from error


def precise_moment(microseconds: int) -> datetime:
    """Raises ValueError beyond the years that Python knows."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError as error:
        raise ValueError(f"{microseconds} us are beyond the year 9999") from error


def local_moment(microseconds: int) -> datetime:
    """Returns a datetime without a zone. Raises ValueError beyond the years that Python knows."""
    return precise_moment(microseconds).replace(tzinfo=None)


def day_number(value: date) -> int:
    return (value - _EPOCH_DAY).days


def day(number: int) -> date:
    try:
        return _EPOCH_DAY + timedelta(days=number)
    except OverflowError as error:
        raise ValueError(f"day {number} is beyond the year 9999") from error


def moment_text(milliseconds: int) -> str:
    """Writes a time without a zone, as Java's LocalDateTime does: of any year, with a sign beyond 9999.

    The calendar is the same every 400 years, so Python's own years are enough.
    """
    cycles, inside = divmod(milliseconds, _CYCLE_MS)
    known = _EPOCH + timedelta(milliseconds=inside)
    year = known.year + _CYCLE_YEARS * cycles
    sign = "-" if year < 0 else "+" if year > _YEAR_MAX else ""
    return f"{sign}{abs(year):04d}-{known:%m-%dT%H:%M:%S}.{known.microsecond // 1000:03d}"


def time_of_text(text: str, kind: SqlType) -> int:
    """Returns a DATE, TIME or TIMESTAMP that is written as text: days, or milliseconds. Raises ValueError for other text."""
    pattern, form = _WRITTEN[kind.kind]
    match = pattern.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r:.80} is not of the form {form}")
    parts = match.groupdict()
    days = day_number(date.fromisoformat(parts["date"])) if "date" in parts else 0
    if kind.kind == "DATE":
        return days
    hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text!r:.80} is no time of a day")
    fraction_ms = int((parts["fraction"] or "0").ljust(3, "0")[:3])
    zone = (parts.get("zone") or "Z").replace("Z", "+0000").replace(":", "")
    away_ms = (int(zone[1:3]) * 60 + int(zone[3:])) * 60_000 * (-1 if zone[0] == "-" else 1)
    return days * 86_400_000 + ((hour * 60 + minute) * 60 + second) * 1000 + fraction_ms - away_ms
