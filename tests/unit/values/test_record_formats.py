"""Records in ksqlDB's formats: the bytes that are written, and what is read."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from odradek.values.errors import SqlError
from odradek.values.formats import RecordFormat, record_format
from odradek.values.formats.format_info import FormatInfo, WindowInfo
from odradek.values.java_text import double_text
from odradek.values.schema_registry import SchemaRegistryError
from odradek.values.types import parse_type


def made(name: str, kind: str, *, is_key: bool = False, **info: Any) -> RecordFormat:
    """A format of one column A, or of the fields of a STRUCT."""
    parsed = parse_type(kind)
    fields = parsed.fields or (("A", parsed),)
    return record_format(
        FormatInfo(name=name, **info), [(field, field, part) for field, part in fields], is_key=is_key
    )


JSON_VALUES = [
    ("INT", 5, b"5"),
    ("BIGINT", -7, b"-7"),
    ("DOUBLE", 1.0, b"1.0"),
    ("DOUBLE", 1e10, b"1.0E10"),
    ("DOUBLE", 1e-5, b"1.0E-5"),
    ("DOUBLE", 0.001, b"0.001"),
    ("DOUBLE", 1234567.5, b"1234567.5"),
    ("DOUBLE", 12345678.0, b"1.2345678E7"),
    ("BOOLEAN", True, b"true"),
    ("STRING", 'a"b\\', b'"a\\"b\\\\"'),
    ("STRING", "é", '"é"'.encode()),
    ("DECIMAL(5, 2)", Decimal("3.10"), b"3.10"),
    ("BYTES", b"abc", b'"YWJj"'),
    ("DATE", date(1970, 1, 11), b"10"),
    ("TIME", 1000, b"1000"),
    ("TIMESTAMP", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), b"1000"),
    ("ARRAY<INT>", [1, None], b"[1,null]"),
    ("MAP<STRING, INT>", {"x": 1}, b'{"x":1}'),
    ("STRUCT<X INT>", None, b"null"),
    ("ARRAY<STRUCT<X INT, Y STRING>>", [{"X": 1, "Y": None}], b'[{"X":1,"Y":null}]'),
]


@pytest.mark.parametrize(("kind", "value", "data"), JSON_VALUES)
def test_json_is_written_as_java_writes_it_and_read(kind: str, value: Any, data: bytes) -> None:
    form = record_format(FormatInfo(name="JSON"), [("A", "A", parse_type(kind))], is_key=False)
    assert form.encode({"A": value}) == b'{"A":' + data + b"}"
    assert form.decode(b'{"A":' + data + b"}") == {"A": value}


LENIENT = [
    ("INT", b'{"a":"12"}', 12),
    ("BIGINT", b'{"A":12.0}', 12),
    ("STRING", b'{"A":12}', "12"),
    ("STRING", b'{"A":true}', "true"),
    ("STRING", b'{"A":{"x":[1]}}', '{"x":[1]}'),
    ("DOUBLE", b'{"A":"1.5"}', 1.5),
    ("DOUBLE", b'{"A":3}', 3.0),
    ("DECIMAL(4, 2)", b'{"A":"1.5"}', Decimal("1.50")),
    ("INT", b"{}", None),
]


@pytest.mark.parametrize(("kind", "data", "value"), LENIENT)
def test_json_is_read_leniently(kind: str, data: bytes, value: Any) -> None:
    assert made("JSON", kind).decode(data) == {"A": value}


@pytest.mark.parametrize(
    ("name", "kind", "data"),
    [
        ("JSON", "INT", b"{"),
        ("JSON", "INT", b"[]"),
        ("JSON", "BOOLEAN", b'{"A":"true"}'),
        ("JSON", "INT", b'{"A":"x"}'),
        ("JSON", "INT", b'{"A":9999999999}'),
        ("JSON", "DECIMAL(3, 2)", b'{"A":1.234}'),
        ("JSON", "ARRAY<INT>", b'{"A":1}'),
        ("DELIMITED", "INT", b"1,2"),
        ("DELIMITED", "INT", b""),
        ("DELIMITED", "INT", b"x"),
        ("KAFKA", "INT", b"abc"),
        ("AVRO", "INT", b"no head"),
    ],
)
def test_other_bytes_are_refused(name: str, kind: str, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        made(name, kind).decode(data)


ROW = "STRUCT<A STRING, B INT, C DOUBLE>"
DELIMITED = [
    ({"A": "x", "B": 1, "C": 2.0}, b"x,1,2.0"),
    ({"A": None, "B": None, "C": None}, b",,"),
    ({"A": "a,b", "B": 1, "C": 2.5}, b'"a,b",1,2.5'),
    ({"A": 'a"b', "B": 1, "C": 2.5}, b'"a""b",1,2.5'),
    ({"A": " x", "B": 1, "C": 2.5}, b'" x",1,2.5'),
    ({"A": "x ", "B": 1, "C": 2.5}, b'"x ",1,2.5'),
    ({"A": "a b", "B": 1, "C": 2.5}, b"a b,1,2.5"),
]


@pytest.mark.parametrize(("values", "data"), DELIMITED)
def test_delimited_is_quoted_where_it_has_to_be(values: dict[str, Any], data: bytes) -> None:
    form = made("DELIMITED", ROW)
    assert form.encode(values) == data
    assert form.decode(data) == values


def test_delimited_takes_another_sign() -> None:
    assert made("DELIMITED", ROW, delimiter="TAB").encode({"A": "x,y", "B": 1, "C": 2.0}) == b"x,y\t1\t2.0"


KAFKA = [
    ("STRING", "é", "é".encode()),
    ("INT", -2, b"\xff\xff\xff\xfe"),
    ("BIGINT", 1, b"\0\0\0\0\0\0\0\1"),
    ("DOUBLE", 1.0, b"\x3f\xf0\0\0\0\0\0\0"),
    ("BYTES", b"\0\1", b"\0\1"),
]


@pytest.mark.parametrize(("kind", "value", "data"), KAFKA)
def test_kafka_is_what_its_serializers_write(kind: str, value: Any, data: bytes) -> None:
    form = made("KAFKA", kind, is_key=True)
    assert form.encode({"A": value}) == data
    assert form.decode(data) == {"A": value}


def test_a_key_of_one_column_is_bare_in_json_and_several_are_an_object() -> None:
    assert made("JSON", "STRING", is_key=True).encode({"A": "x"}) == b'"x"'
    assert (
        made("JSON", "STRUCT<A INT, B STRING>", is_key=True).encode({"A": 1, "B": "x"}) == b'{"A":1,"B":"x"}'
    )


def test_a_value_that_is_not_wrapped_is_bare() -> None:
    assert made("JSON", "INT", wrapped=False).encode({"A": 5}) == b"5"
    assert made("JSON", "INT", wrapped=False).decode(b"5") == {"A": 5}


def test_none_writes_nothing() -> None:
    form = record_format(FormatInfo(name="NONE"), (), is_key=True)
    assert form.encode({}) is None


def test_none_holds_no_columns() -> None:
    with pytest.raises(
        SqlError, match=r"'NONE' format can only be used when no columns are defined. Got: \[`A` INTEGER\]"
    ):
        made("NONE", "INT", is_key=True)


@pytest.mark.parametrize(
    ("window", "data", "bounds"),
    [
        (WindowInfo(kind="tumbling", size_ms=10), b"k" + bytes(7) + b"\x05", (5, 15)),
        (WindowInfo(kind="session", size_ms=None), b"k" + bytes(7) + b"\x0f" + bytes(7) + b"\x05", (5, 15)),
    ],
)
def test_bounds_of_windows_follow_the_key(window: WindowInfo, data: bytes, bounds: tuple[int, int]) -> None:
    form = record_format(
        FormatInfo(name="KAFKA"), [("A", "A", parse_type("STRING"))], is_key=True, window=window
    )
    values = {"A": "k", "window_start": bounds[0], "window_end": bounds[1]}
    assert form.encode(values) == data
    assert form.decode(data) == values


AVRO_ROW = "STRUCT<A INT, B ARRAY<STRING>, C MAP<STRING, DOUBLE>, D STRUCT<X DECIMAL(4, 2)>, E TIMESTAMP>"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("INT", b"1e999999999"),
        ("BIGINT", b"1e99999999999999"),
        ("BIGINT", b"-1e20"),
        ("BIGINT", b"9223372036854775808"),
        ("TIMESTAMP", b"1e999999999"),
        ("INT", b"Infinity"),
        ("DECIMAL(10, 2)", b"1e999999999"),
        ("DECIMAL(10, 2)", b"123456789.00"),
        ("DECIMAL(2, 2)", b"1.25"),
        ("DECIMAL(10, 2)", b'"NaN"'),
        ("STRING", rb'"\ud800"'),
        ("STRING", rb'{"x":"\ud800"}'),
        ("MAP<STRING, INT>", rb'{"\ud800":1}'),
        ("STRING", b"[" * 100_000),
    ],
)
def test_what_no_column_of_the_type_can_have_is_refused_before_it_is_computed(kind: str, text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        made("JSON", kind).decode(b'{"A":' + text + b"}")


def test_a_number_that_is_too_large_for_a_double_is_infinity() -> None:
    assert made("JSON", "DOUBLE").decode(b'{"A":1' + b"0" * 400 + b"}") == {"A": math.inf}
    assert made("JSON", "DOUBLE").decode(b'{"A":-1e999999999}') == {"A": -math.inf}


@pytest.mark.parametrize("name", ["JSON", "DELIMITED", "AVRO", "PROTOBUF_NOSR"])
def test_a_decimal_keeps_38_digits(name: str) -> None:
    form = made(name, "DECIMAL(38, 2)", schema_id=1)
    value = {"A": Decimal("-123456789012345678901234567890123456.25")}
    data = form.encode(value)
    assert data is not None
    assert form.decode(data) == value


def test_json_in_a_text_keeps_its_digits() -> None:
    data = b'{"A":[12345678901234567.89,1e999999999,{"x":true}]}'
    assert made("JSON", "STRING").decode(data) == {"A": '[12345678901234567.89,1E+999999999,{"x":true}]'}


@pytest.mark.parametrize(
    ("name", "wide", "narrow", "value"),
    [
        ("AVRO", "BIGINT", "INT", 1 << 31),
        ("PROTOBUF_NOSR", "DECIMAL(20, 2)", "DECIMAL(10, 2)", Decimal("123456789012345678.90")),
        ("PROTOBUF_NOSR", "DECIMAL(10, 4)", "DECIMAL(10, 2)", Decimal("1.2345")),
    ],
)
def test_data_of_a_wider_type_is_read_where_it_fits(name: str, wide: str, narrow: str, value: Any) -> None:
    data = made(name, wide, schema_id=1).encode({"A": value})
    small = made(name, wide, schema_id=1).encode({"A": type(value)(1)})
    assert data is not None
    assert small is not None
    form = made(name, narrow, schema_id=1)
    assert form.decode(small) == {"A": 1}
    with pytest.raises(ValueError, match=r"fit|bits"):
        form.decode(data)


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (b'"a"b,2', None),
        (b'"a,2', None),
        (b"\na,2", None),
        (b'a"b,2', {"A": 'a"b', "B": 2}),
        (b'"x""y\nz",2\nb,3', {"A": 'x"y\nz', "B": 2}),
        (b'"","2"', {"A": None, "B": 2}),
        (b"a" * 140_000 + b",2", {"A": "a" * 140_000, "B": 2}),
        (b'"' + b"a" * 140_000 + b'",2', {"A": "a" * 140_000, "B": 2}),
    ],
)
def test_fields_of_delimited_records(data: bytes, values: dict[str, Any] | None) -> None:
    form = made("DELIMITED", "STRUCT<A STRING, B INT>")
    if values is not None:
        assert form.decode(data) == values
        return
    with pytest.raises(ValueError, match=r"."):
        form.decode(data)


@pytest.mark.parametrize("data", [b"12345678.128", b"123456789.00"])
def test_a_delimited_decimal_must_fit_and_is_never_rounded(data: bytes) -> None:
    form = made("DELIMITED", "DECIMAL(10, 2)")
    assert form.decode(b"12345678.1") == {"A": Decimal("12345678.10")}
    with pytest.raises(ValueError, match="does not fit"):
        form.decode(data)


def test_whatever_a_parser_stumbles_over_is_wrong_data_but_no_fault_of_the_registry_is() -> None:
    class Codec:
        raised: Exception = ZeroDivisionError("by nothing")

        def encode(self, values: Any) -> None: ...

        def decode(self, data: bytes) -> None:
            raise self.raised

    codec = Codec()
    form = RecordFormat("JSON", (), codec, None)
    with pytest.raises(ValueError, match="ZeroDivisionError: by nothing"):
        form.decode(b"")
    codec.raised = SchemaRegistryError("it does not answer")
    with pytest.raises(SchemaRegistryError):
        form.decode(b"")


def test_avro_is_framed_and_comes_back() -> None:
    form = made("AVRO", AVRO_ROW, schema_id=7)
    values = {
        "A": 1,
        "B": ["x", None],
        "C": {"y": 1.5},
        "D": {"X": Decimal("1.25")},
        "E": datetime(2020, 1, 2, tzinfo=UTC),
    }
    data = form.encode(values)
    assert data is not None
    assert data[:5] == b"\0\0\0\0\x07"
    assert form.decode(data) == values


def test_kafka_has_one_column() -> None:
    with pytest.raises(SqlError, match="only supports a single field"):
        made("KAFKA", "STRUCT<A INT, B INT>")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (100.0, "100.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.5e300, "1.5E300"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (0.1 + 0.2, "0.30000000000000004"),
        (2e-3, "0.002"),
        (9e-4, "9.0E-4"),
    ],
)
def test_doubles_are_written_as_in_java(value: float, text: str) -> None:
    assert double_text(value) == text
