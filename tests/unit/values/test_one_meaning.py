"""A record means the same to a query in Spark and to one without, and it means what ksqlDB says."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any, Final

import pytest

from odradek.sql.language.parsing import parse_one
from odradek.sql.language.statements import InsertValues
from odradek.sql.queries.expressions import constant
from odradek.values.errors import SqlError
from odradek.values.formats import record_format
from odradek.values.formats.format_info import FormatInfo
from odradek.values.formats.row_codec import SqlRowCodec, UnreadableRecord
from odradek.values.types import parse_type

REFUSED: Final = "refused"
TYPES: Final = (
    *(
        "BOOLEAN",
        "INTEGER",
        "BIGINT",
        "DOUBLE",
        "DECIMAL(5,2)",
        "STRING",
        "BYTES",
        "DATE",
        "TIME",
        "TIMESTAMP",
    ),
    *("ARRAY<INT>", "ARRAY<BOOLEAN>", "MAP<STRING,INT>", "MAP<INT,INT>", "STRUCT<K INT>"),
)
NUMBERS: Final = (
    "1_000",
    " 7 ",
    "+7",
    "1.5",
    "5.555",
    "1e3",
    "1.5f",
    "NaN",
    "nan",
    "inf",
    "-Infinity",
    "0x10",
    "١",
    "",
)
TEXTS: Final = (
    *NUMBERS,
    "true",
    "TRUE",
    " true ",
    "yes",
    "2020-01-02",
    "10:11:12",
    "2020-01-02T03:04:05Z",
    "AQI=",
    "A Q I=",
)
JSON: Final = (
    *(f'"{text}"' for text in TEXTS),
    *(
        "true",
        "1",
        "1.5",
        "1e3",
        "-0.0",
        "12345678901",
        "NaN",
        "Infinity",
        "null",
        "[]",
        "{}",
        '[1,"2"]',
        '[true,"true"]',
    ),
    *('{"k":1}', '{"1":2}', '"\\ud800"'),
)
RECORDS: Final = (
    *(("JSON", f'{{"A":{text},"Z":1}}'.encode()) for text in JSON),
    *(("DELIMITED", f"{text},1".encode()) for text in TEXTS),
    ("DELIMITED", b"M\xfcller,1"),
    ("JSON", b'{"A":"M\xfcller","Z":1}'),
)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    return "NaN" if value != value else value


def _in_spark(name: str, kind: str, data: bytes) -> Any:
    columns = [("A", "a", parse_type(kind)), ("Z", "z", parse_type("INT"))]
    try:
        row = record_format(FormatInfo(name=name), columns, is_key=False).decode(data)
    except ValueError:
        return REFUSED
    return None if row is None else _plain(row["a"])


def _without(name: str, kind: str, data: bytes) -> Any:
    codec = SqlRowCodec(format=name, columns=(("A", parse_type(kind)), ("Z", parse_type("INT"))))
    try:
        row = codec.decode(data)
    except UnreadableRecord:
        return REFUSED
    return None if row is None else _plain(row[0])


@pytest.mark.parametrize("kind", TYPES)
def test_both_decoders_read_the_same(kind: str) -> None:
    is_complex = "<" in kind
    different = [
        (name, data, first, second)
        for name, data in RECORDS
        if not (is_complex and name == "DELIMITED")
        if (first := _in_spark(name, kind, data)) != (second := _without(name, kind, data))
    ]
    assert different == []


@pytest.mark.parametrize(
    ("name", "kind", "text", "expected"),
    [
        *product(
            ("JSON", "DELIMITED"),
            ("INT", "BIGINT", "DOUBLE", "DECIMAL(9, 2)"),
            ("1_000", "inf", "nan", "١"),
            (REFUSED,),
        ),
        *product(("JSON", "DELIMITED"), ("INT", "BIGINT", "DECIMAL(9, 2)"), (" 7 ", "NaN"), (REFUSED,)),
        ("JSON", "DOUBLE", " 7 ", 7.0),
        ("JSON", "DOUBLE", "NaN", "NaN"),
        ("DELIMITED", "DECIMAL(9, 2)", "5.555", REFUSED),
        ("DELIMITED", "DECIMAL(9, 2)", "5.5", Decimal("5.50")),
        ("JSON", "BOOLEAN", "true", REFUSED),
        ("DELIMITED", "BOOLEAN", "TRUE", True),
        ("DELIMITED", "BOOLEAN", "yes", False),
        ("DELIMITED", "BOOLEAN", " true ", False),
        ("JSON", "DATE", "2020-01-02", REFUSED),
        ("DELIMITED", "DATE", "18263", 18263),
        ("DELIMITED", "TIMESTAMP", "2020-01-02", REFUSED),
    ],
)
def test_text_is_read_as_ksqldb_reads_it(name: str, kind: str, text: str, expected: Any) -> None:
    data = f'{{"A":"{text}","Z":1}}' if name == "JSON" else f"{text},1"
    assert _without(name, kind, data.encode()) == expected


def test_a_byte_that_is_no_utf8_is_replaced_in_text_and_refused_in_json() -> None:
    assert _without("DELIMITED", "STRING", b"M\xfcller,1") == "M\ufffdller"
    assert _without("JSON", "STRING", b'{"A":"M\xfcller","Z":1}') == REFUSED
    bare = (("A", parse_type("STRING")),)
    assert SqlRowCodec(format="KAFKA", columns=bare).decode(b"M\xfcller") == ["M\ufffdller"]
    form = record_format(FormatInfo(name="KAFKA"), [("A", "a", bare[0][1])], is_key=True)
    assert form.decode(b"M\xfcller") == {"a": "M\ufffdller"}


TIMES = ("DATE", "TIME", "TIMESTAMP")


def _inserted(written: str, kind: str) -> Any:
    statement = parse_one(f"INSERT INTO s VALUES ({written});")
    assert isinstance(statement, InsertValues)
    try:
        return constant(statement.values[0], parse_type(kind))
    except SqlError as error:
        return REFUSED if "Expected type" in str(error) else str(error)


@pytest.mark.parametrize(
    ("written", "kind", "expected"),
    [
        ("1.250", "DECIMAL(12, 2)", Decimal("1.25")),
        *(
            (number, "DECIMAL(12, 2)", REFUSED)
            for number in ("0.005", "2.545", "-0.005", "19.999", "1e-3", "'1.5'")
        ),
        ("ARRAY[1.5, 0.005]", "ARRAY<DECIMAL(4, 2)>", REFUSED),
        ("STRUCT(X := 0.005)", "STRUCT<X DECIMAL(4, 2)>", REFUSED),
        ("CAST('0.005' AS DECIMAL(12, 2))", "DECIMAL(12, 2)", Decimal("0.01")),
        ("CAST(-2.545 AS DECIMAL(12, 2))", "DECIMAL(12, 2)", Decimal("-2.55")),
        ("CAST(1.555 AS DECIMAL(4, 3))", "DECIMAL(4, 2)", REFUSED),
        ("CAST(7 AS BIGINT)", "DOUBLE", 7.0),
        ("CAST('1_000' AS INT)", "INT", REFUSED),
        ("CAST('2020-01-02' AS DATE)", "DATE", 18263),
        ("'1_000'", "DOUBLE", REFUSED),
        ("1.5", "INT", REFUSED),
        *(
            (f"CAST({number} AS {kind})", kind, REFUSED)
            for number in ("1", "1e300", "true")
            for kind in TIMES
        ),
        *((number, kind, REFUSED) for number in ("1e300", "9223372036854775807", "true") for kind in TIMES),
        ("CAST(true AS DOUBLE)", "DOUBLE", REFUSED),
    ],
)
def test_insert_values_never_rounds(written: str, kind: str, expected: Any) -> None:
    assert _inserted(written, kind) == expected
