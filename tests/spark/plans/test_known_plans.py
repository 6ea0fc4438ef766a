"""The plan of a query's small batches is analyzed and optimized once, unless something but their offsets differs."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from odradek.client import Producer
from odradek.spark.engine import java_classes
from odradek.spark.engine.session import java_session, jvm_of
from odradek.spark.engine.small_batches import RECORDS_MAX, interpret_small_batches
from odradek.streams import Streams

BEFORE_REUSE = 2
"""The batches of a run that are planned in full: the first brings the memory, and the second fills it."""


def _reuse_count(session: SparkSession) -> int:
    count: int = jvm_of(session).org.apache.spark.sql.execution.KnownPlans.reuseCount()
    return count


def _operator_reuse_count(session: SparkSession) -> int:
    count: int = jvm_of(session).org.apache.spark.sql.execution.KnownPlans.operatorReuseCount()
    return count


def _numbers(session: SparkSession, topic: Any) -> DataFrame:
    return (
        session.readStream.format("odradek")
        .option("kafka.bootstrap.servers", topic.servers)
        .option("subscribe", topic.name)
        .option("startingOffsets", "earliest")
        .load()
        .select(sf.decode("value", "utf-8").cast("bigint").alias("n"))
    )


def _start(rows: DataFrame, target: Any, checkpoint: Path) -> Any:
    return (
        rows.writeStream.format("odradek")
        .option("kafka.bootstrap.servers", target.servers)
        .option("topic", target.name)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def _texts(rows: list[dict[str, Any]]) -> list[str]:
    return [row["value"].decode() for row in rows]


def test_small_batches_are_planned_once_and_each_reads_its_own_records(
    session: SparkSession, new_topic: Callable[..., Any], consume: Any, tmp_path: Path
) -> None:
    source, target = new_topic(2), new_topic(1)
    rows = _numbers(session, source).where("n % 2 = 0").select(sf.concat(sf.lit("n"), "n").alias("value"))
    at, reuses, operator_reuses = 0, [], []
    for sizes in (
        (1, 2, RECORDS_MAX, 3),
        (1, RECORDS_MAX + 1, 1, 4, RECORDS_MAX + 9, 5),
    ):  # the query starts again
        query = _start(rows, target, tmp_path / "checkpoint")
        for size in sizes:
            before, operators_before = _reuse_count(session), _operator_reuse_count(session)
            with Producer(source.servers) as producer:
                for number in range(at, at + size):
                    producer.send(source.name, b"%d" % number, partition=number % 2)
            at += size
            query.processAllAvailable()
            reuses.append(_reuse_count(session) - before)
            operator_reuses.append(_operator_reuse_count(session) - operators_before)
        query.stop()
    assert sorted(_texts(consume(target))) == sorted(f"n{number}" for number in range(0, at, 2))
    assert reuses[BEFORE_REUSE:4] == [1, 1]
    # a large batch is planned by itself, and the plan of the small ones is still there after it
    assert reuses[4:] == [0, 0, 0, 1, 0, 1]
    assert all(operators for plan, operators in zip(reuses, operator_reuses, strict=True) if plan)
    assert [operator_reuses[index] for index in (5, 8)] == [0, 0]


def test_a_query_of_two_topics_has_plans_by_which_of_them_have_records(
    session: SparkSession, new_topic: Callable[..., Any], consume: Any, tmp_path: Path
) -> None:
    left, right, target = new_topic(1), new_topic(1), new_topic(1)
    rows = _numbers(session, left).selectExpr("n + 1000 as n").union(_numbers(session, right).where("n > -1"))
    query = _start(rows.selectExpr("cast(n as string) as value"), target, tmp_path / "checkpoint")
    expected: list[str] = []
    before = _reuse_count(session)
    for number in range(4):
        left.send_numbers(number, number + 1)
        query.processAllAvailable()
        right.send_numbers(number, number + 1)
        query.processAllAvailable()
        expected += [str(number + 1000), str(number)]
    assert _texts(consume(target)) == expected
    # the first batch of all is planned, and the first of each topic after it
    assert _reuse_count(session) - before == 8 - 3


def test_groups_go_on_from_their_state(
    session: SparkSession, servers: str, new_topic: Callable[..., Any], consume: Any, tmp_path: Path
) -> None:
    orders, totals = new_topic(1), new_topic(1)
    app = Streams("known", servers=servers, spark=session, partitions=1)
    app.stream(orders.name, key="STRING", value="v BIGINT").group_by_key().agg("sum(v) AS n").to(totals.name)
    total, expected, before = 0, [], _reuse_count(session)
    for numbers in ((1, 2, 3, 4), (5, 6, 7, 8)):
        started = app.start(checkpoint=str(tmp_path), interval="0 seconds")
        (query,) = started.queries.values()
        for number in numbers:
            orders.send(b'{"v":%d}' % number, key=b"k")
            query.processAllAvailable()
            total += number
            expected.append(total)
        started.stop()
    assert [json.loads(row["value"])["n"] for row in consume(totals, committed=True)] == expected
    assert _reuse_count(session) - before >= 2 * (4 - BEFORE_REUSE)


def test_batches_that_stay_packed_are_planned_once_whatever_their_size(
    session: SparkSession, servers: str, new_topic: Callable[..., Any], consume: Any, tmp_path: Path
) -> None:
    visits, counts = new_topic(2), new_topic(1)
    app = Streams("packed", servers=servers, spark=session, partitions=1)
    rows = app.stream(visits.name, key="STRING", value="STRING").group_by_key().count()
    rows.to_stream().select_key("concat(key, '!') AS k").to(counts.name)
    total, reuses, plans = 0, [], []
    expected: list[int] = []
    started = app.start(checkpoint=str(tmp_path), interval="0 seconds")
    (query,) = started.queries.values()
    many = RECORDS_MAX + 1
    for size in (many, many, many + 7, 2, 1, many + 1, 3):
        before = _reuse_count(session), _operator_reuse_count(session)
        with Producer(servers) as producer:
            for number in range(size):
                producer.send(visits.name, b"v", key=b"k", partition=number % 2)
        query.processAllAvailable()
        counted_all = _reuse_count(session) - before[0], _operator_reuse_count(session) - before[1]
        reuses.append(min(counted_all) > 0)
        total += size
        expected.append(total)
        plans.append(_plan(query))
    started.stop()
    written = [int(row["value"]) for row in consume(counts, committed=True)]
    assert set(expected) <= set(written)
    assert written == sorted(written)
    assert started.packing
    assert not any("MapInArrow" in plan or "*(" in plan for plan in plans)
    # batches of many records keep their shuffle: several tasks read them
    assert ["Exchange" in plan for plan in plans] == [True, True, True, False, False, True, False]
    assert [reuses[index] for index in (2, 4, 5, 6)] == [True] * 4


def _plan(query: Any) -> str:
    """Returns the physical plan of a query's last batch. Its generated stages have a star and a number."""
    text = io.StringIO()
    with redirect_stdout(text):
        query.explain()
    return text.getvalue()


