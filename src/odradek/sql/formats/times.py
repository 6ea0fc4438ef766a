"""Times of records: days, milliseconds; and what Spark hands to a format."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1)
_MILLISECOND: Final = timedelta(milliseconds=1)


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
