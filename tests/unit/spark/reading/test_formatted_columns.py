"""Keys and values in formats of SQL: the source decodes them, and the sink encodes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options, write_options
from odradek.spark.reading.decode import to_columns
from odradek.spark.reading.schema import arrow_schema, can_be_planned, check_read_schema, read_ddl
from odradek.spark.writing.outgoing import PACKED, row_format
from odradek.spark.writing.outgoing_rows import outgoing_rows
from odradek.streams.translation.packing import packed
from odradek.values.formats import record_format
from odradek.values.formats.format_info import FormatInfo
from odradek.values.types import parse_type

HERE = TopicPartition("t", 0)
KEYS = record_format(FormatInfo(name="KAFKA"), [("K", "key_0", parse_type("INT"))], is_key=True)
VALUES = record_format(
    FormatInfo(name="JSON"),
    [("A", "value_0", parse_type("INT")), ("B", "value_1", parse_type("STRING"))],
    is_key=False,
)
KEY_TYPE = StructType().add("key_0", IntegerType())
VALUE_TYPE = StructType().add("value_0", IntegerType()).add("value_1", StringType())
READ = {
    "kafka.bootstrap.servers": "-",
    "subscribe": "t",
    "columns": "key,value",
    "keyFormat": KEYS.text or "",
    "valueFormat": VALUES.text or "",
}
READ_TYPE = (
    StructType()
    .add("key", StructType().add("value", KEY_TYPE).add("problem", StringType()))
    .add("value", StructType().add("value", VALUE_TYPE).add("problem", StringType()))
)


def read(*records: tuple[bytes | None, bytes | None]) -> list[Any]:
    keys, values = zip(*records, strict=True)
    columns = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    projection = read_options(READ, Use.STREAM_READ).projection
    return to_columns(columns, HERE, arrow_schema(READ_TYPE), projection).to_pylist()


def test_the_source_decodes_keys_and_values_or_says_what_is_wrong() -> None:
    rows = read(
        (b"\0\0\0\2", b'{"A":1,"b":"x"}'), (None, None), (b"\0", b'{"A":"y"}'), (b"\0\0\0\3", b"null")
    )
    assert [row["key"]["value"] for row in rows] == [{"key_0": 2}, None, None, {"key_0": 3}]
    assert [row["value"]["value"] for row in rows] == [{"value_0": 1, "value_1": "x"}, None, None, None]
    assert [row["key"]["problem"] for row in rows] == [
        *(None, None, "it is not KAFKA: Size of data received by INTEGER is not 4", None)
    ]
    assert [row["value"]["problem"] is None for row in rows] == [True, True, False, True]


def test_the_schema_of_a_read_has_what_the_formats_have() -> None:
    projection = read_options(READ, Use.STREAM_READ).projection
    assert read_ddl(projection) == (
        "`key` STRUCT<value: STRUCT<`key_0` INT>, problem: STRING>,"
        " `value` STRUCT<value: STRUCT<`value_0` INT, `value_1` STRING>, problem: STRING>"
    )
    check_read_schema(READ_TYPE, projection)
    assert can_be_planned(READ_TYPE)


def test_the_sink_encodes_keys_and_values_beside_rows_that_pass() -> None:
    options = {
        "kafka.bootstrap.servers": "-",
        "topic": "t",
        "keyFormat": KEYS.text or "",
        "valueFormat": VALUES.text or "",
    }
    checked = write_options(options, Use.STREAM_WRITE)
    layout = row_format(
        StructType()
        .add("key", KEY_TYPE)
        .add("value", VALUE_TYPE)
        .add("topic", StringType())
        .add(PACKED, BinaryType()),
        None,
        key_format=checked.key_format,
        value_format=checked.value_format,
    )
    columns = pa.schema({"key": pa.binary(), "value": pa.binary(), "partition": pa.int32()})
    passing = packed(pa.Table.from_pylist([{"key": b"k", "value": b"v", "partition": 3}], schema=columns))
    rows = pa.RecordBatch.from_pylist(
        [
            {"key": {"key_0": 2}, "value": {"value_0": 1, "value_1": "x"}, "topic": "a"},
            {"key": {"key_0": 9}, "value": {"value_0": 9, "value_1": "y"}, "topic": "b", PACKED: passing},
            {"key": None, "value": None, "topic": "a"},
        ],
        schema=pa.schema(
            {
                "key": pa.struct([("key_0", pa.int32())]),
                "value": pa.struct([("value_0", pa.int32()), ("value_1", pa.string())]),
                "topic": pa.string(),
                PACKED: pa.binary(),
            }
        ),
    )
    written = [
        (topic, row["key"], row["value"])
        for topic, records in outgoing_rows(rows, layout, marks=None, first_sequence=0)
        for row in records.to_pylist()
    ]
    assert written == [
        ("b", b"k", b"v"),
        ("a", b"\0\0\0\2", b'{"A":1,"B":"x"}'),
        ("a", None, None),
    ]


@pytest.mark.parametrize("option", ["keyFormat", "valueFormat"])
def test_a_text_of_no_format_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=f"option {option} is of ours alone, and is set by SQL"):
        read_options({**READ, option: "JSON"}, Use.READ)
    with pytest.raises(ConfigError, match=f"option {option} is of ours alone, and is set by SQL"):
        write_options({"kafka.bootstrap.servers": "-", "topic": "t", option: "{}"}, Use.STREAM_WRITE)


def test_a_column_with_a_format_is_a_struct() -> None:
    with pytest.raises(ConfigError, match="column value must be a struct with the option valueFormat"):
        row_format(StructType().add("value", BinaryType()), "t", value_format=VALUES.text)
