"""Code is generated for a micro-batch of many records, and for no small one; both write the same."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from odradek.client import Producer
from odradek.spark.engine.session import java_session
from odradek.spark.engine.small_batches import RECORDS_MAX, SETTINGS, interpret_small_batches
from odradek.streams import Streams

_GENERATED: Final = ("true", "FALLBACK")
_INTERPRETED: Final = ("false", "NO_CODEGEN")
_STATIC: Final[dict[str, tuple[tuple[str, str], Callable[[SparkSession], DataFrame]]]] = {
    "few numbers": (_INTERPRETED, lambda spark: spark.range(RECORDS_MAX - 1).toDF("n")),
    "many numbers": (_GENERATED, lambda spark: spark.range(RECORDS_MAX).toDF("n")),
    "few values": (_INTERPRETED, lambda spark: spark.sql("values 0L, 1L as data(n)")),
    "few rows of Arrow": (_INTERPRETED, lambda spark: spark.createDataFrame(pa.table({"n": [0, 1]}))),
    "one row": (_INTERPRETED, lambda spark: spark.sql("select bigint(spark_partition_id()) as n")),
    "rows that Spark does not count": (_GENERATED, lambda spark: spark.createDataFrame([(0,)], "n bigint")),
}


def _settings(rows: DataFrame) -> tuple[str | None, ...]:
    return tuple(rows.sparkSession.conf.get(name, None) for name in SETTINGS)


def _is_generated(rows: DataFrame) -> bool:
    """Tells whether the plan of a query has generated stages: they have a star and a number."""
    plan = io.StringIO()
    with redirect_stdout(plan):
        rows.explain()
    return "*(" in plan.getvalue()


def numbers_of(session: SparkSession, servers: str, topic: Any) -> DataFrame:
    return (
        session.readStream.format("odradek")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic.name)
        .option("startingOffsets", "earliest")
        .load()
        .select(sf.decode("value", "utf-8").cast("bigint").alias("n"))
    )


@pytest.fixture
def numbers(session: SparkSession, servers: str, new_topic: Callable[..., Any]) -> tuple[Any, DataFrame]:
    """A topic, and its stream of numbers."""
    topic = new_topic(1)
    return topic, numbers_of(session, servers, topic)


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session beside that of all tests, with the rule."""
    other = spark.newSession()
    interpret_small_batches(other)
    yield other
    for query in other.streams.active:
        query.stop()


def test_code_is_generated_for_many_records_alone(
    session: SparkSession, servers: str, new_topic: Callable[..., Any], tmp_path: Any
) -> None:
    topic = new_topic(2)
    rows = numbers_of(session, servers, topic)
    batches: list[tuple[int, tuple[str | None, ...]]] = []
    sums: list[int] = []

    def look(batch: DataFrame, _: int) -> None:
        (total,) = batch.select(sf.count("*").alias("n"), sf.sum(sf.col("n") + 1).alias("sum")).collect()
        batches.append((total.n, _settings(batch)))
        sums.append(total.sum)

    query = rows.writeStream.foreachBatch(look).option("checkpointLocation", str(tmp_path / "at")).start()
    at = 0
    for count in (RECORDS_MAX + 1, 1, RECORDS_MAX, RECORDS_MAX + 7, 2):
        first = count // 2
        topic.send_numbers(at, at + first, partition=0)
        topic.send_numbers(at + first, at + count, partition=1)
        query.processAllAvailable()
        at += count
    assert sum(count for count, _ in batches) == at
    assert sum(sums) == at * (at + 1) // 2
    assert {settings for _, settings in batches} == {_GENERATED, _INTERPRETED}
    for count, settings in batches:
        assert settings == (_GENERATED if count > RECORDS_MAX else _INTERPRETED), count
    assert all(session.conf.get(name, None) is None for name in SETTINGS)  # it is the query's own session


