"""What threads of one process do to one sink, they do one after the other."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructType

from odradek.client.transactions.prepared import TransactionIdentity
from odradek.model.errors import ConfigError
from odradek.spark.clients import connections
from odradek.spark.exactly_once.driver import BatchTerms, DriverMemory, memory_of
from odradek.spark.exactly_once.task import BatchName
from odradek.spark.exactly_once.write import PreparedTask
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import write_options
from odradek.spark.sink import StreamSink

SERVERS = "127.0.0.1:9092"
SCHEMA = StructType().add("value", BinaryType())


def sink_of(sink_id: str) -> StreamSink:
    options = {
        "kafka.bootstrap.servers": SERVERS,
        "topic": "t",
        "delivery": "exactly_once",
        "sinkId": sink_id,
    }
    return StreamSink(write_options(options, Use.STREAM_WRITE), SCHEMA)


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether a sink's lock is held, and that of another, when its driver asks for a client. It gets none."""
    seen: list[bool] = []

    def refuse(_: Any) -> Any:
        seen.extend(memory.lock.locked() for memory in memories())
        raise ConfigError("no client for this test")

    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "1")
    monkeypatch.setattr(connections, "administering", refuse)
    return seen


def memories() -> list[DriverMemory]:
    return [memory_of(SERVERS, "threads"), memory_of(SERVERS, "threads-of-another")]


def test_a_batch_begins_while_no_other_thread_begins_or_decides_one(locked: list[bool]) -> None:
    with pytest.raises(ConfigError, match="no client"):
        pickle.dumps(sink_of("threads"))
    assert locked == [True, False]
    assert not any(memory.lock.locked() for memory in memories())


def test_a_batch_is_decided_while_no_other_thread_begins_or_decides_one(locked: list[bool]) -> None:
    terms = BatchTerms(
        driver=TransactionIdentity(transactional_id="d", producer_id=1, producer_epoch=1),
        side=0,
        decided=None,
        begun_at=0.0,
    )
    task = PreparedTask(
        record_count=0,
        name=BatchName(query="q", batch=0),
        terms=terms,
        participant=None,
        is_skipped=False,
        was_tried_before=False,
    )
    with pytest.raises(ConfigError, match="no client"):
        sink_of("threads").commit([task], 0)
    assert locked == [True, False]
    assert not any(memory.lock.locked() for memory in memories())
