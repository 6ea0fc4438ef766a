"""One broker and one Spark session for all tests here; every test has topics of its own.

Without PySpark or Java the tests are skipped, and say what is absent.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.odradek_node import OdradekNode
from tests.spark.programs.planners import PYTHONS, session_with_planners

from odradek.client import Admin, Consumer, NewTopic, Producer
from odradek.model.ids import TopicPartition
from odradek.spark.engine import session as sessions
from odradek.spark.engine.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from odradek.archive.store.location import ArchiveLocation

QUERY_TIMEOUT_S = 90
Rows = list[dict[str, Any]]


def _absence() -> str | None:
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is absent"
    problem = find_java().problem
    return None if problem is None else f"a usable Java is absent: {problem}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}{os.sep}"
    mine = [collected for collected in items if str(collected.path).startswith(here)]
    absence = _absence() if mine else None
    for test in mine:
        test.add_marker(pytest.mark.spark)
        if absence is not None:
            test.add_marker(pytest.mark.skip(reason=absence))


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker process; its address. Or the address in ODRADEK_SPARK_SERVERS, to see that any Kafka will do."""
    elsewhere = os.environ.get("ODRADEK_SPARK_SERVERS")
    if elsewhere:
        yield elsewhere
        return
    with OdradekNode(directory=tmp_path_factory.mktemp("broker")) as node:
        yield node.bootstrap


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as the SQL server's engine has it: `odradek.spark.engine` starts its JVM, and planners share a process.

    Programs of `tests/spark/programs`, `tests/faults/sink` and `tests/interop/languages` are those of users who make their own.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.log.level": "OFF",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.session.timeZone": "Asia/Tokyo",  # far from UTC: instants must not care
        "spark.task.maxFailures": "1",
        **sessions.WITHOUT_ORIGINS,
    }
    for name in PYTHONS:  # of programs that tests start
        os.environ[name] = sys.executable
    with session_with_planners(
        lambda: sessions.new_session("odradek-tests", settings, master="local[2]")
    ) as session:
        yield session


@pytest.fixture(autouse=True)
def _session_is_active(request: pytest.FixtureRequest) -> None:
    """Spark looks for the data sources of Python in the active session: other tests make sessions of their own."""
    if "spark" in request.fixturenames:
        session = request.getfixturevalue("spark")
        sessions = session._jvm.org.apache.spark.sql.classic.SparkSession
        sessions.setActiveSession(session._jsparkSession)


@dataclass
class Topic:
    """A topic of one test."""

    name: str
    servers: str

    def send(self, *values: bytes | None, partition: int = 0, **more: Any) -> None:
        """Send and wait for acknowledgement."""
        with Producer(self.servers) as producer:
            for value in values:
                producer.send(self.name, value, partition=partition, **more)

    def send_numbers(self, start: int, end: int, *, partition: int = 0) -> None:
        """The values `start` to `end - 1` as text, each at a timestamp of that many milliseconds."""
        with Producer(self.servers) as producer:
            for number in range(start, end):
                producer.send(self.name, b"%d" % number, partition=partition, timestamp_ms=number)

    def cut(self, offset: int, *, partition: int = 0) -> None:
        """Delete the records below `offset`."""
        with Admin(self.servers) as admin:
            admin.delete_records({TopicPartition(self.name, partition): offset})

    def grow(self, partitions: int) -> None:
        with Admin(self.servers) as admin:
            admin.create_partitions({self.name: partitions})


@pytest.fixture
def new_topic(servers: str, request: pytest.FixtureRequest) -> Callable[..., Topic]:
    """Make topics named after the test. Records stay, however old their timestamps are."""
    made: list[Topic] = []

    def make(partitions: int = 1, **configs: str) -> Topic:
        name = re.sub(r"[^a-zA-Z0-9_.]+", "-", request.node.name)[:180]
        topic = Topic(f"{name}-{len(made)}", servers)
        with Admin(servers) as admin:
            admin.create_topics([NewTopic(topic.name, partitions, configs={"retention.ms": "-1", **configs})])
        made.append(topic)
        return topic

    return make


