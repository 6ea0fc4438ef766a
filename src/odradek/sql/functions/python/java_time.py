"""Patterns of Java's DateTimeFormatter: text to milliseconds, and milliseconds to text.

A pattern becomes a regular expression for parsing, and a list of pieces for formatting. As in ksqlDB: capitals do not matter,
what a pattern lacks comes from 1970-01-01T00:00 UTC, and the 31st of a short month is its last day.

Letters: y u M L d D E H h K k m s S n a G (AD) and the zones V z O X x Z; '…' for text, [ ] for what may be absent.
Source: the documentation of java.time.format.DateTimeFormatter.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from odradek.model.java_numbers import is_digits

_MONTHS: Final = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS: Final = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_PIECE: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SHORT_ZONES: Final = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
"""Java's short names of zones."""
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?(?::?([0-9]{2}))?")
_OFFSETS: Final = {
    "X": r"Z|[+-][0-9]{2}(?:[0-9]{2})?",
    "XX": r"Z|[+-][0-9]{4}",
    "XXX": r"Z|[+-][0-9]{2}:[0-9]{2}",
    "x": r"[+-][0-9]{2}(?:[0-9]{2})?",
    "xx": r"[+-][0-9]{4}",
    "xxx": r"[+-][0-9]{2}:[0-9]{2}",
    "Z": r"[+-][0-9]{4}",
    "ZZ": r"[+-][0-9]{4}",
    "ZZZ": r"[+-][0-9]{4}",
    "ZZZZ": r"GMT(?:[+-][0-9]{2}:[0-9]{2})?",
    "ZZZZZ": r"Z|[+-][0-9]{2}:[0-9]{2}",
    "O": r"GMT(?:[+-][0-9]{1,2}(?::[0-9]{2})?)?",
    "OOOO": r"GMT(?:[+-][0-9]{2}:[0-9]{2})?",
    "VV": r"[A-Za-z][A-Za-z0-9~/._+-]*|[+-][0-9]{2}:[0-9]{2}",
    **dict.fromkeys(("z", "zz", "zzz", "zzzz"), r"[A-Za-z][A-Za-z0-9~/._+-]*"),
}
_OF_DATE: Final = frozenset("yuMLdDEG")
_OF_TIME: Final = frozenset("HhKkmsSna")


