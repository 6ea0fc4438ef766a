from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.records.input import (
    FORMATS,
    InputError,
    InputFormat,
    InputRecord,
    parse_headers,
    read_records,
)

NOW_MS = 1_373_000_000_000


def read(data: bytes, shape: InputFormat) -> list[InputRecord]:
    return [record for _, record in read_records(io.BytesIO(data), shape, now_ms=NOW_MS)]


def values(data: bytes, shape: InputFormat) -> list[bytes | None]:
    return [record.value for record in read(data, shape)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"\n\n", [b"", b""]),
        (b"a\rb\n", [b"a\rb"]),
        (b"\xff\x00\xfe\n", [b"\xff\x00\xfe"]),
    ],
)
def test_each_line_is_a_value_whatever_ends_it(data: bytes, expected: list[bytes]) -> None:
    assert values(data, InputFormat()) == expected


def test_a_key_stands_before_the_first_separator() -> None:
    [record] = read(b"k:v:w\n", InputFormat(key_separator=b":"))
    assert (record.key, record.value) == (b"k", b"v:w")
    with pytest.raises(InputError, match="line 2 holds no key: ':' is not in it"):
        read(b"k:v\nv\n", InputFormat(key_separator=b":"))


def test_a_chosen_word_stands_for_null() -> None:
    [record] = read(b"NULL=NULL\n", InputFormat(key_separator=b"=", null=b"NULL"))
    assert (record.key, record.value) == (None, None)


def test_raw_input_is_one_value() -> None:
    assert values(b"a\r\nb\n\x00", InputFormat(format="raw")) == [b"a\r\nb\n\x00"]


def test_hex_and_base64_carry_any_bytes() -> None:
    [record] = read(b"00ff:0d0a\r\n", InputFormat(format="hex", key_separator=b":"))
    assert (record.key, record.value) == (b"\x00\xff", b"\r\n")
    assert values(b"AP8=\n", InputFormat(format="base64")) == [b"\x00\xff"]


@pytest.mark.parametrize(
    ("format_", "line", "words"),
    [
        ("hex", b"0g", "line 1 is not hex"),
        ("base64", b"A", "line 1 is not base64"),
        ("json", b"{", "line 1 is not JSON"),
        ("json", b"[" * 100_000, "line 1 is not JSON"),
        ("json", b"[1]", "is not a JSON object"),
        ("json", b'{"value_base64": "*"}', "line 1: "),
        ("json", b'{"value_base64": 3}', "value_base64 is not a string"),
        ("json", b'{"partition": -1}', "partition -1 is not a number from 0"),
        ("json", b'{"partition": true}', "partition True is not a number from 0"),
        ("json", b'{"timestamp": "soon"}', "is no time"),
        ("json", b'{"timestamp": 1.5}', "timestamp 1.5 is neither a number nor a time"),
        ("json", b'{"timestamp": 9223372036854775808}', "9223372036854775808 does not fit into 64 bits"),
        ("json", b'{"headers": 3}', "headers is neither an object nor a list"),
        ("json", b'{"headers": [{"value": "x"}]}', "has no name"),
        ("json", b'{"value": "\\ud800"}', "line 1: "),
    ],
)
def test_a_line_that_is_not_what_its_format_says_is_named(format_: str, line: bytes, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(line, InputFormat(format=format_))
    assert words in str(caught.value)


def test_a_json_object_is_a_record() -> None:
    line = {
        "key": "k",
        "value": {"temp": 21.5, "city": "Zürich"},
        "headers": {"a": "1", "b": None},
        "partition": 3,
        "timestamp": "2013-07-04T12:00:00Z",
        "offset": 99,
    }
    [record] = read(json.dumps(line).encode() + b"\n\n", InputFormat(format="json"))
    assert record == InputRecord(
        key=b"k",
        value='{"temp":21.5,"city":"Zürich"}'.encode(),
        headers=(("a", b"1"), ("b", None)),
        partition=3,
        timestamp_ms=1_372_939_200_000,
    )


def test_json_null_is_null_and_a_missing_value_too() -> None:
    assert values(b'{"value": null}\n{}\n{"value": ""}\n', InputFormat(format="json")) == [None, None, b""]


def test_headers_may_repeat_a_name() -> None:
    line = b'{"headers": [{"name": "a", "value": "1"}, {"name": "a", "value_base64": "/w=="}]}'
    [record] = read(line, InputFormat(format="json"))
    assert record.headers == (("a", b"1"), ("a", b"\xff"))
    assert parse_headers(["a=1", "a=", "b"]) == (("a", b"1"), ("a", b""), ("b", None))
    with pytest.raises(InputError, match="expected NAME=VALUE"):
        parse_headers(["=1"])


def test_what_the_command_line_says_applies_to_every_record() -> None:
    fixed = InputRecord(key=b"K", headers=(("h", b"1"),), partition=2, timestamp_ms=5)
    [plain] = read(b"v\n", InputFormat(defaults=fixed))
    assert plain == InputRecord(key=b"K", value=b"v", headers=(("h", b"1"),), partition=2, timestamp_ms=5)
    [keyed] = read(b"k:v\n", InputFormat(key_separator=b":", defaults=fixed))
    assert keyed.key == b"k"
    [from_json] = read(
        b'{"key": null, "partition": 7, "timestamp": 9}', InputFormat(format="json", defaults=fixed)
    )
    assert (from_json.key, from_json.partition, from_json.timestamp_ms) == (None, 2, 5)


@given(st.sampled_from(FORMATS), st.binary(max_size=200), st.booleans())
def test_no_input_does_more_than_raise_an_input_error(format_: str, data: bytes, keyed: bool) -> None:
    try:
        read(data, InputFormat(format=format_, key_separator=b":" if keyed else None))
    except InputError:
        pass
