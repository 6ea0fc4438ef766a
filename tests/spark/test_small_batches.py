"""Code is generated for a micro-batch of many records, and for no small one; both write the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from odradek.spark.engine.session import java_session
from odradek.spark.engine.small_batches import RECORDS_MAX, SETTINGS, interpret_small_batches


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
    rows = (
        session.readStream.format("odradek")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic.name)
        .option("startingOffsets", "earliest")
        .load()
        .select(sf.decode("value", "utf-8").cast("bigint").alias("n"))
    )
    batches: list[tuple[int, tuple[str | None, ...]]] = []
    sums: list[int] = []

    def look(batch: DataFrame, _: int) -> None:
        (total,) = batch.select(sf.count("*").alias("n"), sf.sum(sf.col("n") + 1).alias("sum")).collect()
        batches.append((total.n, tuple(batch.sparkSession.conf.get(name, None) for name in SETTINGS)))
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
    generated, interpreted = ("true", "FALLBACK"), ("false", "NO_CODEGEN")
    assert {settings for _, settings in batches} == {generated, interpreted}
    for count, settings in batches:
        assert settings == (generated if count > RECORDS_MAX else interpreted), count
    assert all(session.conf.get(name, None) is None for name in SETTINGS)  # it is the query's own session


def test_a_session_that_says_whether_code_is_generated_keeps_it(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set(SETTINGS[0], "true")
    interpret_small_batches(other)
    plain = spark.newSession()
    interpret_small_batches(plain)
    assert (_rule_count(other), _rule_count(plain)) == (0, 1)


def _rule_count(session: SparkSession) -> int:
    count: int = java_session(session).experimental().extraOptimizations().size()
    return count
