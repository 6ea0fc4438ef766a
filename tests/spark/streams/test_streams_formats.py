"""Bare JSON, CSV and `kafka` of streams beside the formats of the room `values`, over generated texts and values.

What differs by intent stands in `docs/streams-reference.md`.
"""

from __future__ import annotations

import math
import os
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.property.values.generated import Generated

from odradek.model.errors import ConfigError
from odradek.streams.plan.schemas import FORMATS, check_holds, declared
from odradek.values.ddl import parsed_ddl
from odradek.values.formats import RecordFormat, record_format
from odradek.values.formats.format_info import FormatColumn, FormatInfo
from odradek.values.formats.kafka_format import KafkaFormat
from odradek.values.types import SqlType, parse_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROUNDS: Final = int(os.environ.get("ODRADEK_ROUNDS", "300"))
REFUSED: Final = "refused"
HOSTILE: Final = (
    *("[1,2]", '[1,"x"]', "[1", '{"a":1}', '{"a":"x"}', "{bad", "null", "", "[null]", "{}", "[]"),
    *('{"a":1}x', '{"a":1} {"a":2}', "[1] x", "[1],[2]", '{"a":1},{"a":2}', '1],"z":[2', "[1]]} x"),
    *(
        '[1]],"z":[[2]',
        '[1]],"v":[[2]',
        '[1]],"end":1}',
        '{"a":1}],"v":[{"a":2}',
        '{"a":1}],"z":[]',
        '{"a":1}]}}',
    ),
    *('{"a":1}]},"m":{"v":[{"a":2}', '{"a":1}]},"n":{"v":[', '[1]]},"__corrupt":[['),
    *('{"z":NaN}', '{"z":[-Infinity]}', '{"z":+INF}', '{"z":"NaN"}', "[NaN]"),
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
    kind = StructType.fromDDL(ddl)
    assert isinstance(kind, StructType)
    frame = spark.createDataFrame([(row,) for row in rows], StructType().add("__value", kind)).coalesce(1)
    column = encoded("__value", kind, "csv", bare=False)
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


_KAFKA_KINDS: Final = {
    "short": "SMALLINT",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "text": "STRING",
    "raw": "BINARY",
}
"""What Kafka has a serializer for, as columns of one frame."""
_ODD_DOUBLE: Final = struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]
"""A NaN of other bits than Java's."""


def _kafka_values(generated: Generated) -> dict[str, Any]:
    narrow = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, 2.0**-149, (2 - 2.0**-23) * 2.0**127]
    return {
        "short": generated.random.choice((0, -1, 32767, -32768, None)),
        "int": generated.value(SqlType(kind="INTEGER")),
        "long": generated.value(SqlType(kind="BIGINT")),
        "float": generated.random.choice((*narrow, None)),
        "double": generated.random.choice((generated.value(SqlType(kind="DOUBLE")), _ODD_DOUBLE)),
        "text": generated.value(SqlType(kind="STRING")),
        "raw": generated.value(SqlType(kind="BYTES")),
    }


def _kafka_formats() -> dict[str, KafkaFormat]:
    kinds = {name: parsed_ddl(ddl).type for name, ddl in _KAFKA_KINDS.items()}
    return {
        name: KafkaFormat((FormatColumn("value", "value", kind),)) for name, kind in kinds.items() if kind
    }


def test_the_kafka_format_writes_what_the_serializers_of_kafka_write(spark: SparkSession) -> None:
    from pyspark.sql.types import StructType

    from odradek.streams.translation.formats import encoded

    generated, formats = Generated(6), _kafka_formats()
    rows = [_kafka_values(generated) for _ in range(ROUNDS)]
    schema = StructType()
    for name, ddl in _KAFKA_KINDS.items():
        schema = schema.add(name, StructType.fromDDL(f"value {ddl}"))
    frame = spark.createDataFrame([tuple((row[name],) for name in formats) for row in rows], schema).coalesce(
        2
    )
    columns = []
    for field in schema:
        assert isinstance(field.dataType, StructType)
        columns.append(encoded(field.name, field.dataType, "kafka", bare=True).alias(field.name))
    written = frame.select(*columns).collect()
    assert [
        (name, row[name], data[name], form.encode({"value": row[name]}))
        for row, data in zip(rows, written, strict=True)
        for name, form in formats.items()
        if data[name] != form.encode({"value": row[name]})
    ] == []
    assert {
        bytes(data["double"]).hex()
        for row, data in zip(rows, written, strict=True)
        if row["double"] is _ODD_DOUBLE
    } == {"7ff8000000000000"}
    for name in formats:
        assert len({data[name] for data in written}) > 3, name


