"""The text of a format is read as that format, by processes that get no object."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.values.formats import RecordFormat, format_of_text, record_format
from odradek.values.formats.format_info import FormatInfo, WindowInfo
from odradek.values.types import SqlType, parse_type

TUMBLING = WindowInfo(kind="tumbling", size_ms=5_000)
SESSION = WindowInfo(kind="session", size_ms=None)
_OTHERS = {"wrapped": True, "delimiter": ",", "is_key": False, "window": None}
NESTED = "STRUCT<`a b` ARRAY<MAP<STRING, DECIMAL(9, 2)>>, `STRUCT` BYTES, C TIMESTAMP>"


def formed(
    info: FormatInfo, *kinds: str, is_key: bool = False, window: WindowInfo | None = None
) -> RecordFormat:
    columns = [(f"N`{index}", f"value_{index}", parse_type(kind)) for index, kind in enumerate(kinds)]
    return record_format(info, columns, is_key=is_key, window=window)


@pytest.mark.parametrize(
    ("form", "value", "data"),
    [
        (
            formed(FormatInfo(name="JSON"), "INT", "STRING"),
            {"value_0": 1, "value_1": "ö"},
            '{"N`0":1,"N`1":"ö"}',
        ),
        (formed(FormatInfo(name="JSON", wrapped=False), "DOUBLE"), {"value_0": 1.5}, "1.5"),
        (formed(FormatInfo(name="JSON"), "ARRAY<INT>", is_key=True), {"value_0": [1]}, "[1]"),
        (
            formed(FormatInfo(name="DELIMITED", delimiter="|"), "INT", "INT"),
            {"value_0": 1, "value_1": 2},
            "1|2",
        ),
        (formed(FormatInfo(name="KAFKA"), "BIGINT", is_key=True), {"value_0": 1}, "\0\0\0\0\0\0\0\1"),
        (
            formed(FormatInfo(name="KAFKA"), "STRING", is_key=True, window=TUMBLING),
            {"value_0": "k", "window_start": 0, "window_end": 5_000},
            "k\0\0\0\0\0\0\0\0",
        ),
        (
            formed(FormatInfo(name="KAFKA"), "STRING", is_key=True, window=SESSION),
            {"value_0": "k", "window_start": 1, "window_end": 2},
            "k\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\1",
        ),
    ],
)
def test_a_format_and_that_of_its_text_read_and_write_the_same(
    form: RecordFormat, value: dict[str, Any], data: str
) -> None:
    assert form.text is not None
    again = format_of_text(form.text)
    assert (again.name, again.ddl, again.columns, again.text) == (
        form.name,
        form.ddl,
        form.columns,
        form.text,
    )
    assert form.encode(value) == again.encode(value) == data.encode()
    assert form.decode(data.encode()) == again.decode(data.encode()) == value


def test_types_within_types_keep_their_names() -> None:
    form = formed(FormatInfo(name="JSON"), NESTED)
    assert form.text is not None
    assert format_of_text(form.text).columns[0].type == parse_type(NESTED)


def test_a_format_without_columns_has_a_text() -> None:
    form = record_format(FormatInfo(name="NONE"), (), is_key=True)
    assert form.text is not None
    assert format_of_text(form.text).encode({"nothing": None}) is None


@pytest.mark.parametrize("name", ["AVRO", "JSON_SR", "PROTOBUF", "PROTOBUF_NOSR"])
def test_a_format_with_a_schema_has_no_text(name: str) -> None:
    assert record_format(FormatInfo(name=name), [("A", "a", parse_type("INT"))], is_key=False).text is None


def test_a_type_that_no_statement_names_has_no_text() -> None:
    columns = [("A", "a", SqlType(kind="ARRAY", parts=(SqlType(kind="TINYINT"),)))]
    assert record_format(FormatInfo(name="JSON"), columns, is_key=False).text is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        json.dumps({"name": "JSON", "columns": []}),
        json.dumps(
            {
                **_OTHERS,
                "name": "YAML",
                "columns": [["A", "a", "INT"]],
            }
        ),
        json.dumps(
            {
                **_OTHERS,
                "name": "JSON",
                "columns": [["A", "a", "no type"]],
            }
        ),
        json.dumps({**_OTHERS, "name": 5, "columns": [["A", "a", "INT"]]}),
        json.dumps({**_OTHERS, "name": "JSON", "columns": [["A", "a", 5]]}),
        json.dumps({**_OTHERS, "name": "DELIMITED", "delimiter": 5, "columns": [["A", "a", "INT"]]}),
        json.dumps({**_OTHERS, "name": "AVRO", "columns": [["A", "a", "INT"]]}),
        json.dumps({**_OTHERS, "name": "PROTOBUF", "columns": [["A", "a", "INT"]]}),
        json.dumps(
            {**_OTHERS, "name": "JSON", "columns": [["A", "a", "ARRAY<" * 2000 + "INT" + ">" * 2000]]}
        ),
        "[" * 100_000,
    ],
    ids=lambda text: text[:60],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the message is that of the one who refuses
        format_of_text(text)
