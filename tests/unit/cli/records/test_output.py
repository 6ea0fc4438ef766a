from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.records.input import InputFormat, InputRecord, read_records
from odradek.cli.records.output import Layout, formatter
from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.model.errors import ConfigError
from odradek.records import TimestampType

CONTENT = st.none() | st.binary(max_size=40)


def record(
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: tuple[tuple[str, bytes | None], ...] = (),
    timestamp_ms: int = 1_372_939_200_250,
) -> ConsumerRecord:
    return ConsumerRecord("orders", 3, 42, timestamp_ms, TimestampType.CREATE_TIME, key, value, headers, -1)


def shown(layout: Layout, of: ConsumerRecord | None = None) -> bytes:
    return formatter(layout)(of or record())


def test_a_line_is_the_value_unless_more_is_asked_for() -> None:
    assert shown(Layout()) == b"v\n"
    full = Layout(
        with_key=True, with_headers=True, with_timestamp=True, with_partition=True, separator=b"|", null=b"~"
    )
    assert shown(full, record(key=None, headers=(("a", b"1"), ("b", None)))) == (
        b"2013-07-04T12:00:00.250Z|3:42|a=1,b=~|~|v\n"
    )


def test_values_are_printed_byte_for_byte() -> None:
    assert shown(Layout(), record(value=b"\xff\r\n\x00")) == b"\xff\r\n\x00\n"
    assert shown(Layout(format="raw"), record(value=b"\xff\r\n\x00")) == b"\xff\r\n\x00"


def test_hex_and_base64_encode_keys_and_values() -> None:
    assert shown(Layout(format="hex", with_key=True), record(key=b"\x01", value=b"\xff")) == b"01\tff\n"
    assert shown(Layout(format="base64"), record(value=b"\x00\xff")) == b"AP8=\n"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{key}={value}\\n", b"k=v\n"),
        (
            "{topic}/{partition}@{offset} {timestamp} {time}",
            b"orders/3@42 1372939200250 2013-07-04T12:00:00.250Z",
        ),
        ("{key_bytes}\\t{value_bytes}\\0\\x7f\\\\", b"1\t1\0\x7f\\"),
        ("{{{value}}}", b"{v}"),
        ("\\{value\\}", b"{value}"),
        ("ü", "ü".encode()),
        ("", b""),
    ],
)
def test_a_template_says_exactly_what_is_printed(template: str, text: bytes) -> None:
    assert shown(Layout(template=template)) == text


def test_a_template_shows_what_stands_for_null() -> None:
    null = record(key=None, value=None)
    assert shown(Layout(template="{key}:{value}:{value_bytes}", null=b"-"), null) == b"-:-:-1"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{colour}", "{colour} is no field: expected one of topic"),
        ("{}", "{} is no field"),
        ("\\q", "is no escape"),
    ],
)
def test_a_template_with_a_mistake_is_refused(template: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        formatter(Layout(template=template))
    assert words in str(caught.value)


@given(st.text())
def test_no_template_does_more_than_raise_a_config_error(template: str) -> None:
    try:
        shown(Layout(template=template))
    except ConfigError:
        pass


@given(
    key=CONTENT,
    value=CONTENT,
    headers=st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), CONTENT), max_size=3),
    timestamp_ms=st.integers(0, 2**50),
)
def test_json_is_read_back_as_the_same_record(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp_ms: int
) -> None:
    line = shown(Layout(format="json"), record(key, value, tuple(headers), timestamp_ms))
    [(_, read)] = read_records(io.BytesIO(line), InputFormat(format="json"), now_ms=0)
    assert read == InputRecord(
        key=key, value=value, headers=tuple(headers), partition=3, timestamp_ms=timestamp_ms
    )
