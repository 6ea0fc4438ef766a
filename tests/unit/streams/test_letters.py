"""Records of a plan that failed, on their way to the sink: what is written of them, and what the log says."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from odradek.dead_letters.headers import PREFIX, RecordFailure
from odradek.spark.dead_letters.letters import NO_BATCH, MicroBatch
from odradek.spark.dead_letters.passing import LOGGED, failure_json, passing_rows
from odradek.streams.translation.letters import _logged

BYTES = bytes(range(256))
HEADERS: list[tuple[str, bytes | None]] = [("trace", BYTES), ("empty", b""), ("none", None)]


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def as_spark_writes_it(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]] | None
) -> bytes:
    pairs = None if headers is None else [{"key": name, "value": text(data)} for name, data in headers]
    origin: dict[str, Any] = {"topic": "orders", "partition": 2, "offset": 1, "timestamp": 10}
    origin |= {"key": text(key), "value": text(value), "headers": pairs}
    failure = {"origin": origin, "exception": "ValueError", "message": "no number", "stage": "decoding"}
    return json.dumps(failure).encode()


def passed(*rows: tuple[str, bytes], place: MicroBatch = NO_BATCH) -> list[tuple[str, list[dict[str, Any]]]]:
    given = ((topic, pa.py_buffer(records)) for topic, records in rows)
    return [(topic, batch.to_pylist()) for topic, batch in passing_rows(given, place)]


@pytest.mark.parametrize("key", [None, b"", BYTES])
@pytest.mark.parametrize("headers", [None, [], HEADERS])
def test_a_letter_has_the_bytes_of_its_record(
    key: bytes | None, headers: list[tuple[str, bytes | None]] | None
) -> None:
    ((topic, (record,)),) = passed(
        ("dead", as_spark_writes_it(key, BYTES, headers)), place=MicroBatch(query="q", batch=7)
    )
    assert (topic, record["key"], record["value"]) == ("dead", key, BYTES)
    kept = [(header["key"], header["value"]) for header in record["headers"]]
    own = len(headers or ())
    assert kept[:own] == (headers or [])
    assert {name.removeprefix(PREFIX): value for name, value in kept[own:]} == {
        "topic": b"orders",
        "partition": b"2",
        "offset": b"1",
        "timestamp": b"10",
        "query": b"q",
        "batch": b"7",
        "exception": b"ValueError",
        "message": b"no number",
        "stage": b"decoding",
    }


def test_what_python_says_of_a_failure_is_read_as_what_spark_says() -> None:
    origin = {"topic": "orders", "partition": 2, "offset": 1, "timestamp": 10, "key": b"a", "value": BYTES}
    origin["headers"] = [{"key": name, "value": data} for name, data in HEADERS]
    failure = RecordFailure(exception="ValueError", message="no number", stage="decoding")
    in_python = failure_json(origin, failure)
    assert passed(("dead", in_python)) == passed(("dead", as_spark_writes_it(b"a", BYTES, HEADERS)))


def test_letters_of_a_topic_come_together_and_in_their_order() -> None:
    records = pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"v"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as stream:
        stream.write_batch(records)
    given = [
        ("dead", as_spark_writes_it(b"1", None, None)),
        ("changelog", sink.getvalue().to_pybytes()),
        ("dead", as_spark_writes_it(b"2", None, None)),
        ("graves", as_spark_writes_it(b"3", None, None)),
    ]
    keys = [(topic, [row["key"] for row in rows]) for topic, rows in passed(*given)]
    assert keys == [("changelog", [b"k"]), ("dead", [b"1", b"2"]), ("graves", [b"3"])]


def test_where_no_topic_takes_letters_the_log_says_what_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        assert passed((LOGGED, as_spark_writes_it(b"a", None, None))) == []
    assert [record.getMessage() for record in caplog.records] == [
        "left out: decoding failed at orders-2 offset 1: no number"
    ]


def test_without_a_sink_the_log_says_it_and_records_go_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        is_record = _logged(pa.array([None, as_spark_writes_it(b"a", None, None), None], pa.binary()))
    assert is_record.to_pylist() == [True, False, True]
    assert [record.getMessage() for record in caplog.records] == [
        "left out: decoding failed at orders-2 offset 1: no number"
    ]
