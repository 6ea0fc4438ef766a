"""Bare JSON and CSV of streams beside the formats of the room `values`, which the SQL server uses, over generated texts.

What differs by intent stands in `docs/streams-reference.md`.
"""

from __future__ import annotations

import os
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.property.values.generated import Generated

from odradek.streams.plan.schemas import declared
from odradek.values.formats import RecordFormat, record_format
from odradek.values.formats.format_info import FormatInfo
from odradek.values.types import SqlType, parse_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROUNDS: Final = int(os.environ.get("ODRADEK_ROUNDS", "300"))
REFUSED: Final = "refused"
HOSTILE: Final = (
    *("[1,2]", '[1,"x"]', "[1", '{"a":1}', '{"a":"x"}', "{bad", "null", "", "[null]", "{}", "[]"),
    *('{"a":1}x', '{"a":1} {"a":2}', "[1] x", "[1],[2]", '{"a":1},{"a":2}', '1],"z":[2', "[1]]} x"),
    *("[1,2147483648]", '{"a":2147483648}', '{"a":true}', ' {"a":1} ', '{"a":1}\n', '\ufeff{"a":1}'),
)
KINDS: Final = (
    "ARRAY<INT>",
    "STRUCT<`a` INT>",
    "MAP<STRING, INT>",
    "ARRAY<STRUCT<`a` BIGINT, `b` ARRAY<BOOLEAN>>>",
    "STRUCT<`a` STRUCT<`b` BIGINT>, `c` MAP<STRING, BOOLEAN>>",
)


class _ExactNames(Generated):
    """Fields with their own names: Spark's JSON tells cases apart, and ksqlDB's does not."""

    def cased(self, name: str) -> str:
        return self.random.choice((name, name, name, f"{name}?"))


def _plain(value: Any) -> Any:
    match value:
        case list():
            return [_plain(member) for member in value]
        case dict():
            return {name: _plain(member) for name, member in value.items()}
    return _plain(value.asDict()) if hasattr(value, "asDict") else value


def _by_values(form: RecordFormat, text: str) -> Any:
    try:
        return form.decode(text.encode(errors="surrogatepass"))
    except ValueError:
        return REFUSED


def _by_streams(spark: SparkSession, ddl: str, form: str, texts: list[str]) -> list[Any]:
    from odradek.streams.translation.formats import decoded

    schema = declared(ddl, "value", form)
    content = decoded(schema, "value")
    assert content.problem is not None
    frame = spark.createDataFrame([(text,) for text in texts], "value STRING").coalesce(1)
    rows = frame.select(content.struct.alias("struct"), content.problem.alias("problem")).collect()
    return [REFUSED if row.problem is not None else row.struct and row.struct.asDict() for row in rows]


@pytest.mark.parametrize("written", KINDS)
def test_what_streams_read_as_bare_json_is_what_values_read(spark: SparkSession, written: str) -> None:
    kind = parse_type(written)
    generated = _ExactNames(KINDS.index(written))
    texts = [*HOSTILE, *(generated.json(kind) for _ in range(ROUNDS))]
    texts = [
        text for text in texts if "ud800" not in text and len(text) < 1000
    ]  # Java's texts hold lone surrogates
    form = record_format(FormatInfo(name="JSON", wrapped=False), [("value", "value", kind)], is_key=False)
    different, read = [], 0
    for text, by_streams in zip(texts, _by_streams(spark, kind.ddl, "json", texts), strict=True):
        if by_streams == REFUSED:
            continue  # values read more: 1.5 and "1" as an INT
        read += 1
        by_values = _by_values(form, text)
        plain = None if by_streams is None else _plain(by_streams)
        if plain != (None if by_values == {"value": None} else by_values):
            different.append((text, plain, by_values))
    assert different[:5] == []
    assert read > ROUNDS / 10
    broken = [text for text in HOSTILE if _by_values(form, text) == REFUSED]
    assert len(broken) > 5
    assert _by_streams(spark, kind.ddl, "json", broken) == [REFUSED] * len(broken)


def test_csv_is_the_delimited_format_of_the_sql_server(spark: SparkSession) -> None:
    from pyspark.sql.types import StructType

    from odradek.streams.translation.formats import encoded

    kinds = {
        "a": "STRING",
        "b": "BIGINT",
        "c": "STRING",
        "d": "BOOLEAN",
        "e": "DECIMAL(18, 2)",
        "f": "STRING",
    }
    columns = [(name, name, parse_type(kind)) for name, kind in kinds.items()]
    form = record_format(FormatInfo(name="DELIMITED"), columns, is_key=False)
    generated = Generated(5)
    rows = [{name: _csv_value(generated, kind) for name, _, kind in columns} for _ in range(ROUNDS)]
    ddl = ", ".join(f"{name} {kind.ddl}" for name, _, kind in columns)
    struct = StructType.fromDDL(ddl)
    assert isinstance(struct, StructType)
    frame = spark.createDataFrame([(row,) for row in rows], StructType().add("__value", struct)).coalesce(1)
    column = encoded("__value", struct, "csv", bare=False)
    written = [row.text for row in frame.select(column.cast("string").alias("text")).collect()]
    by_sql = [(form.encode(row) or b"").decode() for row in rows]
    assert [
        (row, text) for row, text in zip(rows, written, strict=True) if _by_values(form, text) != row
    ] == []
    for texts in (written, by_sql):
        read = _by_streams(spark, ddl, "csv", texts)
        assert [
            (row, text, seen) for row, text, seen in zip(rows, texts, read, strict=True) if seen != row
        ] == []


def _csv_value(generated: Generated, kind: SqlType) -> Any:
    """A value that CSV can hold: an empty text is a null for both, and Spark's parser reads a lone NUL as one."""
    value = generated.value(kind)
    if isinstance(value, Decimal):
        return value + 0
    return (value.replace("\0", "") or None) if isinstance(value, str) else value
