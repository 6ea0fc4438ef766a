"""The schema that Spark gets and the one that batches have are the same."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.model.errors import ConfigError
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import Projection, read_options
from odradek.spark.reading.schema import arrow_schema, check_read_schema, read_ddl


def projection(**options: str) -> Projection:
    return read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **options}, Use.READ).projection


def test_the_default_columns_have_the_types_of_sparks_kafka_connector() -> None:
    assert read_ddl(projection(includeHeaders="true")) == (
        "`key` BINARY, `value` BINARY, `topic` STRING, `partition` INT, `offset` BIGINT,"
        " `timestamp` TIMESTAMP_LTZ, `timestampType` INT,"
        " `headers` ARRAY<STRUCT<`key`: STRING, `value`: BINARY>>"
    )


@pytest.mark.parametrize("ddl", ["a INT, b STRING", "struct<a: int, b: string>"])
def test_a_decoded_value_is_a_struct_of_the_users_fields(ddl: str) -> None:
    schema = read_ddl(projection(columns="value", valueDecode="json", valueSchema=ddl))
    assert schema.lower().replace(": ", " ") == "`value` struct<a int, b string>"


@pytest.mark.parametrize(
    ("ddl", "reason"),
    [
        ("id BIGNT", "field id has the type BIGNT, which does not exist"),
        ("id", "field id has no type"),
        ("id BIGINT,", "a field's name is missing before its end"),
        ("id BIGINT,, b INT", "a field's name is missing before ','"),
        ("id BIGINT b", "it continues with 'b' after its end"),
        ("id BIGINT DEFAULT 5", "it continues with 'DEFAULT' after its end"),
        ("id BIGINT COMMENT 'open", "the ' that opens at \"'open\" is not closed"),
        ("7 INT", "7 is a number and no name"),
        ("STRING", "field STRING has no type"),
        ("id BIGINT>, x STRUCT<b INT", "it continues with '>' after its end"),
        ("STRUCT<id BIGINT", "STRUCT needs '>' before its end"),
        ("STRUCT<id BIGINT>, b INT", "it continues with ',' after its end"),
        ("tags ARRAY", "field tags, ARRAY needs '<' before its end"),
        ("tags ARRAY<STRNG>", "field tags has the type STRNG, which does not exist"),
        ("m MAP<STRING>", "field m, MAP needs ',' before '>'"),
        ("first-name STRING", "'-' is not allowed there; put names with such characters into `backquotes`"),
        ("a DECIMAL(39,2)", "field a is DECIMAL(39,2): at most 38 digits"),
        ("a DECIMAL(4,5)", "field a is DECIMAL(4,5): at most 38 digits"),
        ("a DECIMAL(4", "field a, DECIMAL needs ')' before its end"),
        ("a " + "ARRAY<" * 5_000, "it is nested more than 64 deep"),
    ],
)
def test_fields_that_spark_would_refuse_are_refused_with_the_options_name(ddl: str, reason: str) -> None:
    for name in ("key", "value"):
        wanted = projection(columns=name, **{f"{name}Decode": "json", f"{name}Schema": ddl})
        with pytest.raises(ConfigError) as refusal:
            read_ddl(wanted)
        assert f"option {name}Schema={ddl!r}: {reason}" in str(refusal.value)
        assert str(refusal.value).endswith(
            "write fields such as 'id BIGINT, name STRING, tags ARRAY<STRING>'"
        )


@pytest.mark.parametrize(
    "ddl",
    [
        "`first-name` STRING NOT NULL COMMENT 'it''s, <b>', b: decimal(10, 2), c DEC, d NUMERIC(3)",
        "a array<struct<b: map<string, array<int>>, c: struct<d: varchar(3)>>>, `x``y` TIMESTAMP_NTZ",
        "a INT -- the first\n, /* , */ b STRING COLLATE UTF8_BINARY, e STRUCT<>",
        " Struct < a: INT > ",
    ],
)
def test_what_spark_understands_is_left_to_it(ddl: str) -> None:
    schema = read_ddl(projection(columns="value", valueDecode="json", valueSchema=ddl))
    text = ddl.replace("-- the first\n", "").replace("/* , */", "")
    wanted = (f"`value` STRUCT<{text}>", f"`value` {text}")
    assert "".join(schema.split()) in ["".join(ddl.split()) for ddl in wanted]


def test_text_is_a_string() -> None:
    assert read_ddl(projection(columns="key,value", keyDecode="utf8")) == "`key` STRING, `value` BINARY"


EVERY_TYPE: list[DataType] = [
    BinaryType(), BooleanType(), ByteType(), ShortType(), IntegerType(), LongType(), FloatType(), DoubleType(),
    DecimalType(12, 3), StringType(), TimestampType(), ArrayType(LongType(), False), ArrayType(StringType()),
    StructType([StructField("x", ArrayType(StructType([StructField("y", TimestampType(), False)])))]),
]  # fmt: skip


@pytest.mark.parametrize("kind", EVERY_TYPE, ids=lambda kind: kind.simpleString())
def test_arrow_types_are_the_ones_that_spark_compares_with(kind: DataType) -> None:
    schema = StructType([StructField("c", kind), StructField("d", kind, False)])
    assert arrow_schema(schema) == to_arrow_schema(schema, timezone="UTC")


def value_of(kind: DataType) -> StructType:
    return StructType([StructField("value", kind)])


def test_a_schema_of_the_users_own_is_refused() -> None:
    with pytest.raises(ConfigError, match="has its own schema"):
        check_read_schema(value_of(StringType()), projection())
    with pytest.raises(ConfigError, match=r"column value cannot be string with valueDecode=binary"):
        check_read_schema(value_of(StringType()), projection(columns="value"))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (DateType(), r"value\.c: JSON decoding does not support date"),
        (BinaryType(), r"value\.c: JSON decoding does not support binary"),
        (MapType(StringType(), LongType()), r"value\.c: JSON decoding does not support map<string,bigint>"),
        (
            ArrayType(StructType([StructField("d", DateType())])),
            r"value\.c\[\]\.d: JSON decoding does not support date",
        ),
        (StructType([StructField("n", LongType(), False)]), r"value\.c\.n is declared NOT NULL"),
    ],
)
def test_a_type_that_json_cannot_become_is_refused_by_its_path(kind: DataType, message: str) -> None:
    json = projection(columns="value", valueDecode="json", valueSchema="c X")
    with pytest.raises(ConfigError, match=message):
        check_read_schema(value_of(StructType([StructField("c", kind)])), json)


def test_every_type_that_json_can_become_has_an_arrow_type() -> None:
    json = projection(columns="value", valueDecode="json", valueSchema="c X")
    for kind in EVERY_TYPE[1:-1]:
        schema = value_of(StructType([StructField("c", kind)]))
        check_read_schema(schema, json)
        assert isinstance(arrow_schema(schema), pa.Schema)
