"""Types of columns: their text, Spark's types, and which becomes which."""

from __future__ import annotations

import pytest

from odradek.values.errors import SqlError
from odradek.values.types import (
    BIGINT,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    TIMESTAMP,
    are_comparable,
    can_cast,
    common_type,
    decimal_of,
    is_castable_implicitly,
    parse_type,
)


@pytest.mark.parametrize(
    ("text", "shown", "ddl"),
    [
        ("int", "INTEGER", "INT"),
        ("Varchar", "STRING", "STRING"),
        ("VARCHAR(STRING)", "STRING", "STRING"),
        ("varchar(20)", "STRING", "STRING"),
        ("bytes", "BYTES", "BINARY"),
        ("decimal(10,2)", "DECIMAL(10, 2)", "DECIMAL(10,2)"),
        ("DECIMAL(5)", "DECIMAL(5, 0)", "DECIMAL(5,0)"),
        ("TIME", "TIME", "INT"),
        ("timestamp", "TIMESTAMP", "TIMESTAMP"),
        ("array<varchar>", "ARRAY<STRING>", "ARRAY<STRING>"),
        ("map<string, array<int>>", "MAP<STRING, ARRAY<INTEGER>>", "MAP<STRING,ARRAY<INT>>"),
        (
            "struct<name string, `last` struct<n bigint>>",
            "STRUCT<`NAME` STRING, `last` STRUCT<`N` BIGINT>>",
            "STRUCT<`NAME`: STRING,`last`: STRUCT<`N`: BIGINT>>",
        ),
    ],
)
def test_a_type_has_a_text_for_ksql_and_one_for_spark(text: str, shown: str, ddl: str) -> None:
    kind = parse_type(text)
    assert (str(kind), kind.ddl) == (shown, ddl)
    assert parse_type(str(kind)) == kind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "wanted"),
        ("INTT", "Did you mean INT"),
        ("ARRAY", "< is wanted"),
        ("ARRAY<INT", "> is wanted"),
        ("MAP<INT>", ", is wanted"),
        ("INT INT", "too much"),
        ("STRUCT<A INT, A INT>", "twice"),
        ("DECIMAL(39, 2)", "1 to 38"),
        ("DECIMAL(2, 3)", "scale"),
        ("INT;", "unexpected ';'"),
    ],
)
def test_what_is_no_type_is_refused_and_named(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        parse_type(text)


def test_a_type_that_was_created_stands_for_what_it_names() -> None:
    types = {"ADDRESS": parse_type("STRUCT<street STRING>")}
    assert str(parse_type("array<address>", types)) == "ARRAY<STRUCT<`STREET` STRING>>"
    with pytest.raises(SqlError, match="Did you mean ADDRESS"):
        parse_type("adress", types)


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        ("INT", "BIGINT", "BIGINT"),
        ("INT", "DOUBLE", "DOUBLE"),
        ("INT", "DECIMAL(4,2)", "DECIMAL(12, 2)"),
        ("BIGINT", "DECIMAL(4,2)", "DECIMAL(21, 2)"),
        ("DECIMAL(4,2)", "DECIMAL(5,1)", "DECIMAL(6, 2)"),
        ("DECIMAL(4,2)", "DOUBLE", "DOUBLE"),
        ("STRING", "INT", None),
        ("ARRAY<INT>", "ARRAY<BIGINT>", "ARRAY<BIGINT>"),
        ("ARRAY<INT>", "ARRAY<STRING>", None),
        ("MAP<STRING, INT>", "MAP<STRING, DOUBLE>", "MAP<STRING, DOUBLE>"),
        ("STRUCT<A INT>", "STRUCT<A BIGINT, B STRING>", "STRUCT<`A` BIGINT, `B` STRING>"),
        ("STRUCT<A INT>", "STRUCT<A STRING>", None),
        ("DATE", "TIMESTAMP", None),
    ],
)
def test_two_types_have_a_common_one_or_none(left: str, right: str, common: str | None) -> None:
    both = common_type(parse_type(left), parse_type(right))
    assert (None if both is None else str(both)) == common
    mirrored = common_type(parse_type(right), parse_type(left))
    assert (mirrored is None) == (both is None)


def test_null_is_of_any_type() -> None:
    assert common_type(NULL, STRING) == common_type(STRING, NULL) == STRING
    assert is_castable_implicitly(NULL, BYTES)


@pytest.mark.parametrize(
    ("source", "target", "possible"),
    [
        (INTEGER, BIGINT, True),
        (BIGINT, INTEGER, False),
        (BIGINT, decimal_of(19, 0), True),
        (decimal_of(4, 2), DOUBLE, True),
        (decimal_of(4, 2), decimal_of(5, 2), True),
        (decimal_of(4, 2), decimal_of(4, 1), False),
        (INTEGER, STRING, False),
        (parse_type("ARRAY<INT>"), parse_type("ARRAY<BIGINT>"), True),
        (parse_type("STRUCT<A INT>"), parse_type("STRUCT<A DOUBLE, B INT>"), True),
        (parse_type("STRUCT<A DOUBLE>"), parse_type("STRUCT<A INT>"), False),
    ],
)
def test_values_widen_without_a_cast(source, target, possible: bool) -> None:
    assert is_castable_implicitly(source, target) is possible


@pytest.mark.parametrize(
    ("source", "target", "possible"),
    [
        ("INT", "STRING", True),
        ("BYTES", "STRING", False),
        ("STRING", "BOOLEAN", True),
        ("INT", "BOOLEAN", False),
        ("DOUBLE", "INT", True),
        ("DATE", "TIMESTAMP", True),
        ("TIMESTAMP", "TIME", True),
        ("DATE", "TIME", False),
        ("ARRAY<INT>", "ARRAY<STRING>", True),
        ("ARRAY<BYTES>", "ARRAY<STRING>", False),
        ("STRUCT<A INT>", "STRUCT<A STRING, B INT>", True),
        ("MAP<STRING, INT>", "ARRAY<INT>", False),
    ],
)
def test_a_cast_exists_or_not(source: str, target: str, possible: bool) -> None:
    assert can_cast(parse_type(source), parse_type(target)) is possible


def test_text_is_compared_with_times_and_not_with_numbers() -> None:
    assert are_comparable(STRING, TIMESTAMP)
    assert are_comparable(DATE, TIMESTAMP)
    assert not are_comparable(STRING, INTEGER)


def test_rest_shows_members_fields_and_parameters() -> None:
    assert parse_type("MAP<STRING, DECIMAL(4, 2)>").schema_json() == {
        "type": "MAP",
        "fields": None,
        "memberSchema": {
            "type": "DECIMAL",
            "fields": None,
            "memberSchema": None,
            "parameters": {"precision": 4, "scale": 2},
        },
    }
    assert parse_type("STRUCT<A INT>").schema_json()["fields"] == [
        {"name": "A", "schema": {"type": "INTEGER", "fields": None, "memberSchema": None}}
    ]


def test_a_field_that_is_not_there_is_answered_with_the_nearest() -> None:
    with pytest.raises(SqlError, match="Did you mean STREET"):
        parse_type("STRUCT<street STRING>").field("STRET")
