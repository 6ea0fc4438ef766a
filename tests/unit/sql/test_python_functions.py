"""The functions of SQL that are Python: patterns of times, JSON, text and bytes; without Spark."""

from __future__ import annotations

import pytest

from odradek.sql.functions.python import java_time, json_values, text_and_bytes
from odradek.sql.functions.registering import BUILT_IN

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "pattern", "zone", "milliseconds"),
    [
        ("1970-01-01", "yyyy-MM-dd", "UTC", 0),
        ("1970-01-01", "yyyy-MM-dd", "+02:00", -2 * HOUR_MS),
        ("1970-01-01 02", "uuuu-MM-dd HH", "UTC", 2 * HOUR_MS),
        ("19700102", "yyyyMMdd", "UTC", 24 * HOUR_MS),
        ("1970-01-01T00:00:00.123456", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS", "UTC", 123),
        ("Thu, 01 Jan 1970 GMT", "EEE, dd MMM yyyy z", "UTC", 0),
        ("1 january 1970 PST", "d MMMM yyyy z", "UTC", 8 * HOUR_MS),
        ("12 AM", "hh a", "UTC", 0),
        ("24", "kk", "UTC", 0),
        ("11 PM", "KK a", "UTC", 23 * HOUR_MS),
        ("00:00 GMT+2", "HH:mm O", "UTC", -2 * HOUR_MS),
        ("1969-02-31", "yyyy-MM-dd", "UTC", -307 * 24 * HOUR_MS),
    ],
)
def test_text_is_read_by_its_pattern(text: str, pattern: str, zone: str, milliseconds: int) -> None:
    assert java_time.parse(text, pattern, zone, "timestamp") == milliseconds


@pytest.mark.parametrize(
    ("text", "pattern", "kind"),
    [
        ("1970-01-01 ", "yyyy-MM-dd", "timestamp"),
        ("1970-00-01", "yyyy-MM-dd", "timestamp"),
        ("1971-366", "yyyy-DDD", "date"),
        ("60", "mm", "time"),
        ("01", "hh", "time"),
        ("1970", "yyyy", "date"),
        ("1", "j", "timestamp"),
        ("1", "yyyy}", "timestamp"),
        ("0000-01-01", "yyyy-MM-dd", "date"),
    ],
)
def test_text_that_does_not_fit_is_an_error(text: str, pattern: str, kind: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        java_time.parse(text, pattern, "UTC", kind)


@pytest.mark.parametrize(
    "pattern",
    [
        "yyyy-MM-dd HH:mm:ss.SSS",
        "dd.MM.uuuu kk:mm:ss.SSS XXX",
        "d MMM yyyy hh:mm:ss.SSS a Z",
        "yyyy DDD HH:mm:ss.SSS",
    ],
)
@pytest.mark.parametrize("milliseconds", [0, -1, 1_709_213_110_123, 951_782_400_000])
def test_what_is_written_is_read_again(pattern: str, milliseconds: int) -> None:
    text = java_time.format_time(milliseconds, pattern, "UTC")
    assert java_time.parse(text, pattern, "UTC", "timestamp") == milliseconds


@pytest.mark.parametrize(
    ("name", "exists"), [("UTC", True), ("PST", True), ("+05:30", True), ("Mars/Base", False)]
)
def test_a_zone_exists_or_not(name: str, exists: bool) -> None:
    if exists:
        assert text_and_bytes.existing_zone(name) == name
    else:
        with pytest.raises(ValueError, match="is no time zone"):
            text_and_bytes.existing_zone(name)


@pytest.mark.parametrize(
    ("number", "scale", "way", "rounded"),
    [
        ("1.005", 2, "up", "1.01"),
        ("-1.005", 2, "up", "-1.00"),
        ("1250", -2, "up", "1300"),
        ("-1250", -2, "up", "-1200"),
        ("-1.99", 1, "down", "-1.9"),
        ("NaN", 1, "up", "NaN"),
        ("Infinity", 1, "down", "Infinity"),
    ],
)
def test_numbers_are_rounded_to_the_positive_side(number: str, scale: int, way: str, rounded: str) -> None:
    assert text_and_bytes.rounded(number, scale, way) == rounded


@pytest.mark.parametrize(
    "text", ['{"b": 1.50, "a": [1e5, null, true, "ü\\n"]}', "[]", "12345678901234567890.5", '"x"']
)
def test_json_keeps_order_and_numbers(text: str) -> None:
    written = json_values.written(json_values.read(text))
    assert written == json_values.written(json_values.read(written))
    assert ("1.50" in written) == ("1.50" in text)


def test_a_function_that_fails_gives_null() -> None:
    functions = {function.name: function for function in BUILT_IN}
    assert functions["odradek_parse_time"]("x", "yyyy", "UTC", "date") is None
    assert functions["odradek_json_keys"]("no json") is None
    assert functions["odradek_json_keys"](None) is None
    assert functions["odradek_double_from_bytes"](b"\0" * 8) == 0.0
