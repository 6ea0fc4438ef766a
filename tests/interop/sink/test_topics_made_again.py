"""A query reads a topic that is deleted and made again: its sink commits no offset of one topic for the other."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.interop.sink.plain_sink import PlainSink

from odradek import Admin, NewTopic, TopicPartition
from odradek.client.groups.values import OffsetAndMetadata
from odradek.model.errors import ConfigError
from odradek.spark.clients import connections
from odradek.spark.exactly_once import write
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import write_options
from odradek.spark.options.sink_ids import group_of
from odradek.spark.sink import StreamSink

SCHEMA = StructType([StructField("value", BinaryType())])


class Query:
    """A query from `source` to a sink, whose batches are run by hand. Its checkpoint holds what a batch has read."""

    def __init__(self, sink: PlainSink, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sink = sink
        self._admin = sink.admin
        self._checkpoint = checkpoint
        self._monkeypatch = monkeypatch
        self.source = f"{sink.sink_id}-source"
        self.place = TopicPartition(self.source, 0)
        self.group = f"{sink.sink_id}-group"
        (checkpoint / "offsets").mkdir()
        self.create()

    def create(self) -> None:
        self._admin.create_topics([NewTopic(self.source)])

    def delete(self) -> None:
        self._admin.delete_topics([self.source])

    def make_again(self) -> None:
        self.delete()
        self.create()

    def topic_id(self) -> UUID:
        return self._admin.describe_topics([self.source])[self.source].topic_id

    def read(self, batch: int, end: int, topic_id: UUID, *, start: int = 0) -> None:
        """Spark notes what a batch reads before it runs."""
        document = {
            self.source: {"0": end},
            "@ids": {self.source: str(topic_id)},
            "@from": {self.source: {"0": start}},
        }
        (self._checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(document)}")

    def run(
        self, batch: int, between: Callable[[], None] = lambda: None, *, query: str = "q", **options: str
    ) -> None:
        """`between` happens after the task and before the commit."""
        place = write.TaskAttempt(attempt=0, query=query, batch=batch)
        self._monkeypatch.setattr(write, "current_task", lambda: place)
        written = pickle.loads(pickle.dumps(self._writer(options))).write(
            iter([pa.record_batch({"value": [b"%d" % batch]})])
        )
        between()
        self._writer(options).commit([pickle.loads(pickle.dumps(written))], batch)

    def committed(self) -> list[int | None]:
        """What the group that the user named has, and the sink's own."""
        committed: list[int | None] = []
        for group in (self.group, group_of(self.sink.sink_id)):
            offsets = self._admin.list_group_offsets(group, [self.place], require_stable=True)
            offset = offsets[self.place]
            committed.append(None if offset is None else offset.offset)
        return committed

    def _writer(self, options: dict[str, str]) -> StreamSink:
        given = {
            "kafka.bootstrap.servers": self.sink.servers,
            "topic": self.sink.topic,
            "delivery": "exactly_once",
            "sinkId": self.sink.sink_id,
            "checkpointLocation": str(self._checkpoint),
            "publishOffsets": self.group,
            **options,
        }
        return StreamSink(write_options(given, Use.STREAM_WRITE), SCHEMA)


@pytest.fixture
def query(
    bootstrap: str, topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Query]:
    with Admin(bootstrap) as admin:
        sink = PlainSink(admin, bootstrap, f"again-{time.time_ns()}", topic())
        yield Query(sink, tmp_path, monkeypatch)
    connections.producer_pool.close()


@pytest.mark.parametrize("when", ["between batches", "before the commit"])
@pytest.mark.parametrize("how", ["delete", "make_again"])
def test_offsets_of_a_topic_that_is_gone_are_not_committed(query: Query, how: str, when: str) -> None:
    first = query.topic_id()
    query.read(0, 10, first)
    query.run(0)
    assert query.committed() == [10, 10]
    query.read(1, 12, first, start=10)
    happen = getattr(query, how)
    if when == "between batches":
        happen()
    query.run(1, happen if when == "before the commit" else lambda: None)
    assert query.committed() == [None, None]
    if how == "delete":
        query.create()
    query.read(2, 4, query.topic_id())
    query.run(2)
    assert query.committed() == [4, 4]


def test_a_query_that_resumes_goes_by_what_was_committed_for_the_topic_that_it_reads(query: Query) -> None:
    first = query.topic_id()
    query.read(0, 10, first)
    query.run(0)
    query.make_again()
    second = query.topic_id()
    query.read(1, 4, second)
    query.run(1)
    query.read(0, 14, second, start=4)
    query.run(0, query="resumed", resume="true")
    assert query.committed() == [14, 14]


def test_a_batch_of_the_earlier_topic_is_not_taken_for_one_in_the_output(query: Query) -> None:
    """A checkpoint from a backup repeats batch 0, which has read a topic of which the decision says nothing."""
    first = query.topic_id()
    query.make_again()
    query.read(0, 1, query.topic_id())
    query.run(0)
    query.read(1, 20, query.topic_id(), start=1)
    query.run(1)
    query.read(0, 10, first)
    with pytest.raises(ConfigError, match=r"what it reads of .*-source-0, which the decision does not hold"):
        query.run(0)


def test_an_offset_in_a_transaction_that_carries_another_topics_id_is_left_out(
    query: Query, topic: Callable[..., str]
) -> None:
    """What a driver does at last, whatever it knew of the topics before."""
    admin, identity = query.sink.admin, query.sink.driver().begin().driver
    first, other = query.topic_id(), TopicPartition(topic(), 0)
    query.make_again()
    for topic_id, wanted in ((first, None), (query.topic_id(), 7)):
        offsets = {query.place: OffsetAndMetadata(7, topic_id=topic_id), other: OffsetAndMetadata(1)}
        admin.send_offsets_to_transaction(identity, query.group, offsets)
        admin.end_transactions([identity], committed=True)
        assert query.committed()[0] == wanted
        identity = query.sink.driver().begin().driver