def test_a_session_that_says_whether_code_is_generated_keeps_it(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set(SETTINGS[0], "true")
    interpret_small_batches(other)
    plain = spark.newSession()
    interpret_small_batches(plain)
    assert (_rule_count(other), _rule_count(plain)) == (0, 2)


def _rule_count(session: SparkSession) -> int:
    count: int = java_session(session).experimental().extraOptimizations().size()
    return count


@pytest.mark.parametrize("source", ["rate", "rate-micro-batch"])
def test_a_source_whose_offsets_do_not_count_records_has_generated_code(
    source: str, session: SparkSession, tmp_path: Any
) -> None:
    """The offsets of the one are numbers, those of the other objects of numbers: neither has partitions of topics."""
    count = {"rate": "rowsPerSecond", "rate-micro-batch": "rowsPerBatch"}[source]
    batches: list[tuple[str | None, ...]] = []
    both = threading.Event()

    def look(batch: DataFrame, _: int) -> None:
        batches.append(_settings(batch))
        if len(batches) > 1:
            both.set()

    rows = session.readStream.format(source).option(count, 1000).load()
    query = rows.writeStream.foreachBatch(look).option("checkpointLocation", str(tmp_path / "at")).start()
    assert both.wait(90), query.exception()
    query.stop()
    assert set(batches) == {_GENERATED}


@pytest.mark.parametrize("kind", _STATIC)
def test_rows_that_do_not_stream_count_too(
    kind: str, session: SparkSession, numbers: tuple[Any, DataFrame], tmp_path: Any
) -> None:
    topic, rows = numbers
    topic.send_numbers(0, 1, partition=0)
    expected, table = _STATIC[kind]
    joined: list[tuple[int, tuple[str | None, ...]]] = []

    def look(batch: DataFrame, _: int) -> None:
        joined.append((batch.count(), _settings(batch)))

    pairs = rows.join(table(session), "n")
    query = pairs.writeStream.foreachBatch(look).option("checkpointLocation", str(tmp_path / "at")).start()
    query.processAllAvailable()
    assert joined == [(1, expected)]


def test_rows_of_a_subquery_count_too(
    session: SparkSession, numbers: tuple[Any, DataFrame], tmp_path: Any
) -> None:
    topic, rows = numbers
    topic.send_numbers(0, 1, partition=0)
    batches: list[tuple[str | None, ...]] = []
    least = rows.where(f"n >= (select min(id % 7) from range({RECORDS_MAX + 1}))")
    writer = least.writeStream.foreachBatch(lambda batch, _: batches.append(_settings(batch)))
    writer.option("checkpointLocation", str(tmp_path / "at")).start().processAllAvailable()
    assert batches == [_GENERATED]


def test_a_query_within_a_small_batch_is_counted_by_itself(
    session: SparkSession, numbers: tuple[Any, DataFrame], tmp_path: Any
) -> None:
    topic, rows = numbers
    plans: list[tuple[bool, bool, bool]] = []

    def look(batch: DataFrame, _: int) -> None:
        many = batch.sparkSession.range(RECORDS_MAX + 1).where("id % 7 = 3")
        own = batch.selectExpr("n + 1 as n").where("n > 0")
        before, within, after = _is_generated(own), _is_generated(many), _is_generated(own.where("n > 1"))
        plans.append((before, within, after))
        assert (many.count(), own.count()) == ((RECORDS_MAX - 3) // 7 + 1, 1)

    query = rows.writeStream.foreachBatch(look).option("checkpointLocation", str(tmp_path / "at")).start()
    for number in range(2):
        topic.send_numbers(number, number + 1, partition=0)
        query.processAllAvailable()
    assert plans == [(False, True, False)] * 2


def test_a_session_without_batches_keeps_its_settings(session: SparkSession) -> None:
    assert session.range(3).selectExpr("sum(id) as sum").first() == (3,)
    assert _settings(session.range(1)) == (None, None)


def _stage_count(query: Any) -> int:
    """Returns the number of stages of the query's last batch that read rows: each shuffle adds one."""
    plan = io.StringIO()
    with redirect_stdout(plan):
        query.explain()
    physical = plan.getvalue()
    assert "TransformWithState" in physical
    fed, _, _ = physical.partition(
        "LocalTableScan"
    )  # the state that an operator begins with is not read again
    return 1 + fed.count("Exchange ")


def test_a_small_batch_that_groups_runs_in_one_stage_and_its_state_serves_large_ones(
    session: SparkSession, servers: str, new_topic: Callable[..., Any], tmp_path: Any, consume: Any
) -> None:
    orders, totals = new_topic(3), new_topic(1)
    app = Streams("stages", servers=servers, spark=session, partitions=1)
    numbers = app.stream(orders.name, key="STRING", value="v BIGINT")
    numbers.group_by_key().agg("count(*) AS n").to(totals.name)
    sizes, stages, at = (3, RECORDS_MAX + 1, 2, RECORDS_MAX + 5, 1), [], 0
    started = app.start(checkpoint=str(tmp_path), interval="0 seconds")
    (query,) = started.queries.values()
    try:
        for size in sizes:
            with Producer(servers) as producer:
                for number in range(at, at + size):
                    producer.send(orders.name, b'{"v":1}', key=b"k", partition=number % 3)
            at += size
            query.processAllAvailable()
            stages.append(_stage_count(query))
    finally:
        started.stop()
    assert sorted(set(stages)) == [1, 2], stages
    counts = [json.loads(row["value"])["n"] for row in consume(totals)]
    assert counts == sorted(counts)
    assert counts[-1] == at