def zone_of(name: str) -> tzinfo:
    """Returns a time zone. ValueError for one that does not exist."""
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    match = _OFFSET.fullmatch(name)
    if match:
        seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60 + int(match[4] or 0)
        return timezone(timedelta(seconds=seconds if match[1] == "+" else -seconds))
    try:
        return ZoneInfo(SHORT_ZONES.get(name, name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name} is no time zone") from None


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A pattern of java.time, parsed.

    `pieces`: letters of a field ("yyyy"), or text that is taken as it is (with a " in front).
    """

    pieces: tuple[str, ...]
    expression: re.Pattern[str]
    letters: frozenset[str]


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> _Pattern:
    pieces: list[str] = []
    expression = ""
    for match in _PIECE.finditer(pattern):
        if match[1] is not None:
            text = match[1].replace("''", "'") or "'"
            pieces.append('"' + text)
            expression += re.escape(text)
        elif match[2] is not None:
            pieces.append(match[0])
            expression += f"({_field(match[0])})"
        elif match[3] in "[]":
            expression += "(?:" if match[3] == "[" else ")?"
        elif match[3] in "{}#'":
            raise ValueError(f"{match[3]} is not allowed in a pattern: {pattern}")
        else:
            pieces.append('"' + match[3])
            expression += re.escape(match[3])
    letters = frozenset(piece[0] for piece in pieces if piece[0] != '"')
    return _Pattern(tuple(pieces), re.compile(expression, re.IGNORECASE), letters)


def _field(letters: str) -> str:
    """Returns the regular expression of a field."""
    letter, count = letters[0], len(letters)
    if letters in _OFFSETS:
        return _OFFSETS[letters]
    if letter in "yu":
        return r"[0-9]{2}" if count == 2 else rf"[+-]?[0-9]{{{count},10}}"
    if letter in "ML" and count >= 3:
        return "|".join(month if count == 4 else month[:3] for month in _MONTHS)
    if letter == "E":
        return "|".join(day if count == 4 else day[:3] for day in _DAYS)
    if letter == "a" and count == 1:
        return "AM|PM"
    if letter == "G":
        return "AD" if count <= 3 else "Anno Domini"
    if letter == "S":
        return rf"[0-9]{{{count}}}"
    if letter in "MLdHhKkms" and count <= 2:
        return r"[0-9]{1,2}" if count == 1 else r"[0-9]{2}"
    if letter in "Dn":
        return rf"[0-9]{{{count},9}}"
    raise ValueError(f"{letters} is no field of a pattern")


def parse(text: str, pattern: str, zone: str, kind: str) -> int:
    """Milliseconds since 1970-01-01 UTC. `kind`: timestamp, date (of its midnight), time (since midnight).

    ValueError for text that does not fit, a pattern that is none, a zone that does not exist.
    """
    compiled = _compiled(pattern)
    if (kind == "date" and compiled.letters & _OF_TIME) or (kind == "time" and compiled.letters & _OF_DATE):
        raise ValueError(f"{pattern} is no pattern of a {kind}")
    match = compiled.expression.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is not written as {pattern}")
    fields: dict[str, str] = {}
    index = 0
    for piece in compiled.pieces:
        if piece[0] != '"':
            index += 1
            if match[index] is not None:
                fields[piece] = match[index]
    values = {piece[0]: (piece, value) for piece, value in fields.items()}
    if kind == "date" and not (
        {"y", "u"} & values.keys() and (({"M", "L"} & values.keys() and "d" in values) or "D" in values)
    ):
        raise ValueError(f"{pattern} gives no whole date")
    moment = _date(values) + _time(values)
    if kind == "time":
        return _milliseconds(moment - datetime(1970, 1, 1))
    zones = [value for piece, value in fields.items() if piece[0] in "VzOXxZ"]
    local = moment.replace(tzinfo=UTC if kind == "date" else zone_of(_zone_name(zones[0]) if zones else zone))
    return _milliseconds(local - _EPOCH)


def _zone_name(text: str) -> str:
    upper = text.upper()
    return upper if upper in ("Z", "UTC", "GMT") or upper in SHORT_ZONES or text[0] in "+-" else text


def _milliseconds(since: timedelta) -> int:
    return since // timedelta(milliseconds=1)


def _date(values: dict[str, tuple[str, str]]) -> datetime:
    year = 1970
    for letter in "yu":
        if letter in values:
            piece, text = values[letter]
            year = 2000 + int(text) if len(piece) == 2 else int(text)
    if not 0 < year <= 9999:
        raise ValueError(f"the year {year} is not between 1 and 9999")
    if "D" in values:
        day_of_year = int(values["D"][1])
        if not 1 <= day_of_year <= 365 + (monthrange(year, 2)[1] == 29):
            raise ValueError(f"{year} has no day {day_of_year}")
        return datetime(year, 1, 1) + timedelta(days=day_of_year - 1)
    piece, text = values.get("M") or values.get("L") or ("M", "1")
    month = (
        int(text) if is_digits(text) else [name[:3].lower() for name in _MONTHS].index(text[:3].lower()) + 1
    )
    day = int(values["d"][1]) if "d" in values else 1
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        raise ValueError(f"there is no day {month}-{day}")
    return datetime(year, month, min(day, monthrange(year, month)[1]))


def _number(values: dict[str, tuple[str, str]], letter: str, most: int, least: int = 0) -> int | None:
    if letter not in values:
        return None
    number = int(values[letter][1])
    if not least <= number <= most:
        raise ValueError(f"{number} is not from {least} to {most}")
    return number


def _time(values: dict[str, tuple[str, str]]) -> timedelta:
    hour = _number(values, "H", 23)
    if hour is None and (of_day := _number(values, "k", 24, 1)) is not None:
        hour = of_day % 24
    if hour is None:
        half = _number(values, "h", 12, 1)
        half = _number(values, "K", 11) if half is None else half % 12
        afternoon = "a" in values and values["a"][1].upper() == "PM"
        if half is not None and "a" not in values:
            raise ValueError("the pattern has an hour of half a day, and no AM or PM")
        hour = (half or 0) + 12 * (afternoon and half is not None)
    minute, second = _number(values, "m", 59) or 0, _number(values, "s", 59) or 0
    micros = int((values["S"][1] + "000000")[:6]) if "S" in values else 0
    if "n" in values:
        micros = int(values["n"][1]) // 1000
    return timedelta(hours=hour, minutes=minute, seconds=second, microseconds=micros)


def format_time(milliseconds: int, pattern: str, zone: str) -> str:
    """Formats a time. ValueError for an invalid pattern, and for a zone that does not exist."""
    compiled = _compiled(pattern)
    moment = (_EPOCH + timedelta(milliseconds=milliseconds)).astimezone(zone_of(zone))
    return "".join(
        piece[1:] if piece[0] == '"' else _formatted(piece, moment, zone) for piece in compiled.pieces
    )


def _formatted(letters: str, moment: datetime, zone: str) -> str:
    letter, count = letters[0], len(letters)
    if letter in "VzOXxZ":
        return _formatted_zone(letters, moment, zone)
    if letter in "yu" and count == 2:
        return f"{moment.year % 100:02}"
    if letter in "ML" and count >= 3:
        return _MONTHS[moment.month - 1] if count == 4 else _MONTHS[moment.month - 1][:3]
    if letter == "E":
        return _DAYS[moment.weekday()] if count == 4 else _DAYS[moment.weekday()][:3]
    if letter == "S":
        return f"{moment.microsecond:06}000"[:count]
    if letter == "a":
        return "AM" if moment.hour < 12 else "PM"
    if letter == "G":
        return "AD" if count <= 3 else "Anno Domini"
    number = {
        "y": moment.year,
        "u": moment.year,
        "M": moment.month,
        "L": moment.month,
        "d": moment.day,
        "D": moment.timetuple().tm_yday,
        "H": moment.hour,
        "k": moment.hour or 24,
        "h": moment.hour % 12 or 12,
        "K": moment.hour % 12,
        "m": moment.minute,
        "s": moment.second,
        "n": moment.microsecond * 1000,
    }[letter]
    return f"{number:0{count}}"


def _formatted_zone(letters: str, moment: datetime, zone: str) -> str:
    offset = moment.utcoffset() or timedelta()
    minutes = abs(offset) // timedelta(minutes=1)
    sign, hours, rest = "-" if offset < timedelta() else "+", minutes // 60, minutes % 60
    if letters == "VV":
        return SHORT_ZONES.get(zone, zone)
    if letters[0] == "z":
        return moment.tzname() or zone
    if letters[0] == "O" or letters == "ZZZZ":
        if not minutes:
            return "GMT"
        if letters == "O":
            return f"GMT{sign}{hours}" + (f":{rest:02}" if rest else "")
        return f"GMT{sign}{hours:02}:{rest:02}"
    if not minutes and (letters[0] == "X" or letters == "ZZZZZ"):
        return "Z"
    if letters in ("X", "x"):
        return f"{sign}{hours:02}" + (f"{rest:02}" if rest else "")
    colon = ":" if letters in ("XXX", "xxx", "ZZZZZ") else ""
    return f"{sign}{hours:02}{colon}{rest:02}"