@pytest.mark.parametrize(
    ("expression", "is_reused"),
    [
        ("current_timestamp()", False),
        ("localtimestamp()", False),
        ("now()", False),
        ("cast('now' AS TIMESTAMP)", False),
        ("to_timestamp(' NOW')", False),
        ("rand()", True),
        ("uuid()", True),
    ],
)
def test_what_is_another_value_in_each_batch_stays_so(
    expression: str,
    is_reused: bool,
    session: SparkSession,
    new_topic: Callable[..., Any],
    consume: Any,
    tmp_path: Path,
) -> None:
    source, target = new_topic(1), new_topic(1)
    rows = _numbers(session, source).selectExpr(f"cast({expression} as string) as value")
    query = _start(rows, target, tmp_path / "checkpoint")
    before = _reuse_count(session)
    for number in range(5):
        source.send_numbers(number, number + 1)
        query.processAllAvailable()
    values = _texts(consume(target))
    assert len(set(values)) == len(values) == 5
    assert (_reuse_count(session) > before) is is_reused


@pytest.mark.parametrize(
    ("condition", "is_reused"),
    [
        ("timestamp_seconds(n) < '2000-01-01'", True),
        ("timestamp_seconds(n) < ' 2000-01-01 00:00:00'", True),
        ("timestamp_seconds(n) < 'today'", False),
        ("timestamp_seconds(n) < '10:30'", False),
        ("date_from_unix_date(n) < date(concat('to', 'day'))", False),
        ("date_from_unix_date(n) < to_date('today')", False),
        ("date_from_unix_date(n) < to_date('2000-01-01')", True),
    ],
)
def test_only_a_text_that_is_the_time_of_planning_prevents_reuse(
    condition: str,
    is_reused: bool,
    session: SparkSession,
    new_topic: Callable[..., Any],
    consume: Any,
    tmp_path: Path,
) -> None:
    source, target = new_topic(1), new_topic(1)
    rows = _numbers(session, source).where(condition).selectExpr("cast(n AS STRING) AS value")
    query = _start(rows, target, tmp_path / "checkpoint")
    before = _reuse_count(session)
    for number in range(4):
        source.send_numbers(number, number + 1)
        query.processAllAvailable()
    assert _texts(consume(target)) == ["0", "1", "2", "3"]
    assert (_reuse_count(session) > before) is is_reused


