"""Records that are left out: entries of the processing log, as ksqlDB has them, and never too many of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from odradek.dead_letters.processing_log import ENTRIES_MAX, ProcessingLog
from odradek.model.errors import ErrorCode, KafkaError
from odradek.spark.clients import connections
from odradek.spark.dead_letters.left_out import LeftOutRecords
from odradek.spark.dead_letters.letters import MicroBatch
from odradek.spark.dead_letters.passing import LOGGED, passing_rows
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import write_options

LOG = ProcessingLog(topic="the-log", logger="processing.CSAS_X_1", includes_rows=True)
MICRO_BATCH = MicroBatch(query="q", batch=1)


def failure(message: str = "the value: no JSON", topic: str = "t", offset: int = 7) -> dict[str, Any]:
    origin = {
        "topic": topic,
        "partition": 2,
        "offset": offset,
        "timestamp": 5,
        "key": base64.b64encode(b"k").decode(),
        "value": base64.b64encode(b"{oops").decode(),
        "headers": [],
    }
    return {"origin": origin, "exception": "ValueError", "message": message, "stage": "stream-1"}


class Sent:
    """A producer that keeps what is sent with it, or refuses it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.rows: list[tuple[str, dict[str, Any]]] = []
        self.config: Mapping[str, str] = {}
        self._error = error

    def send_arrow(self, topic: str, rows: pa.RecordBatch) -> None:
        if self._error is not None:
            raise self._error
        self.rows += [(topic, json.loads(value)) for value in rows["value"].to_pylist()]

    @contextmanager
    def lend(self, config: Mapping[str, str]) -> Iterator[Sent]:
        self.config = config
        yield self


def left_out(
    monkeypatch: pytest.MonkeyPatch, sent: Sent, failures: list[dict[str, Any]], log: ProcessingLog | None
) -> None:
    monkeypatch.setattr(connections, "sending", sent.lend)
    records = LeftOutRecords(log, {"bootstrap.servers": "b:1"})
    rows = [(LOGGED, pa.py_buffer(json.dumps(each_failure).encode())) for each_failure in failures]
    assert list(passing_rows(rows, MICRO_BATCH, records)) == []
    records.close()


def test_an_entry_says_where_the_record_is_and_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent()
    left_out(monkeypatch, sent, [failure(), failure("the key: x"), failure("division by zero")], LOG)
    (topic, value), (_, key), (_, processing) = sent.rows
    assert topic == "the-log"
    assert sent.config["bootstrap.servers"] == "b:1"
    assert (value["level"], value["logger"]) == ("ERROR", "processing.CSAS_X_1.deserializer")
    assert value["message"]["type"] == 0
    assert value["message"]["deserializationError"] == {
        "target": "value",
        "errorMessage": "Error deserializing message from topic: t",
        "recordB64": base64.b64encode(b"{oops").decode(),
        "cause": ["the value: no JSON"],
        "topic": "t",
        "partition": 2,
        "offset": 7,
    }
    assert key["message"]["deserializationError"]["target"] == "key"
    assert key["message"]["deserializationError"]["recordB64"] == base64.b64encode(b"k").decode()
    assert processing["message"]["type"] == 1
    assert processing["message"]["deserializationError"] is None
    assert processing["message"]["recordProcessingError"]["cause"] == ["division by zero"]
    assert processing["logger"] == "processing.CSAS_X_1.stream-1"


def test_rows_are_in_the_log_only_where_that_is_set() -> None:
    entry = ProcessingLog(topic="l", logger="x").entry(failure(), 3)
    assert entry is not None
    assert json.loads(entry)["message"]["deserializationError"]["recordB64"] is None
    assert b"b29wcw" not in entry
    assert json.loads(entry)["time"] == 3


def test_a_million_bad_rows_are_a_hundred_entries_and_one_that_counts_the_rest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sent = Sent()
    left_out(monkeypatch, sent, [failure(offset=place) for place in range(ENTRIES_MAX + 41)], LOG)
    assert len(sent.rows) == ENTRIES_MAX + 1
    last = sent.rows[-1][1]["message"]["recordProcessingError"]["errorMessage"]
    assert last == "41 more records were left out, without entries of their own"
    assert len(caplog.records) == ENTRIES_MAX + 1
    assert caplog.messages[-1] == "left out: 41 more records of this batch"


def test_bad_records_of_the_log_itself_do_not_feed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent()
    left_out(monkeypatch, sent, [failure(topic="the-log")] * 3, LOG)
    assert sent.rows == []


@pytest.mark.parametrize("log", [LOG, None])
def test_what_is_wrong_with_the_log_stops_no_query(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, log: ProcessingLog | None
) -> None:
    sent = Sent(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed to write"))
    left_out(monkeypatch, sent, [failure()], log)
    assert "left out: stream-1 failed at t-2 offset 7: the value: no JSON" in caplog.messages
    assert any("not allowed to write" in line for line in caplog.messages) is (log is not None)


def test_the_sink_reads_the_log_from_its_option() -> None:
    options = {"kafka.bootstrap.servers": "b:1", "topic": "t", "leftOutLog": LOG.text}
    assert write_options(options, Use.STREAM_WRITE).left_out_log == LOG
