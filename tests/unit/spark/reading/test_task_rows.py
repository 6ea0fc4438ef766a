"""Rows that a source packs for tasks: their text as an option, and how large records are divided."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from odradek.model.errors import ConfigError
from odradek.spark.reading import task_rows
from odradek.spark.reading.task_rows import TaskRows

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
RECORDS = pa.schema(
    {
        "key": pa.string(),
        "value": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "headers": HEADERS,
        "timestampMs": pa.int64(),
    }
)
ROWS = pa.schema(
    {
        "__task": pa.int32(),
        "__port": pa.int32(),
        "__key": pa.struct([pa.field("key", pa.string())]),
        "__payload0": pa.struct([pa.field("value", pa.string())]),
        "__payload1": pa.struct([pa.field("other", pa.int64())]),
        "__timestamp": pa.int64(),
        "__headers": HEADERS,
        "__order": pa.list_(pa.int64()),
    }
)


def packing(**changes: object) -> TaskRows:
    terms: dict[str, object] = {"tasks": (7, 9), "source": 3, "port": 0, "key": "key", "value": "value"}
    return TaskRows(records=RECORDS, rows=ROWS, **(terms | changes))  # type: ignore[arg-type]


def records(*rows: tuple[str | None, str | None, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": key,
                "value": value,
                "partition": 5,
                "offset": 10 + number,
                "headers": [],
                "timestampMs": when,
            }
            for number, (key, value, when) in enumerate(rows)
        ],
        schema=RECORDS,
    )


def test_the_text_holds_all_that_there_is() -> None:
    packed = packing(arguments=(("a", "value"), ("b", None)), steps=(1, -2), hops=1, needs_key=True)
    assert TaskRows.of(packed.to_text()) == packed


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"records": "!", "rows": ""}', json.dumps({"records": "AAAA"})]
)
def test_a_text_of_another_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="taskRows is of ours alone"):
        TaskRows.of(text)


def test_rows_have_the_order_of_their_records_and_what_is_not_of_this_port_is_null() -> None:
    rows = packing(steps=(4,), hops=2).rows_of(records(("a", "x", 100), (None, None, 1 << 62))).to_pylist()
    assert [row["__order"] for row in rows] == [
        [100, 3, 5, 10, 2, 4],
        [((1 << 63) - 1) // 1_000, 3, 5, 11, 2, 4],
    ]
    assert [row["__key"] for row in rows] == [{"key": "a"}, None]
    assert [row["__payload0"] for row in rows] == [{"value": "x"}, None]
    assert [row["__payload1"] for row in rows] == [None, None]
    assert {row["__task"] for row in rows} <= {7, 9}


def test_records_without_key_or_value_or_time_are_left_out_where_the_operator_does_not_want_them() -> None:
    batch = records(("a", "x", 1), (None, "x", 1), ("b", None, 1), ("c", "x", -1))
    for changes, wanted in (
        ({}, ["a", None, "b", "c"]),
        ({"needs_key": True}, ["a", "b", "c"]),
        ({"needs_value": True}, ["a", None, "c"]),
        ({"skips_negative_times": True}, ["a", None, "b"]),
        ({"needs_key": True, "needs_value": True, "skips_negative_times": True}, ["a"]),
    ):
        tables = [
            pa.ipc.open_stream(data.as_buffer()).read_all()
            for data in _datas(packing(tasks=(7,), **changes), batch)
        ]
        keys = [row["__key"] for table in tables for row in table.to_pylist()]
        assert [key and key["key"] for key in keys] == wanted


def test_a_row_is_packed_for_each_task_and_some_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_rows, "ROW_BYTES_MAX", 1_000)
    batches = [records(*((f"key{number}", "x" * 50, 1) for number in range(20))) for _ in range(3)]
    packed = list(packing().packed(batches))
    assert [batch["__task"].to_pylist() for batch in packed] == [[7, 9]] * 3
    tables = [
        (task, pa.ipc.open_stream(data.as_buffer()).read_all())
        for batch in packed
        for task, data in zip(batch["__task"].to_pylist(), batch["__rows"], strict=True)
    ]
    assert sum(table.num_rows for _, table in tables) == 60
    assert all(set(table["__task"].to_pylist()) == {task} for task, table in tables)
    assert list(packing().packed([records()])) == []


def _datas(rows: TaskRows, batch: pa.RecordBatch) -> list[pa.Scalar]:
    return [data for packed in rows.packed([batch]) for data in packed["__rows"]]
