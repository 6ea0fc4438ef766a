"""Rows as bytes, as ksqlDB's formats write them, and what Python computes over them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from odradek.sql.language.parsing import parse_one
from odradek.sql.language.statements import InsertValues, SelectStatement
from odradek.sql.queries.expressions import LocalScope, NeedsSpark, constant
from odradek.sql.server.row_formats import json_text
from odradek.values.errors import SqlError
from odradek.values.formats.row_codec import SqlRowCodec, UnreadableRecord, shown
from odradek.values.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, STRING, parse_type


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        ("INT", -2, b"\xff\xff\xff\xfe"),
        ("BIGINT", 1, b"\0\0\0\0\0\0\0\1"),
        ("DOUBLE", 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        ("STRING", "ö", "ö".encode()),
        ("BYTES", b"\0\1", b"\0\1"),
    ],
)
def test_kafka_format(kind: str, value: Any, data: bytes) -> None:
    codec = SqlRowCodec(format="KAFKA", columns=(("K", parse_type(kind)),))
    assert codec.encode([value]) == data
    assert codec.decode(data) == [value]


JSON = SqlRowCodec(
    format="JSON",
    columns=tuple(
        (name, parse_type(kind))
        for name, kind in (
            ("A", "INT"),
            ("B", "STRING"),
            ("C", "DECIMAL(6,2)"),
            ("D", "ARRAY<STRUCT<x INT>>"),
            ("E", "BYTES"),
            ("F", "TIMESTAMP"),
        )
    ),
)


def test_json_format() -> None:
    row = [1, "x", Decimal("2.50"), [{"X": 3}], b"\1", 4]
    data = b'{"A":1,"B":"x","C":2.50,"D":[{"X":3}],"E":"AQ==","F":4}'
    assert JSON.encode(row) == data
    assert JSON.decode(data) == row


def test_names_in_json_are_found_whatever_their_case() -> None:
    assert JSON.decode(b'{"a": "7", "b": {"z": 1}, "d": [{"x": null}]}') == [
        7,
        '{"z":1}',
        None,
        [{"X": None}],
        None,
        None,
    ]


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"A": true}', b'{"A": "x"}', b'{"D": 1}', b'{"E": "?"}'])
def test_what_is_no_row_is_said(data: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        JSON.decode(data)


def test_a_bare_value() -> None:
    codec = SqlRowCodec(format="JSON", columns=(("V", BIGINT),), is_wrapped=False)
    assert codec.encode([5]) == b"5"
    assert codec.decode(b"5") == [5]
    assert codec.decode(None) is None


def test_delimited_format() -> None:
    columns = (("A", STRING), ("B", INTEGER), ("C", BOOLEAN), ("D", DOUBLE))
    codec = SqlRowCodec(format="DELIMITED", columns=columns)
    assert codec.encode(['a,"b', None, True, 1.5]) == b'"a,""b",,true,1.5'
    assert codec.decode(b'"a,""b",,true,1.5') == ['a,"b', None, True, 1.5]
    with pytest.raises(UnreadableRecord, match="1 columns in place of 4"):
        codec.decode(b"a")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("DATE", 18628, "2021-01-01"),
        ("TIME", 3_600_000, "01:00"),
        ("TIME", 1_001, "00:00:01.001"),
        ("TIMESTAMP", 1, "1970-01-01T00:00:00.001"),
        ("BYTES", b"\1", "AQ=="),
        ("DECIMAL(4,1)", Decimal("1.5"), Decimal("1.5")),
        ("TIMESTAMP", 999_999_999_999_999, "+33658-09-27T01:46:39.999"),
        ("ARRAY<DATE>", [0, None], ["1970-01-01", None]),
        ("STRUCT<a DATE>", {"A": 1}, {"A": "1970-01-02"}),
    ],
)
def test_values_as_clients_see_them(kind: str, value: Any, expected: Any) -> None:
    assert shown(value, parse_type(kind)) == expected


def where(text: str, row: dict[str, Any], **kinds: str) -> bool:
    statement = parse_one(f"SELECT * FROM s WHERE {text};")
    assert isinstance(statement, SelectStatement)
    assert statement.query.where is not None
    scope = LocalScope({name: parse_type(kind) for name, kind in kinds.items()}, frozenset({"S"}))
    return scope.condition(statement.query.where)(row)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", True),
        ("s.a + 1 > 1.5 AND NOT b = 'y'", True),
        ("n = 1 OR a = 1", True),
        ("n = 1", False),
        ("NOT n = 1", True),
        ("n IS NULL AND b IS NOT NULL", True),
        ("a IN (2, 3)", False),
        ("n IN (1, 2) OR a BETWEEN 0 AND 1", True),
        ("d = '2021-01-01'", True),
        ("d < '2021-01-01'", False),
        ("d = t", False),
        ("d < t", True),
        ("t BETWEEN d AND '2021-01-02'", True),
        ("t IN (d)", False),
        ("b <> 'x'", False),
        ("a * 2147483647 * 2 = -2", True),
    ],
)
def test_conditions(text: str, expected: bool) -> None:
    row = {"A": 1, "B": "x", "N": None, "D": 18628, "T": 18628 * 86_400_000 + 1}
    assert where(text, row, A="INT", B="STRING", N="INT", D="DATE", T="TIMESTAMP") is expected


@pytest.mark.parametrize(
    "text", ["LCASE(b) = 'x'", "b LIKE 'x%'", "a / 2 = 0", "b + 'x' = 'xx'", "m['a'] = 1"]
)
def test_what_python_leaves_to_spark(text: str) -> None:
    with pytest.raises(NeedsSpark):
        where(text, {}, A="INT", B="STRING", M="MAP<STRING, INT>")


@pytest.mark.parametrize(
    ("text", "says"),
    [("c = 1", "'C' cannot be resolved"), ("a = 'x'", "cannot be compared"), ("a", "must be a BOOLEAN")],
)
def test_wrong_conditions_are_refused_with_their_place(text: str, says: str) -> None:
    with pytest.raises(SqlError, match=says) as refused:
        where(text, {}, A="INT", B="STRING")
    assert refused.value.position is not None


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("-5", "BIGINT", -5),
        ("1", "DOUBLE", 1.0),
        ("2.5", "DECIMAL(5,2)", Decimal("2.50")),
        ("'2021-01-01'", "DATE", 18628),
        ("'1970-01-01T00:00:01'", "TIMESTAMP", 1000),
        ("ARRAY[1, 2]", "ARRAY<INT>", [1, 2]),
        ("MAP('a' := 1)", "MAP<STRING, INT>", {"a": 1}),
        ("STRUCT(x := 1)", "STRUCT<x INT>", {"X": 1}),
        ("NULL", "STRING", None),
    ],
)
def test_constants_of_insert(text: str, kind: str, expected: Any) -> None:
    statement = parse_one(f"INSERT INTO s VALUES ({text});")
    assert isinstance(statement, InsertValues)
    assert constant(statement.values[0], parse_type(kind)) == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [("'x'", "INT"), ("3000000000", "INT"), ("1.5", "BIGINT"), ("now()", "BIGINT"), ("1", "STRING")],
)
def test_wrong_constants_are_refused(text: str, kind: str) -> None:
    statement = parse_one(f"INSERT INTO s VALUES ({text});")
    assert isinstance(statement, InsertValues)
    with pytest.raises(SqlError):
        constant(statement.values[0], parse_type(kind))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("INT", b"1e999999999"),
        ("INT", b"9999999999"),
        ("BIGINT", b"Infinity"),
        ("TIMESTAMP", b"999999999999999"),
        ("DATE", b"9999999"),
        ("DECIMAL(10,2)", b"1e999999999"),
        ("DECIMAL(10,2)", b"1.005"),
        ("DECIMAL(10,2)", b'"1.005"'),
        ("STRING", rb'"\ud800"'),
        ("STRING", b"[" * 100_000),
    ],
)
def test_what_does_not_fit_is_no_row(kind: str, text: bytes) -> None:
    codec = SqlRowCodec(format="JSON", columns=(("X", parse_type(kind)),))
    with pytest.raises(UnreadableRecord):
        codec.decode(b'{"X":' + text + b"}")


def test_all_digits_of_a_decimal_come_and_go() -> None:
    kind = parse_type("DECIMAL(38,2)")
    digits = "123456789012345678901234567890123456.25"
    codec = SqlRowCodec(format="JSON", columns=(("X", kind),))
    row = codec.decode(b'{"X":' + digits.encode() + b"}")
    assert row == [Decimal(digits)]
    assert codec.encode(row) == b'{"X":' + digits.encode() + b"}"
    assert json_text([shown(row[0], kind)]) == f"[{digits}]"
    statement = parse_one(f"INSERT INTO s VALUES (-{digits});")
    assert isinstance(statement, InsertValues)
    assert constant(statement.values[0], kind) == Decimal(f"-{digits}")


def test_what_json_has_no_number_for_is_a_text() -> None:
    assert json_text([float("nan"), float("-inf"), {"x": 1.5}]) == '["NaN","-Infinity",{"x":1.5}]'
    assert json_text(["\ud800é"]) == '["\\ud800é"]'
