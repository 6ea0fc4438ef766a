"""Rows that a streams program hands to the sink packed: what their instructions mean, their bounds, their text as an option."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StructType

from odradek.model.errors import ConfigError
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import write_options
from odradek.spark.sink import StreamSink
from odradek.spark.writing import packed_rows
from odradek.spark.writing.packed_rows import ROWS, PackedRows

PACKED: Final = pa.schema(
    {
        "left": pa.struct([("value", pa.string())]),
        "number": pa.int64(),
        "flag": pa.bool_(),
    }
)
WRITTEN: Final = StructType().add("value", "binary")


def rows_of(
    instructions: Sequence[Sequence[Any]],
    output: int,
    kind: pa.DataType | None = None,
    *,
    keep: int | None = None,
) -> PackedRows:
    return PackedRows(
        packed=PACKED,
        computed=pa.schema({"value": kind or pa.string()}),
        written=WRITTEN.jsonValue(),
        instructions=instructions,
        keep=keep,
        outputs={"value": output},
    )


def batch(*rows: Mapping[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=PACKED)


def packed(*batches: pa.RecordBatch) -> pa.RecordBatch:
    """Returns one row, as an operator with state hands it on."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, PACKED) as stream:
        for rows in batches:
            stream.write_batch(rows)
    return pa.RecordBatch.from_pydict({ROWS: pa.array([sink.getvalue().to_pybytes()], pa.binary())})


def values(rows: PackedRows, *batches: pa.RecordBatch) -> list[Any]:
    return [value for computed in rows.rows(batches) for value in computed["value"].to_pylist()]


def test_a_field_is_null_where_its_struct_is_and_so_is_what_is_joined_with_it() -> None:
    joined: list[list[Any]] = [
        ["column", 0],
        ["field", 0, 0],
        ["constant", "-", "string"],
        ["concat", 1, 2, 1],
    ]
    rows = packed(batch({"left": {"value": "a"}}, {"left": None}, {"left": {"value": None}}))
    assert values(rows_of(joined, 3), rows) == ["a-a", None, None]


def test_a_condition_that_is_null_is_no() -> None:
    chosen: list[list[Any]] = [
        ["column", 2],
        ["constant", "yes", "string"],
        ["constant", "no", "string"],
        ["if", 0, 1, 2],
    ]
    rows = packed(batch({"flag": True}, {"flag": None}, {"flag": False}))
    assert values(rows_of(chosen, 3), rows) == ["yes", "no", "no"]


@pytest.mark.parametrize(
    ("name", "expected"), [("and", [None, False, None, False]), ("or", [None, None, True, True])]
)
def test_what_is_unknown_is_decided_by_the_other_side_alone(name: str, expected: list[bool | None]) -> None:
    is_seven = [
        ["column", 1],
        ["constant", 7, "long"],
        ["compare", "equal", 0, 1],
        ["column", 2],
        [name, 2, 3],
    ]
    rows = packed(
        batch(
            {"number": None, "flag": None},
            {"number": None, "flag": False},
            {"number": None, "flag": True},
            {"number": 7, "flag": False},
        )
    )
    assert values(rows_of(is_seven, 4, pa.bool_()), rows) == expected


def test_rows_stay_only_where_the_condition_holds() -> None:
    instructions = [["column", 2], ["column", 1], ["cast", 1, "string"]]
    rows = packed(
        batch({"flag": True, "number": 1}, {"flag": None, "number": 2}, {"flag": False, "number": 3}),
        batch({"flag": True, "number": -(1 << 63)}),
    )
    assert values(rows_of(instructions, 2, keep=0), rows) == ["1", "-9223372036854775808"]


@pytest.mark.parametrize(("constant", "count"), [(True, 2), (False, 0), (None, 0)])
def test_a_condition_may_be_the_same_for_all_rows(constant: bool | None, count: int) -> None:
    rows = rows_of([["constant", constant, "boolean"], ["constant", "x", "string"]], 1, keep=0)
    assert values(rows, packed(batch({"number": 1}, {"number": 2}))) == ["x"] * count