def test_the_kafka_format_reads_what_the_deserializers_of_kafka_read(spark: SparkSession) -> None:
    """But for text that is not UTF-8, which Kafka's replaces by U+FFFD: a stream drops no bytes in silence."""
    from odradek.streams.translation.formats import decoded

    generated, formats = Generated(7), _kafka_formats()
    rows = []
    for _ in range(ROUNDS):
        values = _kafka_values(generated)
        good = {name: form.encode({"value": values[name]}) for name, form in formats.items()}
        size = generated.random.choice((0, 1, 2, 3, 4, 5, 7, 8, 9))
        odd = {name: generated.random.choice((None, generated.random.randbytes(size))) for name in formats}
        rows.append(good if generated.chance(0.6) else odd)
    ddl = ", ".join(f"{name} BINARY" for name in formats)
    frame = spark.createDataFrame([tuple(row[name] for name in formats) for row in rows], ddl).coalesce(2)
    columns = []
    for name, kind in _KAFKA_KINDS.items():
        content = decoded(declared(kind, "value", "kafka"), name)
        problem = "cast(null as string)" if content.problem is None else content.problem
        columns += [content.struct["value"].alias(name), _as_column(problem).alias(f"{name}_problem")]
    read = frame.select(*columns).collect()
    different, counts = [], {"read": 0, "refused": 0}
    for row, seen in zip(rows, read, strict=True):
        for name, form in formats.items():
            by_rows = _by_kafka(form, row[name])
            by_streams = REFUSED if seen[f"{name}_problem"] is not None else _comparable(seen[name])
            counts["refused" if by_streams == REFUSED else "read"] += 1
            if name == "text" and by_streams == REFUSED and "\ufffd" in str(by_rows):
                continue
            if by_streams != by_rows:
                different.append((name, row[name], by_streams, by_rows))
    assert different[:5] == []
    assert min(counts.values()) > ROUNDS / 10, counts


def _as_column(column: Any) -> Any:
    from pyspark.sql import functions as sf

    return sf.expr(column) if isinstance(column, str) else column


def _by_kafka(form: KafkaFormat, data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return _comparable(form.decode(data)["value"])
    except ValueError:
        return REFUSED


def _comparable(value: Any) -> Any:
    """NaN equals itself, and -0.0 is not 0.0."""
    return (
        repr(value) if isinstance(value, float) else bytes(value) if isinstance(value, bytearray) else value
    )


@pytest.mark.parametrize(
    "kind", ["BOOLEAN", "DECIMAL(5, 2)", "DATE", "TIMESTAMP", "TINYINT", "ARRAY<INT>", "VARIANT"]
)
def test_types_without_a_serializer_of_kafka_are_refused_with_those_that_have_one(
    spark: SparkSession, kind: str
) -> None:
    from pyspark.sql.types import StructType

    from odradek.streams.translation.formats import typed_fields

    refused = "value_format='kafka' holds what a serializer of Kafka has: STRING, BINARY, SMALLINT, .* and DOUBLE, not"
    with pytest.raises(ConfigError, match=refused):
        declared(kind, "value", "kafka")
    with pytest.raises(ConfigError, match=refused):
        check_holds("kafka", typed_fields(StructType.fromDDL(f"value {kind}")), "value", bare=True)  # type: ignore[arg-type]


SAMPLES: Final = {
    "BOOLEAN": "true",
    "TINYINT": "-7Y",
    "SMALLINT": "300S",
    "INT": "-70000",
    "BIGINT": "1099511627776L",
    "FLOAT": "CAST(0.5 AS FLOAT)",
    "DOUBLE": "-1e300D",
    "DECIMAL(5, 2)": "CAST(-1.25 AS DECIMAL(5, 2))",
    "STRING": "'é, \"x\"'",
    "VARCHAR(7)": "'abc'",
    "CHAR(3)": "'abc'",
    "BINARY": "X'6162'",
    "DATE": "DATE'2020-02-29'",
    "TIMESTAMP": "TIMESTAMP'2020-02-29 01:02:03.456'",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ'2020-02-29 01:02:03.456'",
    "TIME(6)": "TIME'01:02:03.5'",
    "ARRAY<INT>": "array(1, null)",
    "MAP<STRING, INT>": "map('x', 1)",
    "MAP<INT, INT>": "map(1, 1)",
    "STRUCT<`a` INT>": "named_struct('a', 1)",
    "ARRAY<BINARY>": "array(X'6162')",
    "ARRAY<STRUCT<`a` MAP<STRING, ARRAY<INT>>>>": "array(named_struct('a', map('x', array(1))))",
    "INTERVAL DAY TO SECOND": "INTERVAL '1 00:00:02' DAY TO SECOND",
    "INTERVAL YEAR TO MONTH": "INTERVAL '1-2' YEAR TO MONTH",
    "VARIANT": "parse_json('7')",
    "VOID": "NULL",
}
"""A value of every type that DDL has, as SQL."""


@pytest.mark.parametrize("form", FORMATS)
def test_what_a_program_may_declare_can_be_written_and_read_again(spark: SparkSession, form: str) -> None:
    """Every type is refused when the program is written, or its values come back: nothing fails when a batch runs."""
    from pyspark.sql import functions as sf

    from odradek.streams.translation.formats import decoded, encoded

    different, held = [], []
    for written, sample in SAMPLES.items():
        try:
            schema = declared(written, "value", form)
        except ConfigError:
            continue
        held.append(written)
        row = spark.sql(f"SELECT named_struct('value', {sample}) AS v")
        sent: Any = encoded("v", row.schema["v"].dataType, form, bare=True)  # type: ignore[arg-type]
        if form == "csv" or (form == "json" and written != "BINARY"):
            sent = sent.cast("string")  # as the source gives it
        content = decoded(schema, "value")
        read = row.withColumn("value", sent).select(
            content.struct.getField("value").cast("string").alias("read"),
            sf.col("v.value").cast("string").alias("sent"),
            (sf.lit(None) if content.problem is None else content.problem).cast("string").alias("problem"),
        )
        (outcome,) = read.collect()
        if outcome.problem is not None or outcome.read != outcome.sent:
            different.append((written, outcome))
    assert different == []
    assert len(held) >= 7, held
