"""The tables of ARCHITECTURE.md that lead through a pipeline: Spark's driver, planners and tasks make these calls, in order."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")
pytest.importorskip("deltalake", reason="deltalake is absent")

from tests.scenarios.walks import Step, first_not_reached, walk_of
from tests.spark.sql.test_sql_engine import EARLIEST, serving, wait_for
from tests.spark.streams.until_now import TIMEOUT_S, run, send

from odradek.archive.history.read_through import OdradekWithArchive
from odradek.archive.run import RunTerms, start_archiving
from odradek.archive.source import ArchiveDataSource
from odradek.archive.store.location import ArchiveLocation
from odradek.streams import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRACING: Final = Path(__file__).parent / "tracing"


def _tracing() -> Any:
    """The module that Python imports in Spark's workers, for this process."""
    spec = importlib.util.spec_from_file_location("call_file", TRACING / "sitecustomize.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _forget_cached() -> None:
    """Clears what functions of Odradek remember: earlier tests of this process must not spare a walk its calls."""
    for name, module in list(sys.modules.items()):
        if name.startswith("odradek."):
            for value in list(vars(module).values()):
                if hasattr(type(value), "cache_clear"):  # to ask a lazy module itself would import it
                    value.cache_clear()


class Trace:
    """The calls of this process and of Spark's workers, which each write them to a file of one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextmanager
    def recording(self) -> Iterator[None]:
        calls = _tracing().CallFile(self.directory)
        _forget_cached()
        calls.begin()
        try:
            yield
        finally:
            calls.end()

    def calls(self, since_ns: int = 0) -> list[Step]:
        """The calls of all processes, in the order in which they began, from a time of the monotonic clock on."""
        lines = [line.split() for file in self.directory.iterdir() for line in file.read_text().splitlines()]
        timed = sorted((int(time_ns), Step(file, function)) for time_ns, file, function in lines)
        return [step for time_ns, step in timed if time_ns >= since_ns]


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    directory = tmp_path / "calls"
    directory.mkdir()
    return Trace(directory)


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A session whose formats are registered: Spark runs those in workers with the variables that the context has now."""
    variables = spark.sparkContext.environment
    before = dict(variables)
    variables.update(ODRADEK_WALK=str(tmp_path / "calls"), PYTHONPATH=str(TRACING))
    traced = spark.newSession()
    for source in (OdradekWithArchive, ArchiveDataSource):
        traced.dataSource.register(source)
    yield traced
    variables.clear()
    variables.update(before)


def end_of(query: Any) -> None:
    """It may be slow: each call of a function is recorded."""
    try:
        assert query.awaitTermination(TIMEOUT_S), "the query did not end"
    finally:
        query.stop()


def send_to_both(topic: Any, value: bytes) -> None:
    """Sends a record to each of two partitions, so that tasks read them: one task's small batch comes with its plan."""
    for partition in range(2):
        topic.send(value, partition=partition)


def test_a_record_passes_through_a_grouped_stream_as_described(
    trace: Trace, session: SparkSession, servers: str, new_topic: Callable[..., Any], tmp_path: Path
) -> None:
    orders, totals = new_topic(2), new_topic()
    send_to_both(orders, b'{"item": "tea", "amount": 2}')
    with trace.recording():
        app = Streams("walk", servers=servers, spark=session)
        stream = app.stream(orders.name, key="STRING", value="item STRING, amount DOUBLE")
        stream.group_by("item").agg("sum(amount) AS total").to(totals.name)
        run(app, tmp_path / "checkpoint")
    assert first_not_reached(walk_of("A grouped stream"), trace.calls()) is None


def test_a_batch_takes_the_way_that_is_described_through_the_exactly_once_sink(
    trace: Trace, session: SparkSession, new_topic: Callable[..., Any], tmp_path: Path
) -> None:
    source, target = new_topic(2), new_topic()
    send_to_both(source, b"1")
    records = (
        session.readStream.format("odradek")
        .option("kafka.bootstrap.servers", source.servers)
        .option("subscribe", source.name)
        .option("startingOffsets", "earliest")
        .load()
    )
    write = (
        records.select("value")
        .writeStream.format("odradek")
        .option("kafka.bootstrap.servers", target.servers)
        .option("topic", target.name)
        .option("delivery", "exactly_once")
        .option("sinkId", target.name)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    with trace.recording():
        end_of(write.trigger(availableNow=True).start())
    assert first_not_reached(walk_of("A batch of the exactly-once sink"), trace.calls()) is None


def test_a_batch_of_the_archive_takes_the_way_that_is_described(
    trace: Trace,
    session: SparkSession,
    new_topic: Callable[..., Any],
    location: ArchiveLocation,
    tmp_path: Path,
) -> None:
    topic = new_topic(2)
    send_to_both(topic, b"1")
    terms = RunTerms(bootstrap=topic.servers, location=location, topics=(topic.name,), once=True, writers=1)
    with trace.recording():
        end_of(start_archiving(session, terms, str(tmp_path / "checkpoint")))
    assert first_not_reached(walk_of("A batch of the archive"), trace.calls()) is None


def test_create_table_as_select_takes_the_way_that_is_described(
    trace: Trace, servers: str, new_topic: Callable[..., Any], consume: Callable[..., Any], tmp_path: Path
) -> None:
    orders, totals = new_topic(), new_topic()
    send(servers, orders, ("a", '{"AMOUNT": 2}', 10))
    traced = {"ODRADEK_WALK": str(trace.directory), "PYTHONPATH": str(TRACING)}
    with serving(servers, "walk", tmp_path / "server", more_environment=traced) as (client, _):
        client.execute(
            f"CREATE STREAM orders (customer VARCHAR KEY, amount INT) WITH (kafka_topic='{orders.name}', value_format='JSON');"
        )
        began_ns = time.monotonic_ns()
        client.execute(
            f"CREATE TABLE totals WITH (kafka_topic='{totals.name}') AS"
            " SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer;",
            properties=EARLIEST,
        )
        wait_for(lambda: consume(totals, committed=True), bool)
    assert first_not_reached(walk_of("CREATE TABLE AS SELECT"), trace.calls(began_ns)) is None
