"""Times of records: days, milliseconds; and what Spark hands to a format."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_CYCLE_YEARS: Final = 400
_CYCLE_MS: Final = 146_097 * 86_400_000
_YEAR_MAX: Final = 9999


def moment_ms(value: Any) -> int:
    """Of a datetime; without a zone it is in UTC."""
    moment: datetime = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MILLISECOND


def moment(milliseconds: int) -> datetime:
    """ValueError beyond the years that Python knows."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError as error:
        raise ValueError(f"{milliseconds} ms are beyond the year 9999") from error


def day_number(value: date) -> int:
    return (value - _EPOCH_DAY).days


def day(number: int) -> date:
    try:
        return _EPOCH_DAY + timedelta(days=number)
    except OverflowError as error:
        raise ValueError(f"day {number} is beyond the year 9999") from error


def moment_text(milliseconds: int) -> str:
    """Without a zone, as Java's LocalDateTime: of any year, with a sign beyond 9999.

    The calendar is the same every 400 years, so Python's own years are enough.
    """
    cycles, inside = divmod(milliseconds, _CYCLE_MS)
    known = _EPOCH + timedelta(milliseconds=inside)
    year = known.year + _CYCLE_YEARS * cycles
    sign = "-" if year < 0 else "+" if year > _YEAR_MAX else ""
    return f"{sign}{abs(year):04d}-{known:%m-%dT%H:%M:%S}.{known.microsecond // 1000:03d}"
