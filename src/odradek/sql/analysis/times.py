"""Times that are written as text and compared with ROWTIME, WINDOWSTART and WINDOWEND."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from odradek.values.errors import SqlError
from odradek.values.times import time_of_text
from odradek.values.types import SqlType

_TIME: Final = re.compile(
    r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?"
    r"(?:[T ](?:([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,3}))?)?)?)?)?"
    r"\s*(Z|[+-][0-9]{2}:?[0-9]{2})?"
)
TIME_LITERALS: Final = {
    "DATE": "date_from_unix_date({0})",
    "TIME": "{0}",
    "TIMESTAMP": "timestamp_millis({0}L)",
}
TIME_COLUMNS: Final = ("ROWTIME", "WINDOWSTART", "WINDOWEND")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def epoch_ms(text: str, position: tuple[int, int] | None = None) -> int:
    """Parses `2020-01-31T10:15:00.000`, or a prefix of it, with an offset or in UTC. SqlError for other texts."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise SqlError(
            f"{text!r} is no time", position, "Write yyyy-MM-dd'T'HH:mm:ss.SSS, or a part of it from the left"
        )
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        moment = datetime(
            int(year),  # digits: as the pattern allows
            int(month or 1),
            int(day or 1),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            tzinfo=_zone(zone),
        )
    except ValueError as error:
        raise SqlError(f"{text!r} is no time: {error}", position) from None
    return int((moment - _EPOCH) / timedelta(milliseconds=1)) + int((fraction or "0").ljust(3, "0"))


def time_literal(text: str, kind: SqlType) -> str:
    """Returns a DATE, TIME or TIMESTAMP as Spark SQL. Raises SqlError for text that is none."""
    try:
        return TIME_LITERALS[kind.kind].format(time_of_text(text, kind))
    except ValueError as error:
        raise SqlError(f"'{text:.40}' is no {kind}: {error}") from None


def _zone(text: str | None) -> timezone:
    if text in (None, "Z"):
        return UTC
    assert text is not None
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)
