"""A row becomes a record, or says why it cannot."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from tests.unit.spark import one_by_one
from tests.unit.spark.one_by_one import OutgoingRecord

from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.spark.writing.duplicates import MARK_HEADERS
from odradek.spark.writing.outgoing import Marks, RowFormat, row_format
from odradek.spark.writing.outgoing_rows import BYTES_FOR_EACH_PARTITION, RowBatcher, outgoing_rows

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
MARKS = Marks(query="q", batch=7, partition=2)


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def everything() -> RowFormat:
    return row_format(
        schema(
            key=StringType(),
            value=BinaryType(),
            topic=StringType(),
            partition=IntegerType(),
            headers=HEADERS,
            timestamp=TimestampType(),
        ),
        None,
    )


def sent(columns: dict[str, pa.Array], layout: RowFormat, marks: Marks | None = None) -> list[OutgoingRecord]:
    return one_by_one.sent(pa.record_batch(columns), layout, marks)


def test_every_column_reaches_its_place() -> None:
    moment = dt.datetime(2013, 1, 1, 10, 0, 0, 123_456, tzinfo=dt.UTC)
    columns = {
        "key": pa.array(["k", None]),
        "value": pa.array([b"v", None], pa.binary()),
        "topic": pa.array(["a", "b"]),
        "partition": pa.array([3, None], pa.int32()),
        "headers": pa.array(
            [[{"key": "h", "value": None}, {"key": "h", "value": b"1"}], None], pa.list_(HEADER)
        ),
        "timestamp": pa.array([moment, None], pa.timestamp("us", tz="Europe/Prague")),
    }
    assert sent(columns, everything()) == [
        OutgoingRecord("a", 3, b"k", b"v", (("h", None), ("h", b"1")), 1_357_034_400_123),
        OutgoingRecord("b", None, None, None, (), None),
    ]


def test_large_arrow_types_are_taken_too() -> None:
    columns = {"key": pa.array(["k"], pa.large_string()), "value": pa.array([b"v"], pa.large_binary())}
    assert sent(columns, row_format(schema(key=StringType(), value=BinaryType()), "t")) == [
        OutgoingRecord("t", None, b"k", b"v", (), None)
    ]


def test_the_option_topic_wins_over_the_column() -> None:
    layout = row_format(schema(value=StringType(), topic=StringType()), "option")
    assert sent({"value": pa.array(["v"]), "topic": pa.array(["column"])}, layout)[0].topic == "option"


def test_marks_number_the_rows_of_a_task_and_come_after_the_users_headers() -> None:
    layout = row_format(schema(value=StringType()), "t")
    first, second = sent({"value": pa.array(["v", "w"])}, layout, MARKS)
    assert first.headers == (
        ("odradek.query", b"q"),
        ("odradek.batch", b"7"),
        ("odradek.partition", b"2"),
        ("odradek.sequence", b"40"),
    )
    assert second.headers[3] == ("odradek.sequence", b"41")


@given(
    st.lists(
        st.none()
        | st.lists(
            st.fixed_dictionaries(
                {
                    "key": st.sampled_from([*MARK_HEADERS, "", "h", "odradek.queries"]),
                    "value": st.none() | st.binary(max_size=3),
                }
            ),
            max_size=5,
        ),
        min_size=2,
        max_size=8,
    )
)
def test_marks_replace_those_of_an_earlier_write_and_leave_all_other_headers(
    headers: list[list[dict[str, Any]] | None],
) -> None:
    columns = {"value": pa.array(["v"] * len(headers)), "headers": pa.array(headers, pa.list_(HEADER))}
    layout = row_format(schema(value=StringType(), headers=HEADERS), "t")
    rows = pa.record_batch(columns)
    for part in (rows, rows.slice(1), rows.slice(0, 1)):
        one_by_one.sent(part, layout, MARKS)


def test_a_row_of_packed_records_has_a_number_and_no_marks() -> None:
    layout = row_format(schema(value=StringType(), topic=StringType(), __records=BinaryType()), None)
    packed = pa.BufferOutputStream()
    records = pa.RecordBatch.from_pydict({"value": [b"1"]})
    with pa.ipc.new_stream(packed, records.schema) as writer:
        writer.write_batch(records)
    columns = {
        "value": pa.array(["x", "y", "z"]),
        "topic": pa.array(["t", "changelog", "t"]),
        "__records": pa.array([None, packed.getvalue().to_pybytes(), None], pa.binary()),
    }
    changelog, rows = outgoing_rows(pa.record_batch(columns), layout, marks=MARKS, first_sequence=40)
    assert changelog[1].schema.names == ["value"]
    assert [record.headers for record in one_by_one.as_records(*rows)] == [
        MARKS.headers(40),
        MARKS.headers(42),
    ]


def test_a_row_of_packed_records_stands_for_them_and_for_nothing_else() -> None:
    layout = row_format(schema(value=StringType(), topic=StringType(), __records=BinaryType()), None)
    records = pa.RecordBatch.from_pydict(
        {"key": [b"a", b"b"], "value": [b"1", None], "partition": pa.array([1, 1], pa.int32())}
    )
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, records.schema) as writer:
        writer.write_batch(records)
    columns = {
        "value": pa.array(["x", "y", "z"]),
        "topic": pa.array(["t", "changelog", "t"]),
        "__records": pa.array([None, stream.getvalue().to_pybytes(), None], pa.binary()),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    made = [
        (topic, rows.to_pylist())
        for topic, rows in outgoing_rows(batch, layout, marks=None, first_sequence=0)
    ]
    assert made == [("changelog", records.to_pylist()), ("t", [{"value": b"x"}, {"value": b"z"}])]


def test_a_copied_topics_offsets_are_left_behind() -> None:
    layout = row_format(schema(value=BinaryType(), offset=LongType(), timestampType=IntegerType()), "t")
    assert layout.columns == {"value"}


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ({"key": StringType()}, "t", "needs a column value; there are key"),
        ({}, "t", "needs a column value; there are none"),
        ({"value": StringType()}, None, "needs the option topic, or a column topic"),
        ({"value": StringType(), "hour": LongType()}, "t", "it would lose hour"),
        ({"value": StructType()}, "t", "column value must be STRING or BINARY, not STRUCT"),
        ({"value": StringType(), "key": LongType()}, "t", "column key must be STRING or BINARY, not BIGINT"),
        ({"value": StringType(), "partition": LongType()}, "t", "column partition must be INT"),
        ({"value": StringType(), "topic": BinaryType()}, None, "column topic must be STRING"),
        ({"value": StringType(), "timestamp": LongType()}, "t", "column timestamp must be TIMESTAMP"),
        (
            {"value": StringType(), "headers": ArrayType(StringType())},
            "t",
            "column headers must be ARRAY<STRUCT",
        ),
    ],
)
def test_a_dataframe_that_cannot_be_written_is_refused_by_its_column(
    columns: dict[str, DataType], topic: str | None, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        row_format(schema(**columns), topic)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"topic": pa.array([None], pa.string())}, "its topic is null"),
        ({"partition": pa.array([-1], pa.int32())}, "its partition is -1"),
        (
            {"headers": pa.array([[{"key": None, "value": b""}]], pa.list_(HEADER))},
            "one of its headers has no key",
        ),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_written_is_refused_by_its_number(
    column: dict[str, pa.Array], message: str
) -> None:
    columns = {
        "value": pa.array([b"v"]),
        "topic": pa.array(["t"]),
        "key": pa.array(["k"]),
        "partition": pa.array([0], pa.int32()),
        "headers": pa.array([None], pa.list_(HEADER)),
        "timestamp": pa.array([None], pa.timestamp("us", tz="UTC")),
    }
    with pytest.raises(KafkaError, match="row 40 of this task cannot be written"):
        list(outgoing_rows(pa.record_batch(columns | column), everything(), marks=None, first_sequence=40))
    with pytest.raises(KafkaError, match=f"row 40 of this task cannot be written: {message}") as caught:
        sent(columns | column, everything())
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"topic": pa.array(["t", ""])}, "its topic is null"),
        ({"partition": pa.array([None, -1], pa.int32())}, "its partition is negative"),
        ({"headers": pa.array([[{"key": "a", "value": b""}], [None]], pa.list_(HEADER))}, "has no key"),
    ],
)
def test_the_refused_row_is_named_wherever_it_stands(column: dict[str, pa.Array], message: str) -> None:
    columns = {
        "value": pa.array([b"v", b"w"]),
        "topic": pa.array(["t", "t"]),
        "key": pa.array(["k", None]),
        "partition": pa.array([0, 1], pa.int32()),
        "headers": pa.array([None, None], pa.list_(HEADER)),
        "timestamp": pa.array([None, None], pa.timestamp("us", tz="UTC")),
    }
    with pytest.raises(KafkaError, match=f"row 41 of this task cannot be written: .*{message}"):
        list(outgoing_rows(pa.record_batch(columns | column), everything(), marks=None, first_sequence=40))


def test_times_before_1970_are_rounded_down_as_all_others() -> None:
    layout = row_format(schema(value=StringType(), timestamp=TimestampType()), "t")
    times = pa.array([-1, -1_000, 1_999], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    records = sent({"value": pa.array(["a", "b", "c"]), "timestamp": times}, layout)
    assert [record.timestamp_ms for record in records] == [-1, -1, 1]


def test_rows_are_gathered_until_each_partition_gets_enough_and_keep_their_order() -> None:
    sent: list[tuple[str, list[bytes]]] = []
    gathering = RowBatcher(
        lambda topic, rows: sent.append((topic, rows["value"].to_pylist())), {"a": 1, "b": 3}.get
    )
    half = BYTES_FOR_EACH_PARTITION // 2

    def add(topic: str, *values: bytes) -> None:
        gathering.add(topic, pa.record_batch({"value": pa.array(values, pa.binary())}))

    add("a", b"0" * BYTES_FOR_EACH_PARTITION)
    assert [topic for topic, _ in sent] == ["a"]
    add("a", b"1" * half)
    add("b", b"2" * half)
    add("a", b"3" * half, b"4")
    assert [(topic, [value[:1] for value in values]) for topic, values in sent[1:]] == [
        ("a", [b"1", b"3", b"4"])
    ]
    gathering.send_all()
    assert [(topic, [value[:1] for value in values]) for topic, values in sent[2:]] == [("b", [b"2"])]
