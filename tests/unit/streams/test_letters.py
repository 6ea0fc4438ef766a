"""What Python hears of records that fail, and what it makes of it."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from odradek.streams.processors.failures import unpacked_records
from odradek.streams.translation.letters import _logger, _packer

BYTES = bytes(range(256))


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def failure_json(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]] | None
) -> str:
    """As Spark writes it."""
    pairs = None if headers is None else [{"key": name, "value": text(data)} for name, data in headers]
    origin: dict[str, Any] = {"topic": "orders", "partition": 2, "offset": 1, "timestamp": 10}
    origin |= {"key": text(key), "value": text(value), "headers": pairs}
    return json.dumps({"origin": origin, "exception": "ValueError", "message": "no number"})


@pytest.mark.parametrize("key", [None, b"", BYTES])
@pytest.mark.parametrize("headers", [None, [], [("trace", BYTES), ("empty", b""), ("none", None)]])
def test_a_letter_has_the_bytes_of_its_record(
    key: bytes | None, headers: list[tuple[str, bytes | None]] | None
) -> None:
    letters = _packer("decoding")(pa.array([None, failure_json(key, BYTES, headers), None], pa.string()))
    assert letters.type == pa.binary()
    assert [letter.is_valid for letter in letters] == [False, True, False]
    (record,) = unpacked_records(letters[1].as_py())
    assert (record["key"], record["value"]) == (key, BYTES)
    kept = [(header["key"], header["value"]) for header in record["headers"]]
    assert kept[: len(headers or ())] == (headers or [])
    assert b"ValueError" in [value for _, value in kept]
    assert b"no number" in [value for _, value in kept]


def test_where_no_topic_takes_letters_the_log_says_what_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "odradek.streams"):
        left_out = _logger("decoding")(pa.array([None, failure_json(b"a", None, None), None], pa.string()))
    assert left_out.to_pylist() == [False, True, False]
    assert [record.getMessage() for record in caplog.records] == [
        "left out: decoding failed at orders-2 offset 1: no number"
    ]


def test_of_good_records_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    nothing = pa.nulls(3, pa.string())
    assert _packer("decoding")(nothing).to_pylist() == [None] * 3
    assert _logger("decoding")(nothing).to_pylist() == [False] * 3
    assert not caplog.records
