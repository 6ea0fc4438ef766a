"""What jobs broadcast stays in the JVM, and Spark's own broadcasts serve where something else is broadcast."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from odradek.spark.engine import java_classes
from odradek.spark.engine.local_broadcasts import broadcast_manager, share_values
from odradek.spark.engine.session import jvm_of


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of all tests, whose own broadcasts come back at the end."""
    manager = broadcast_manager(spark)
    field = manager.getClass().getDeclaredField("broadcastFactory")
    field.setAccessible(True)
    before = field.get(manager)
    share_values(spark)
    yield spark
    field.set(manager, before)


def _count(spark: SparkSession) -> int:
    count: int = jvm_of(spark).org.apache.spark.broadcast.LocalBroadcasts.count()
    return count


def test_the_code_of_stages_needs_no_blocks(session: SparkSession) -> None:
    before = _count(session)
    rows = session.range(1000).repartition(3).groupBy((sf.col("id") % 7).alias("n")).count()
    assert sorted(row["count"] for row in rows.collect()) == [142] * 1 + [143] * 6
    assert _count(session) - before >= 2  # a stage before each shuffle, and the last one


def test_rows_of_a_join_and_values_of_python_are_broadcast_by_spark(session: SparkSession) -> None:
    small = session.range(3).withColumnRenamed("id", "n")
    joined = session.range(10).join(sf.broadcast(small), sf.expr("id % 5 = n"))
    assert joined.count() == 6
    shared = session.sparkContext.broadcast(b"x" * 100)
    assert session.sparkContext.parallelize([1, 2], 2).map(lambda n: n * len(shared.value)).collect() == [
        100,
        200,
    ]
    shared.destroy()


def test_a_value_that_was_destroyed_is_no_longer_there(session: SparkSession) -> None:
    jvm = jvm_of(session)
    context = jvm.org.apache.spark.SparkContext.getOrCreate()
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    value = context.broadcast(bytearray(b"abc"), tag)
    serializer = jvm.org.apache.spark.serializer.JavaSerializer(context.conf()).newInstance()
    loader = value.getClass().getClassLoader()
    written = serializer.serialize(value, tag)
    assert bytes(serializer.deserialize(written.duplicate(), loader, tag).value()) == b"abc"
    value.destroy()
    with pytest.raises(Exception, match="is not of this process, or was destroyed"):
        serializer.deserialize(written.duplicate(), loader, tag)


def test_where_java_refuses_sparks_own_broadcasts_serve(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(jvm: Any, source: java_classes.JavaSource, cache: Path | None) -> None:
        raise OSError("no space")

    monkeypatch.setattr(java_classes, "define", refuse)
    with caplog.at_level(logging.INFO):
        share_values(spark)
    assert 'local_broadcasts_not_used reason="no space"' in caplog.messages
    assert spark.range(5).count() == 5


def test_a_factory_that_is_not_known_stays(session: SparkSession) -> None:
    """A session that was shared before keeps what it has; so does a manager whose factory is of another class."""
    manager = broadcast_manager(session)
    field = manager.getClass().getDeclaredField("broadcastFactory")
    field.setAccessible(True)
    ours = field.get(manager)
    share_values(session)
    assert field.get(manager).equals(ours)
    field.set(manager, None)
    try:
        assert not jvm_of(session).org.apache.spark.broadcast.LocalBroadcasts.serve(manager)
    finally:
        field.set(manager, ours)
