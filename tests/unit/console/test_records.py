"""What a search for records means, and how bytes of strangers are shown."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest

from odradek.console.pages.record_forms import cursor_text, parse_cursor, time_text
from odradek.console.records.filtering import RecordFilter, parse_condition
from odradek.console.records.view import VIEW_BYTES_MAX, content_view, frequent_keys, short_text
from odradek.model.errors import ConfigError


class Letter(NamedTuple):
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


ORDER = {
    "id": 17,
    "customer": {"name": "Ann", "tags": ["a", "b"]},
    "items": [{"price": 5}, {"price": 9.5}],
    "x": None,
}
VALUE = json.dumps(ORDER).encode()
HOLDS = (
    "$.id = 17",
    "id == 17",
    "id != 18",
    "$.id > 16.5",
    "id <= 17",
    "customer.name = Ann",
    'customer.name = "Ann"',
    "customer.name = 'Ann'",
    "customer.name ~ an",
    "customer.tags ~ b",
    "customer['name'] < B",
    "items[0].price = 5",
    "$.items[*].price > 9",
    "customer[*] = Ann",
    "x = null",
    "x",
    "$.items[1]",
)
FAILS = (
    "id = 18",
    'id = "17"',
    "id > 17",
    "id = true",
    "none",
    "none = null",
    "items[2]",
    "items[*].price > 10",
    "customer.name > 5",
    "id.deeper",
    "customer.tags ~ c",
)


@pytest.mark.parametrize("text", HOLDS)
def test_a_condition_holds(text: str) -> None:
    assert parse_condition(text).test()(ORDER)


@pytest.mark.parametrize("text", FAILS)
def test_a_condition_fails(text: str) -> None:
    assert not parse_condition(text).test()(ORDER)


@pytest.mark.parametrize("text", ["$", "", "a =", "a b", "a[", "a[-1]", "$.a ? 5", "a[1"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no condition on JSON"):
        parse_condition(text)


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (RecordFilter(), True),
        (RecordFilter(text="ANN"), True),
        (RecordFilter(text="привет"), False),
        (RecordFilter(text="k-1"), True),
        (RecordFilter(key="k-1"), True),
        (RecordFilter(key="k"), False),
        (RecordFilter(header="trace"), True),
        (RecordFilter(header="trace=BC"), True),
        (RecordFilter(header="trace=x"), False),
        (RecordFilter(header="none"), False),
        (RecordFilter(condition=parse_condition("id = 17")), True),
        (RecordFilter(text="ann", condition=parse_condition("id = 18")), False),
    ],
)
def test_all_of_a_filter_must_hold(wanted: RecordFilter, matches: bool) -> None:
    assert wanted.test()(Letter(b"k-1", VALUE, (("trace", b"abc"), ("none-here", None)))) is matches


def test_text_beyond_ascii_is_found_without_regard_to_case() -> None:
    assert RecordFilter(text="ПРИВЕТ").test()(Letter(value="…Привет".encode()))


@pytest.mark.parametrize("value", [None, b"", b"\xff\xfe", b"{", b"[" * 100_000, b"1" * 10_000, b"NaN"])
def test_hostile_values_match_no_condition_and_are_shown(value: bytes | None) -> None:
    assert not RecordFilter(condition=parse_condition("a = 1")).test()(Letter(value=value))
    view = content_view(value)
    assert sum(map(len, view.lines)) <= 2 * VIEW_BYTES_MAX
    short_text(value)


def test_json_is_indented_up_to_a_limit() -> None:
    view = content_view(b'{"a":[1,"\xd0\xb6"]}')
    assert (view.kind, view.lines) == ("json", ("{", '  "a": [', "    1,", '    "ж"', "  ]", "}"))
    bomb = b"[" * 400 + b"1" + b",1" * 50_000 + b"]" * 400
    shown = content_view(bomb)
    assert shown.is_cut
    assert sum(map(len, shown.lines)) <= VIEW_BYTES_MAX


def test_large_and_binary_values_are_cut() -> None:
    text = content_view("ж".encode() * VIEW_BYTES_MAX)
    assert (text.kind, text.is_cut, text.size_bytes) == ("text", True, 2 * VIEW_BYTES_MAX)
    odd = content_view(b"x" + "ж".encode() * VIEW_BYTES_MAX)  # the limit is in the middle of a character
    assert odd.kind == "text"
    binary = content_view(b"\x00\xff" * (5 << 20))
    assert (binary.kind, binary.is_cut) == ("hex", True)
    assert binary.lines[0].startswith("000000  00 ff 00 ff")
    assert content_view(b"a\x1b[31m").kind == "hex"


def test_a_short_text_is_one_line() -> None:
    assert short_text(None) is None
    assert short_text(b"a\n  b") == "a b"
    assert short_text(b"\xff\x00") == "ff 00"
    assert len(short_text(b"x" * 10_000) or "") < 300


def test_a_cursor_is_read_as_it_was_written() -> None:
    positions = {0: 5, 11: 0}
    assert parse_cursor(cursor_text(positions)) == positions
    for text in ("", "0", "0:x", "0:1,", "-1:2", "0:" + "9" * 30):
        with pytest.raises(ConfigError, match="begin it again"):
            parse_cursor(text)


def test_times_of_records_are_utc_and_hostile_ones_are_numbers() -> None:
    assert time_text(0) == "1970-01-01 00:00:00.000"
    assert time_text(-1) == "–"
    assert time_text(2**63 - 1) == f"@{2**63 - 1}"


def test_frequent_keys_are_those_of_many_records() -> None:
    keys = [b"hot"] * 60 + [b"warm"] * 25 + [b"%d" % number for number in range(10)] + [None] * 5
    assert frequent_keys(keys) == [(b"hot", 0.6), (b"warm", 0.25)]
    assert frequent_keys([b"%d" % number for number in range(100)]) == []
    assert frequent_keys([b"few"] * 19) == []
    assert frequent_keys([None] * 100) == []
