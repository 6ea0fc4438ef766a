"""Durations as Kafka's settings and tools write them: ISO 8601, as Java's `Duration` reads it."""

from __future__ import annotations

import re
from typing import Final

_BY_DURATION: Final = "by_duration:"
_ISO: Final = re.compile(
    r"P(?:(?P<days>[0-9]{1,15})D)?"
    r"(?:T(?:(?P<hours>[0-9]{1,15})H)?(?:(?P<minutes>[0-9]{1,15})M)?(?:(?P<seconds>[0-9]{1,15}(?:\.[0-9]{1,9})?)S)?)?",
    re.IGNORECASE,
)


def iso_duration_ms(text: str) -> int | None:
    """Milliseconds of `P1DT6H30M0.5S`; None for anything else."""
    match = _ISO.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def by_duration_ms(reset: str) -> int | None:
    """Milliseconds of an offset reset such as `by_duration:P1DT2H` (KIP-1106); None for any other."""
    return iso_duration_ms(reset.removeprefix(_BY_DURATION)) if reset.startswith(_BY_DURATION) else None