def test_a_time_that_no_timestamp_holds_is_an_error() -> None:
    rows = rows_of([["column", 1], ["timestamp", 0]], 1, pa.timestamp("us", tz="UTC"))
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        values(rows, packed(batch({"number": 1 << 62})))


def test_headers_that_are_null_are_none() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    header, other = {"key": "a", "value": b"\xff"}, {"key": "b", "value": None}
    lists = [[header, other], None, [], [other], None]
    rows = PackedRows(
        packed=pa.schema({"headers": kind}),
        computed=pa.schema({"value": kind}),
        written=WRITTEN.jsonValue(),
        instructions=[["column", 0], ["no_headers"], ["coalesce", 0, 1], ["coalesce", 1, 0]],
        keep=None,
        outputs={"value": 2},
    )
    for start in range(len(lists) + 1):  # slices of an array keep the offsets of the whole
        batch_rows = pa.RecordBatch.from_pydict({"headers": pa.array(lists, kind)}).slice(start)
        assert rows.computed_of(batch_rows)["value"].to_pylist() == [
            headers or [] for headers in lists[start:]
        ]
    assert replace(rows, outputs={"value": 3}).computed_of(batch_rows.slice(0, 0))["value"].to_pylist() == []


def test_a_condition_may_leave_no_row_whose_headers_are_the_same() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = rows_of([["column", 2], ["no_headers"]], 1, kind, keep=0)
    batches = packed(batch({"flag": False}, {"flag": None})), packed(batch({"flag": True}))
    assert values(rows, *batches) == [[]]


def test_no_rows_are_no_batch() -> None:
    rows = rows_of([["constant", "x", "string"]], 0)
    assert list(rows.rows([packed(), packed(batch()), packed().slice(0, 0)])) == []


def test_large_rows_are_computed_a_few_at_a_time_and_small_ones_many() -> None:
    value = [["column", 0], ["field", 0, 0]]
    large = [{"left": {"value": f"{number}" + "x" * (1 << 20)}} for number in range(20)]
    pieces = list(rows_of(value, 1).rows([packed(batch(*large))]))
    assert max(piece.num_rows for piece in pieces) < 10
    assert [text[:2].rstrip("x") for piece in pieces for text in piece["value"].to_pylist()] == [
        str(number) for number in range(20)
    ]
    small = batch(*({"left": {"value": str(number)}} for number in range(packed_rows.ROWS_MAX + 1)))
    assert [piece.num_rows for piece in rows_of(value, 1).rows([packed(small)])] == [packed_rows.ROWS_MAX, 1]


def test_the_text_holds_all_that_there_is() -> None:
    rows = rows_of(
        [["column", 2], ["constant", "é\ud83d\ude00", "string"], ["constant", None, "long"]], 1, keep=0
    )
    assert PackedRows.of(rows.to_text()).to_text() == rows.to_text()
    assert PackedRows.of(rows.to_text()).packed == PACKED


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"packed": "!", "computed": ""}', json.dumps({"packed": "AAAA"})]
)
def test_a_text_of_another_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="packedRows is of ours alone"):
        PackedRows.of(text)


def test_a_comparison_is_none_but_those_that_there_are() -> None:
    rows = rows_of([["column", 1], ["compare", "call_function", 0, 0]], 1, pa.bool_())
    with pytest.raises(ConfigError, match="packedRows is of ours alone"):
        values(rows, packed(batch({"number": 1})))


def test_a_sink_checks_the_columns_that_are_written_and_not_the_packed_one() -> None:
    wrong = PackedRows(
        packed=PACKED,
        computed=pa.schema({"value": pa.int64()}),
        written=StructType().add("value", LongType()).jsonValue(),
        instructions=[["column", 1]],
        keep=None,
        outputs={"value": 0},
    )
    options = write_options(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "topic": "t",
            "checkpointLocation": "c",
            "packedRows": wrong.to_text(),
        },
        Use.STREAM_WRITE,
    )
    with pytest.raises(ConfigError, match="column value must be STRING or BINARY, not BIGINT"):
        StreamSink(options, StructType().add(ROWS, BinaryType()))