def test_windows_close_and_late_records_are_left_out_as_the_watermark_moves(
    session: SparkSession, new_topic: Callable[..., Any], consume: Any, tmp_path: Path
) -> None:
    session.conf.set("spark.sql.shuffle.partitions", "1")
    source, target = new_topic(1), new_topic(1)
    counts = (
        _numbers(session, source)
        .selectExpr("timestamp_seconds(n) AS at")
        .withWatermark("at", "0 seconds")
        .groupBy(sf.window("at", "10 seconds"))
        .count()
    )
    rows = counts.selectExpr("concat(unix_seconds(window.start), '=', count) AS value")
    query = _start(rows, target, tmp_path / "checkpoint")
    before = _operator_reuse_count(session)
    for number in (1, 2, 12, 3, 13, 25, 14, 26, 36, 4, 47):  # 3, 14 and 4 are late
        source.send_numbers(number, number + 1)
        query.processAllAvailable()
    assert _texts(consume(target)) == ["0=2", "10=2", "20=2", "30=1"]
    assert _operator_reuse_count(session) > before
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 11


def test_streams_are_joined_across_batches(
    session: SparkSession, new_topic: Callable[..., Any], consume: Any, tmp_path: Path
) -> None:
    session.conf.set("spark.sql.shuffle.partitions", "1")
    left, right, target = new_topic(1), new_topic(1), new_topic(1)
    others = _numbers(session, right).selectExpr("n AS m")
    joined = _numbers(session, left).join(others, sf.expr("n = m"))
    rows = joined.selectExpr("concat(n, ':', m) AS value")
    query = _start(rows, target, tmp_path / "checkpoint")
    before = _operator_reuse_count(session)
    for number in (1, 2, 3, 4):
        left.send_numbers(number, number + 1)
        query.processAllAvailable()
    for number in (4, 3, 2, 1, 2):
        right.send_numbers(number, number + 1)
        query.processAllAvailable()
    assert _texts(consume(target)) == ["4:4", "3:3", "2:2", "1:1", "2:2"]
    assert _operator_reuse_count(session) > before


def test_a_query_that_compares_with_a_subquery_reads_it_in_each_batch(
    session: SparkSession, new_topic: Callable[..., Any], consume: Any, tmp_path: Path
) -> None:
    source, target, table = new_topic(1), new_topic(1), tmp_path / "table"
    session.range(3).write.parquet(str(table))
    rows = _numbers(session, source).where(f"n >= (select count(*) from parquet.`{table}`)")
    query = _start(rows.selectExpr("cast(n as string) as value"), target, tmp_path / "checkpoint")
    before = _reuse_count(session)
    for number in range(5):
        source.send_numbers(number, number + 1)
        query.processAllAvailable()
    assert _texts(consume(target)) == ["3", "4"]
    assert _reuse_count(session) == before


def test_without_the_rule_that_remembers_batches_are_small_as_before(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    define = java_classes.define

    def refuse_plans(jvm: Any, source: java_classes.JavaSource, cache: Path | None) -> None:
        if "KnownPlans" in source.classes:
            raise OSError("no space")
        define(jvm, source, cache)

    monkeypatch.setattr(java_classes, "define", refuse_plans)
    other = spark.newSession()
    with caplog.at_level(logging.INFO):
        interpret_small_batches(other)
    assert java_session(other).experimental().extraOptimizations().size() == 1
    assert java_session(other).experimental().extraStrategies().isEmpty()
    assert [record.getMessage() for record in caplog.records if "small_batches" in record.getMessage()] == [
        'small_batches_planned_in_full reason="no space"'
    ]
