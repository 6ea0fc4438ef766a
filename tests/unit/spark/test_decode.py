"""Decoding never shifts a row: what is broken is null or an error, and its neighbours stay where they are."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.spark.options.option_table import Decoding, OnDecodeError
from odradek.spark.options.options import Projection
from odradek.spark.reading.decode import decode_json, decode_utf8, to_columns
from odradek.spark.rows.columns import DEAD_LETTER

HERE = TopicPartition("t", 3)
KIND = pa.struct([("a", pa.int64()), ("b", pa.string())])


def projection(
    columns: list[str], on_error: OnDecodeError = OnDecodeError.FAIL, **decoding: Decoding
) -> Projection:
    return Projection(
        columns=tuple(columns),
        key=decoding.get("key", Decoding.BINARY),
        value=decoding.get("value", Decoding.BINARY),
        key_schema=None,
        value_schema=None,
        on_error=on_error,
    )


def records(values: list[bytes | None]) -> pa.RecordBatch:
    count = len(values)
    return pa.record_batch(
        {
            "offset": pa.array(range(100, 100 + count), pa.int64()),
            "timestamp": pa.array([1_357_034_400_123] * count, pa.int64()),
            "timestamp_type": pa.array([1] * count, pa.int8()),
            "key": pa.array([None] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )


def decoded(values: list[bytes | None], on_error: OnDecodeError = OnDecodeError.NULL) -> list[object]:
    schema = pa.schema([("value", KIND)])
    batch = to_columns(records(values), HERE, schema, projection(["value"], on_error, value=Decoding.JSON))
    assert batch.schema == schema
    rows: list[object] = batch["value"].to_pylist()
    return rows


def test_columns_come_in_the_declared_order_with_the_declared_types() -> None:
    schema = pa.schema(
        [
            ("timestampType", pa.int32()),
            ("topic", pa.string()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("value", pa.binary()),
        ]
    )
    batch = to_columns(records([b"x", None]), HERE, schema, projection(schema.names))
    assert batch.schema == schema
    assert batch.to_pylist()[1] == {
        "timestampType": 1,
        "topic": "t",
        "timestamp": dt.datetime(2013, 1, 1, 10, 0, 0, 123_000, tzinfo=dt.UTC),
        "partition": 3,
        "offset": 101,
        "value": None,
    }


@pytest.mark.parametrize("on_error", list(OnDecodeError))
def test_times_that_a_timestamp_cannot_hold_are_the_nearest_ones_and_kept_in_milliseconds(
    on_error: OnDecodeError,
) -> None:
    last_ms = (2**63 - 1) // 1_000
    times_ms = [
        -(2**63),
        -last_ms - 1,
        -1,
        0,
        1_700_000_000_000_000,
        last_ms,
        last_ms + 1,
        1_700_000_000 * 10**9,
        2**63 - 1,
    ]
    letter = pa.struct([("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC"))])
    schema = pa.schema(
        [
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampMs", pa.int64()),
            ("value", pa.string()),
            (DEAD_LETTER, letter),
        ]
    )
    rows = records([b"x"] * len(times_ms)).set_column(1, "timestamp", pa.array(times_ms, pa.int64()))
    batch = to_columns(rows, HERE, schema, projection(schema.names, on_error, value=Decoding.UTF8))
    limited = [min(max(time_ms, -last_ms), last_ms) * 1_000 for time_ms in times_ms]
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == limited
    assert batch["timestampMs"].to_pylist() == times_ms


def test_a_dead_letter_of_a_strange_time_is_made() -> None:
    letter = pa.struct([("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC"))])
    schema = pa.schema([("value", pa.string()), (DEAD_LETTER, letter)])
    rows = records([b"\xff"]).set_column(1, "timestamp", pa.array([2**63 - 1], pa.int64()))
    rows = rows.append_column("headers", pa.nulls(1, pa.list_(pa.string())))
    batch = to_columns(
        rows, HERE, schema, projection(schema.names, OnDecodeError.DEAD_LETTER, value=Decoding.UTF8)
    )
    letter_time = pc.struct_field(batch[DEAD_LETTER], "timestamp").cast(pa.int64())
    assert letter_time.to_pylist() == [(2**63 - 1) // 1_000 * 1_000]


def test_an_empty_batch_keeps_its_schema() -> None:
    assert decoded([]) == []


def test_utf8_that_is_none_becomes_null_alone() -> None:
    assert decode_utf8(pa.array([b"ol\xc3\xa9", b"\xff", None], pa.binary())).to_pylist() == [
        "olé",
        None,
        None,
    ]


def test_json_fields_that_are_absent_are_null_and_unknown_ones_are_dropped() -> None:
    assert decoded([b'{"a": 1}', b'{"b": "x", "c": [1]}', b"{}", None, b" null "]) == [
        {"a": 1, "b": None},
        {"a": None, "b": "x"},
        {"a": None, "b": None},
        None,
        None,
    ]


BROKEN = [
    b"",
    b" ",
    b"{",
    b'{"a": 1',
    b'{"a": 1}}',
    b"{}{}",
    b"{},{}",
    b'{}} {"i":1,"v":{}',
    b"[1]",
    b"1",
    b'"text"',
    b'{"a": "1"}',
    b'{"a": 1.5}',
    b'{"a": 1, "a": 2}',
    b'{"b": "\xff"}',
    b'{"b": "open',
    b'{"a": 99999999999999999999}',
]


@pytest.mark.parametrize("bad", BROKEN)
def test_a_broken_value_is_null_and_its_neighbours_are_not_touched(bad: bytes) -> None:
    good = b'{"a": 7, "b": "x"}'
    seven = {"a": 7, "b": "x"}
    assert decoded([good, bad, None, bad, good]) == [seven, None, None, None, seven]


@pytest.mark.parametrize("bad", BROKEN)
def test_a_broken_value_is_an_error_that_says_where_when_asked_for(bad: bytes) -> None:
    with pytest.raises(
        KafkaError, match="the value at t-3 offset 101 is not JSON that fits valueSchema"
    ) as caught:
        decoded([b"{}", bad], OnDecodeError.FAIL)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert "decodeErrors=null" in str(caught.value)


def test_documents_may_span_lines() -> None:
    assert decoded([b'{\n "a":\n 1\n}', b"{}"]) == [{"a": 1, "b": None}, {"a": None, "b": None}]


def test_nested_types_are_decoded() -> None:
    kind = pa.struct(
        [
            ("when", pa.timestamp("us", tz="UTC")),
            ("many", pa.list_(pa.field("element", pa.struct([("x", pa.float64())])))),
            ("price", pa.decimal128(10, 2)),
            ("ok", pa.bool_()),
        ]
    )
    text = b'{"when": "2013-01-01T12:00:00+02:00", "many": [{"x": 1}, null], "price": 12.34, "ok": true}'
    array = decode_json(pa.array([text], pa.binary()), kind)
    assert array.type == kind
    row = array[0].as_py()
    assert row["when"] == dt.datetime(2013, 1, 1, 10, tzinfo=dt.UTC)
    assert row["many"] == [{"x": 1.0}, None]
    assert (str(row["price"]), row["ok"]) == ("12.34", True)


def test_a_value_larger_than_the_parsers_block_is_decoded() -> None:
    long = "y" * 3_000_000
    assert decoded([json.dumps({"b": long}).encode(), b"{}"])[0] == {"a": None, "b": long}


fitting = st.fixed_dictionaries({"a": st.integers(-(2**63), 2**63 - 1), "b": st.text(max_size=20)})
values = st.one_of(
    st.none(),
    fitting.map(lambda row: json.dumps(row).encode()),
    fitting.map(lambda row: json.dumps(row, indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    st.binary(max_size=12),
    st.text(alphabet='{}[]",:ia v01\n', max_size=12).map(str.encode),
    st.sampled_from(BROKEN),
)


def alone(value: bytes | None) -> object:
    return decoded([value])[0]


@settings(deadline=None, max_examples=150)
@given(st.lists(values, max_size=12))
def test_a_batch_decodes_as_its_values_do_one_by_one(batch: list[bytes | None]) -> None:
    assert decoded(batch) == [alone(value) for value in batch]


@settings(deadline=None, max_examples=100)
@given(fitting)
def test_what_python_wrote_is_what_is_read(row: dict[str, object]) -> None:
    if any("\ud800" <= letter <= "\udfff" for letter in str(row["b"])):
        return
    assert alone(json.dumps(row).encode()) == row


@pytest.mark.parametrize(
    "tail",
    [
        b',"z":5',
        b',"v":{"a":2}',
        b',"i":0',
        b',{"a":2}',
        b"],[",
        b'],[{"a":2}',
        b']],[[{"a":2}',
        b']]],"z":[[[{}',
        b' ] ]\n] , "z":[[[{}',
        b']]]}\n{"i":1,"v":[[[{"a":2}',
    ],
)
def test_nothing_may_follow_the_object(tail: bytes) -> None:
    values = [b'{"a":1}' + tail, b'{"a":7,"b":"x"}', b"null"]
    assert decode_json(pa.array(values, pa.binary()), KIND).to_pylist() == [None, {"a": 7, "b": "x"}, None]


def test_nothing_may_follow_null() -> None:
    values = [b'null,"z":{"a":1}', b' null , "z":1', b'{"a":null,"b":"x"}']
    assert decode_json(pa.array(values, pa.binary()), KIND).to_pylist() == [None, None, {"a": None, "b": "x"}]


def test_lists_in_lists_are_decoded() -> None:
    value = b'{"y":{},"z":[[[1]]],"b":"]]],","a":1}'
    assert decode_json(pa.array([value] * 3, pa.binary()), KIND).to_pylist() == [{"a": 1, "b": "]]],"}] * 3