@pytest.fixture
def topic(new_topic: Callable[..., Topic]) -> Topic:
    return new_topic()


@pytest.fixture
def read(spark: SparkSession, servers: str) -> Callable[..., DataFrame]:
    """A batch read: `read(topic, includeHeaders="true")`."""

    def batch(topic: Topic | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("odradek").option("kafka.bootstrap.servers", servers)
        if topic is not None:
            reader = reader.option("subscribe", topic.name)
        return reader.options(**options).load()

    return batch


@pytest.fixture
def read_stream(spark: SparkSession, servers: str) -> Callable[..., DataFrame]:
    """A streaming read from the beginning, unless the options say otherwise."""

    def stream(topic: Topic | None = None, **options: str) -> DataFrame:
        reader = spark.readStream.format("odradek").option("kafka.bootstrap.servers", servers)
        if topic is not None:
            reader = reader.option("subscribe", topic.name)
        return reader.options(**{"startingOffsets": "earliest", **options}).load()

    return stream


@pytest.fixture
def collect_stream(tmp_path: Path) -> Callable[..., list[str]]:
    """Run a stream over what is there now, on a checkpoint of its own test; the values, in order of arrival."""

    def run(frame: DataFrame, *, checkpoint: str = "checkpoint", fail: bool = False) -> list[str]:
        arrived: list[str] = []

        def take(batch: DataFrame, _: int) -> None:
            if fail:
                raise RuntimeError("the sink failed on purpose")
            arrived.extend(bytes(row.value).decode() for row in batch.select("value").collect())

        query = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        finish(query)
        return arrived

    return run


def finish(query: StreamingQuery) -> None:
    """Wait for a query that ends by itself; raises what it died of."""
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the query did not end"
    finally:
        query.stop()


@pytest.fixture
def run_to_end() -> Callable[[StreamingQuery], None]:
    return finish


@pytest.fixture
def consume(servers: str) -> Callable[..., Rows]:
    """All records of a topic through the client, in the order of partitions and offsets; or those that are committed."""

    def everything(topic: Topic, *, committed: bool = False) -> Rows:
        with Admin(servers) as admin:
            partitions = admin.describe_topics([topic.name])[topic.name].topic_partitions
            ends = {
                partition_data: offsets.offset
                for partition_data, offsets in admin.list_offsets(
                    dict.fromkeys(partitions, -1), isolation=int(committed)
                ).items()
            }
        rows: Rows = []
        isolation = "read_committed" if committed else "read_uncommitted"
        with Consumer(servers, isolation_level=isolation) as consumer:
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            while any(consumer.position(partition) < ends[partition] for partition in partitions):
                rows += [
                    {
                        "partition": record.partition,
                        "offset": record.offset,
                        "key": record.key,
                        "value": record.value,
                        "headers": record.headers,
                        "timestamp_ms": record.timestamp_ms,
                    }
                    for record in consumer.poll(1.0)
                ]
        return sorted(rows, key=lambda row: (row["partition"], row["offset"]))

    return everything


@pytest.fixture
def location(tmp_path: Path) -> ArchiveLocation:
    """The place of an archive."""
    from odradek.archive.store.location import archive_location

    return archive_location(str(tmp_path / "archive"))


@pytest.fixture
def run(spark: SparkSession, servers: str, location: ArchiveLocation) -> Callable[..., list[str]]:
    """`odradek archive run --once`, in the session of the tests; the lines that it prints."""
    from odradek.archive.row_columns import RowColumns
    from odradek.archive.run import RunTerms, run_archive

    def once(topic: Topic, columns: RowColumns | None = None, **more: Any) -> list[str]:
        lines: list[str] = []
        terms = RunTerms(
            bootstrap=servers,
            location=location,
            topics=(topic.name,),
            columns=columns or RowColumns(),
            once=True,
            writers=2,
            **more,
        )
        run_archive(terms, lines.append, lambda: False)
        return lines

    return once
