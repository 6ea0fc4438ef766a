from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.moments import (
    AtOffset,
    Beginning,
    End,
    FromTimestamp,
    LastRecords,
    Start,
    parse_start,
    parse_timestamp,
    time_text,
)
from odradek.model.errors import ConfigError

NOW_MS = 1_373_000_000_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Beginning()),
        ("earliest", Beginning()),
        ("end", End()),
        (" latest ", End()),
        ("0", AtOffset(0)),
        ("1500", AtOffset(1500)),
        ("-10", LastRecords(10)),
        ("15m", FromTimestamp(NOW_MS - 900_000)),
        ("2h ago", FromTimestamp(NOW_MS - 7_200_000)),
        ("250ms", FromTimestamp(NOW_MS - 250)),
        ("1w", FromTimestamp(NOW_MS - 604_800_000)),
        ("@1700000000000", FromTimestamp(1_700_000_000_000)),
        ("2013-07-04T12:00:00Z", FromTimestamp(1_372_939_200_000)),
        ("2013-07-04T12:00:00.250+02:00", FromTimestamp(1_372_932_000_250)),
    ],
)
def test_a_place_to_start_is_written_as_people_write_it(text: str, start: Start) -> None:
    assert parse_start(text, now_ms=NOW_MS) == start


def test_a_time_without_a_zone_is_local() -> None:
    local = round(datetime(2013, 7, 4, 12).timestamp() * 1000)
    assert parse_start("2013-07-04T12:00", now_ms=NOW_MS) == FromTimestamp(local)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "15x", "1.5h", "0001-01-01T00:00:00+99:00", "9" * 30, "@", "--5"]
)
def test_anything_else_is_refused_with_the_forms_that_are_understood(text: str) -> None:
    with pytest.raises(ConfigError, match="expected beginning, end, an offset"):
        parse_start(text, now_ms=NOW_MS)


def test_a_bare_number_is_a_timestamp_where_a_timestamp_is_asked_for() -> None:
    assert parse_timestamp("12345", now_ms=NOW_MS) == 12345
    assert parse_timestamp("1m", now_ms=NOW_MS) == NOW_MS - 60_000
    with pytest.raises(ConfigError, match="is no time"):
        parse_timestamp("soon", now_ms=NOW_MS)


@given(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)))
def test_a_timestamp_survives_being_written_and_read(moment: datetime) -> None:
    timestamp_ms = int(moment.timestamp()) * 1000 + moment.microsecond // 1000
    assert parse_start(time_text(timestamp_ms), now_ms=NOW_MS) == FromTimestamp(timestamp_ms)


def test_what_no_calendar_holds_is_still_printed_and_understood() -> None:
    assert time_text(-1) == ""
    assert parse_start(time_text(2**62 // 10), now_ms=NOW_MS) == FromTimestamp(2**62 // 10)


@given(st.text())
def test_no_text_does_more_than_raise_a_config_error(text: str) -> None:
    try:
        parse_start(text, now_ms=NOW_MS)
    except ConfigError:
        pass
