"""What Spark calls of an exactly-once sink, batch after batch, in one process and without Spark."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Mapping

import pytest
from tests.kit.waiting import eventually

pytest.importorskip("pyspark", reason="PySpark is absent")

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.interop.sink.plain_sink import PlainSink

from odradek import Admin, Producer
from odradek.spark.clients import connections
from odradek.spark.exactly_once import write
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import write_options
from odradek.spark.sink import StreamSink

SECONDS = 30.0
SCHEMA = StructType([StructField("value", BinaryType())])


@pytest.fixture
def sink(bootstrap: str, topic: Callable[..., str]) -> Iterator[PlainSink]:
    with Admin(bootstrap) as admin:
        yield PlainSink(admin, bootstrap, f"written-{time.time_ns()}", topic())
    connections.producer_pool.close()


def new_writer(sink: PlainSink) -> StreamSink:
    given = {
        "kafka.bootstrap.servers": sink.servers,
        "topic": sink.topic,
        "delivery": "exactly_once",
        "sinkId": sink.sink_id,
    }
    return StreamSink(write_options(given, Use.STREAM_WRITE), SCHEMA)


def test_batches_are_there_once_and_are_noted_as_carried_out(
    sink: PlainSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        place = write.TaskAttempt(attempt=0, query="q", batch=number)
        monkeypatch.setattr(write, "current_task", lambda place=place: place)
        for _ in range(2):  # the second time all is passed over, as after a crash
            pickled = pickle.dumps(new_writer(sink))
            messages = [
                pickle.loads(pickled).write(iter([pa.record_batch({"value": [b"%d.%d" % (number, task)]})]))
                for task in range(2)
            ]
            new_writer(sink).commit(pickle.loads(pickle.dumps(messages)), number)
    assert sorted(sink.committed()) == sorted(b"%d.%d" % (b, t) for b in range(4) for t in range(2))
    eventually(lambda: getattr(sink.decided(), "is_ended", False))


def test_one_producer_of_a_process_writes_to_all_sinks(
    bootstrap: str, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connections.producer_pool.close()
    made: list[Producer] = []
    make = Producer.from_config

    def counted(config: Mapping[str, object]) -> Producer:
        made.append(make(config))
        return made[-1]

    monkeypatch.setattr(Producer, "from_config", counted)
    with Admin(bootstrap) as admin:
        sinks = [
            PlainSink(admin, bootstrap, f"shared-{time.time_ns()}-{number}", topic()) for number in range(3)
        ]
        for number in range(4):
            for sink in sinks:
                place = write.TaskAttempt(attempt=0, query=sink.sink_id, batch=number)
                monkeypatch.setattr(write, "current_task", lambda place=place: place)
                pickled = pickle.dumps(new_writer(sink))
                rows = [pa.record_batch({"value": [f"{sink.sink_id} {number}".encode()]})]
                new_writer(sink).commit([pickle.loads(pickled).write(iter(rows))], number)
        for sink in sinks:
            assert sink.committed() == [f"{sink.sink_id} {number}".encode() for number in range(4)]
    connections.producer_pool.close()
    assert len(made) == 1
