"""Checkpoints of programs: they stay as they began."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from tests.spark.streams.until_now import TIMEOUT_S, run, send

from odradek.spark.engine.session import session_with_state
from odradek.streams import Streams
from odradek.streams.restore.checkpoint_directory import CheckpointDirectory
from odradek.streams.translation.task_names import even_names


def test_spark_gives_each_task_a_partition_of_its_own(spark: SparkSession) -> None:
    for count in (1, 2, 3, 4, 7, 8, 32, 200):
        rows = spark.createDataFrame([(name,) for name in even_names(count)], "task INT")
        partitions = rows.select(sf.pmod(sf.hash("task"), sf.lit(count)).alias("partition")).collect()
        assert [row["partition"] for row in partitions] == list(range(count))


def counting(spark: SparkSession, servers: str, orders: Any, counts: Any) -> Streams:
    app = Streams(f"counting-{orders.name}", servers=servers, partitions=4, spark=spark)
    app.stream(orders.name, key="STRING", value="STRING").group_by_key().count().to(counts.name, name="out")
    return app


@pytest.mark.parametrize("is_earlier", [True, False])
def test_a_checkpoint_keeps_the_names_of_its_tasks(
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_earlier: bool,
) -> None:
    orders, counts = new_topic(), new_topic()
    app = counting(spark, servers, orders, counts)
    keys = [f"key{number}" for number in range(20)]
    if is_earlier:  # a version that knew no other names
        monkeypatch.setattr(CheckpointDirectory, "has_even_tasks", lambda _: False)
    send(servers, orders, *((key, "tea", 10) for key in keys))
    run(app, tmp_path, changelog=False)
    monkeypatch.undo()
    send(servers, orders, *((key, "cup", 20) for key in keys))
    run(app, tmp_path, changelog=False)

    assert {row["key"].decode(): row["value"] for row in consume(counts)} == dict.fromkeys(keys, b"2")
    assert CheckpointDirectory(str(tmp_path / "out")).has_even_tasks() is not is_earlier


def test_a_query_of_the_users_own_keeps_the_names_of_earlier_versions(
    spark: SparkSession, servers: str, new_topic: Callable[..., Any], tmp_path: Path
) -> None:
    """Its checkpoint may have them, and a task of another name would begin without state."""
    orders = new_topic()
    send(servers, orders, *((f"key{number}", "tea", 10) for number in range(20)))
    app = Streams("own", servers=servers, partitions=4, spark=spark)
    counts = app.stream(orders.name, key="STRING", value="STRING").group_by_key().count()
    writer = counts.df.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(TIMEOUT_S)
    state = spark.read.format("statestore").option("stateVarName", "state").load(str(tmp_path))
    assert {row["key"][0] for row in state.select("key").distinct().collect()} == set(range(4))


def test_settings_of_the_session_are_as_before(
    spark: SparkSession, servers: str, new_topic: Callable[..., Any], tmp_path: Path
) -> None:
    session_with_state("settings", spark, 1)  # sets the state store's provider for good
    before = spark.conf.getAll
    with counting(spark, servers, new_topic(), new_topic()).start(checkpoint=str(tmp_path)):
        assert spark.conf.getAll == before
