"""Dates, times of day and timestamps. Everything is in UTC unless a zone is named.

Patterns follow Java's DateTimeFormatter. Spark formats with the letters it has; `python/java_time.py` parses, and
formats with zones.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from odradek.sql.functions.definitions import ScalarDefinition, scalar
from odradek.sql.functions.literals import literal, quoted
from odradek.sql.functions.signatures import Call
from odradek.values.errors import SqlError

_CATEGORY: Final = "DATE / TIME"
_UNITS: Final = {
    "DAY": 86_400_000,
    "HOUR": 3_600_000,
    "MINUTE": 60_000,
    "SECOND": 1_000,
    "MILLISECOND": 1,
    "MICROSECOND": 1 / 1_000,
    "NANOSECOND": 1 / 1_000_000,
}
"""A unit -> milliseconds."""
_DAY_MS: Final = 86_400_000
_QUOTED: Final = re.compile(r"'[^']*'")
_OF_DATE: Final = frozenset("GyuMLdDEQq")
_OF_TIME: Final = frozenset("aHhKkmsSn")
_OF_ZONE: Final = frozenset("VzXxZO")


def _milliseconds(unit: str, count: str, sign: str) -> str:
    """Returns Spark SQL for a duration. `unit`: its name in quotes, such as 'DAYS'."""
    name = (literal(unit) or unit).upper()
    factor = _UNITS.get(name.removesuffix("S"))
    if factor is None:
        raise SqlError(
            f"{name} is no unit of time", hint=f"There are {', '.join(f'{known}S' for known in _UNITS)}"
        )
    if factor < 1:
        return f"{sign}cast({count} as bigint) div {round(1 / factor)}"
    return f"{sign}cast({count} as bigint) * {factor}L"


def _date_plus(sign: str) -> Callable[[Call], str]:
    def text(call: Call) -> str:
        unit, count, date = call.texts
        moment = f"(unix_date({date}) * {_DAY_MS}L {_milliseconds(unit, count, sign)})"
        return f"date_from_unix_date(cast(({moment} - pmod({moment}, {_DAY_MS}L)) div {_DAY_MS}L as int))"

    return text


def _time_plus(sign: str) -> Callable[[Call], str]:
    def text(call: Call) -> str:
        unit, count, time = call.texts
        return f"cast(pmod({time} {_milliseconds(unit, count, sign)}, {_DAY_MS}L) as int)"

    return text


def _timestamp_plus(sign: str) -> Callable[[Call], str]:
    def text(call: Call) -> str:
        unit, count, timestamp = call.texts
        return f"timestamp_millis(unix_millis({timestamp}) {_milliseconds(unit, count, sign)})"

    return text


def _formatted(moment: str, letters: frozenset[str]) -> Callable[[Call], str]:
    """Returns Spark SQL that formats. `moment`: Spark SQL of a timestamp, of the argument {0}."""

    def text(call: Call) -> str:
        value, pattern, *zones = call.texts
        instant = moment.replace("{0}", value)
        written = literal(pattern)
        used = _letters(written) if written is not None else None
        if used is not None and used <= letters and used <= _OF_DATE | _OF_TIME - {"n"} and "u" not in used:
            local = f"from_utc_timestamp({instant}, {_zone(zones[0])})" if zones else instant
            return f"date_format({local}, {quoted(written or '')})"
        if used is not None and not used <= letters:
            return "cast(NULL as string)"
        zone = _zone(zones[0]) if zones else "'UTC'"
        return f"odradek_format_time(unix_millis({instant}), {pattern}, {zone})"

    return text


def _letters(pattern: str) -> frozenset[str]:
    return frozenset(letter for letter in _QUOTED.sub("", pattern) if letter.isalpha())


def _zone(zone: str) -> str:
    """Returns SQL for a zone: null for a constant zone that does not exist. Python looks up the others."""
    return f"odradek_zone({zone})"


def _parsed(kind: str, template: str) -> Callable[[Call], str]:
    """Returns Spark SQL that parses. `template`: Spark SQL of the milliseconds {ms}."""

    def text(call: Call) -> str:
        value, pattern, *zones = call.texts
        zone = zones[0] if zones else "'UTC'"
        return template.replace("{ms}", f"odradek_parse_time({value}, {pattern}, {zone}, '{kind}')")

    return text


_ALL: Final = _OF_DATE | _OF_TIME | _OF_ZONE
_FORMAT_TIMESTAMP: Final = _formatted("{0}", _ALL)
_FORMAT_MILLISECONDS: Final = _formatted("timestamp_millis({0})", _ALL)
_PARSE_TIMESTAMP: Final = _parsed("timestamp", "timestamp_millis({ms})")
_PARSE_MILLISECONDS: Final = _parsed("timestamp", "{ms}")

TIMES: Final[tuple[ScalarDefinition, ...]] = (
    scalar(
        "CONVERT_TZ",
        _CATEGORY,
        "A timestamp of one time zone as one of another.",
        (
            "TIMESTAMP timestamp, STRING from_zone, STRING to_zone -> TIMESTAMP",
            "timestamp_micros(unix_micros({0}) + unix_micros(from_utc_timestamp({0}, odradek_zone({2}))) "
            "- unix_micros(from_utc_timestamp({0}, odradek_zone({1}))))",
        ),
    ),
    scalar(
        "DATEADD",
        _CATEGORY,
        "A date and a duration, such as DATEADD(DAYS, 7, date).",
        ("UNIT unit, INT count, DATE date -> DATE", _date_plus("+ ")),
    ),
    scalar(
        "DATESUB",
        _CATEGORY,
        "A date without a duration.",
        ("UNIT unit, INT count, DATE date -> DATE", _date_plus("- ")),
    ),
    scalar(
        "DATETOSTRING",
        _CATEGORY,
        "Days since 1970-01-01 as text.",
        (
            "INT days, STRING pattern -> STRING",
            _formatted("cast(date_from_unix_date({0}) as timestamp)", _OF_DATE),
        ),
        instead="FORMAT_DATE",
    ),
    scalar(
        "FORMAT_DATE",
        _CATEGORY,
        "A date as text. Null when the pattern asks for a time.",
        (
            "DATE date, STRING pattern -> STRING",
            _formatted("cast({0} as timestamp)", _OF_DATE),
        ),
    ),
    scalar(
        "FORMAT_TIME",
        _CATEGORY,
        "A time of day as text. Null when the pattern asks for a date.",
        (
            "TIME time, STRING pattern -> STRING",
            _formatted("timestamp_millis({0})", _OF_TIME),
        ),
    ),
    scalar(
        "FORMAT_TIMESTAMP",
        _CATEGORY,
        "A timestamp as text, in UTC or in a time zone.",
        ("TIMESTAMP timestamp, STRING pattern -> STRING", _FORMAT_TIMESTAMP),
        (
            "TIMESTAMP timestamp, STRING pattern, STRING zone -> STRING",
            _FORMAT_TIMESTAMP,
        ),
    ),
    scalar(
        "FROM_DAYS",
        _CATEGORY,
        "Days since 1970-01-01 as a date.",
        ("INT days -> DATE", "date_from_unix_date({0})"),
    ),
    scalar(
        "FROM_UNIXTIME",
        _CATEGORY,
        "Milliseconds since 1970-01-01 UTC as a timestamp.",
        ("BIGINT milliseconds -> TIMESTAMP", "timestamp_millis({0})"),
    ),
    scalar(
        "PARSE_DATE",
        _CATEGORY,
        "Text as a date.",
        (
            "STRING text, STRING pattern -> DATE",
            _parsed("date", f"date_from_unix_date(cast({{ms}} div {_DAY_MS}L as int))"),
        ),
    ),
    scalar(
        "PARSE_TIME",
        _CATEGORY,
        "Text as a time of day.",
        ("STRING text, STRING pattern -> TIME", _parsed("time", "cast({ms} as int)")),
    ),
    scalar(
        "PARSE_TIMESTAMP",
        _CATEGORY,
        "Text as a timestamp. Where text and pattern name no zone, UTC, or the zone that is given.",
        ("STRING text, STRING pattern -> TIMESTAMP", _PARSE_TIMESTAMP),
        ("STRING text, STRING pattern, STRING zone -> TIMESTAMP", _PARSE_TIMESTAMP),
    ),
    scalar(
        "STRINGTODATE",
        _CATEGORY,
        "Text as days since 1970-01-01.",
        (
            "STRING text, STRING pattern -> INT",
            _parsed("date", f"cast({{ms}} div {_DAY_MS}L as int)"),
        ),
        instead="PARSE_DATE",
    ),
    scalar(
        "STRINGTOTIMESTAMP",
        _CATEGORY,
        "Text as milliseconds since 1970-01-01 UTC.",
        ("STRING text, STRING pattern -> BIGINT", _PARSE_MILLISECONDS),
        ("STRING text, STRING pattern, STRING zone -> BIGINT", _PARSE_MILLISECONDS),
        instead="PARSE_TIMESTAMP",
    ),
    scalar(
        "TIMEADD",
        _CATEGORY,
        "A time of day and a duration; it continues after midnight.",
        ("UNIT unit, INT count, TIME time -> TIME", _time_plus("+ ")),
    ),
    scalar(
        "TIMESTAMPADD",
        _CATEGORY,
        "A timestamp and a duration.",
        ("UNIT unit, INT count, TIMESTAMP timestamp -> TIMESTAMP", _timestamp_plus("+ ")),
    ),
    scalar(
        "TIMESTAMPSUB",
        _CATEGORY,
        "A timestamp without a duration.",
        ("UNIT unit, INT count, TIMESTAMP timestamp -> TIMESTAMP", _timestamp_plus("- ")),
    ),
    scalar(
        "TIMESTAMPTOSTRING",
        _CATEGORY,
        "Milliseconds since 1970-01-01 UTC as text, in UTC or in a time zone.",
        ("BIGINT milliseconds, STRING pattern -> STRING", _FORMAT_MILLISECONDS),
        ("BIGINT milliseconds, STRING pattern, STRING zone -> STRING", _FORMAT_MILLISECONDS),
        note="Without a zone ksqlDB takes its machine's; here it is UTC.",
        instead="FORMAT_TIMESTAMP",
    ),
    scalar(
        "TIMESUB",
        _CATEGORY,
        "A time of day without a duration.",
        ("UNIT unit, INT count, TIME time -> TIME", _time_plus("- ")),
    ),
    scalar(
        "UNIX_DATE",
        _CATEGORY,
        "Days since 1970-01-01, of a date or of today.",
        ("-> INT", "unix_date(current_date())"),
        ("DATE date -> INT", "unix_date({0})"),
    ),
    scalar(
        "UNIX_TIMESTAMP",
        _CATEGORY,
        "Milliseconds since 1970-01-01 UTC, of a timestamp or of now.",
        ("-> BIGINT", "unix_millis(current_timestamp())"),
        ("TIMESTAMP timestamp -> BIGINT", "unix_millis({0})"),
    ),
)
