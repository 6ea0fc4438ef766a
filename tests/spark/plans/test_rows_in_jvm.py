"""The JVM packs and unpacks the rows of small batches to what functions in Python make of them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from odradek.client import Producer
from odradek.spark.engine.session import jvm_of
from odradek.spark.engine.small_batches import RECORDS_MAX
from odradek.streams import Streams

_COLUMNS: Final = (
    "v",
    "v % 2 = 0 AS is_even",
    "CAST(v AS TINYINT) AS tiny",
    "CAST(v AS SMALLINT) AS small",
    "CAST(v AS INT) AS whole",
    "CAST(v AS FLOAT) / 3 AS single",
    "CAST('NaN' AS DOUBLE) AS nan",
    "CAST(v AS DECIMAL(12, 3)) AS exact",
    "concat('é, \"', v) AS text",
    "unhex('6162') AS data",
    "date_add(DATE'2020-02-28', CAST(v AS INT)) AS day",
    "timestamp_millis(v * 1000 + 7) AS instant",
    "TIMESTAMP_NTZ'2020-02-29 01:02:03.456' AS local",
    "array(v, null) AS numbers",
    "array(named_struct('m', map('x', array(CAST(v AS INT))))) AS nested",
    "map('k', named_struct('a', v, 'b', CAST(null AS STRING))) AS entries",
    "CAST(null AS ARRAY<STRING>) AS nothing",
    "CAST(null AS STRUCT<a: INT, b: MAP<STRING, INT>>) AS no_struct",
)


def _planned_count(session: SparkSession) -> int:
    count: int = jvm_of(session).org.apache.spark.sql.execution.RowsInJvm.plannedCount()
    return count


def _plan(query: Any) -> str:
    text = io.StringIO()
    with redirect_stdout(text):
        query.explain()
    return text.getvalue()


def _names(plan: str) -> list[str]:
    return [name for name in ("MapInArrow", "RowsPacked", "RowsUnpacked") if name in plan]


@pytest.mark.parametrize("columns", [_COLUMNS, ("v", "INTERVAL '1 00:00:02' DAY TO SECOND AS pause")])
def test_rows_of_all_types_are_the_same_in_the_jvm_and_in_python(
    columns: tuple[str, ...],
    session: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Any,
    tmp_path: Path,
) -> None:
    rows, latest = new_topic(1), new_topic(1)
    app = Streams(f"all-types-{len(columns)}", servers=servers, spark=session, partitions=1)
    stream = app.stream(rows.name, key="STRING", value="v BIGINT").select(*columns)
    all_of_them = ", ".join(column.rpartition(" ")[2] for column in columns)
    stream.group_by_key().latest(f"struct({all_of_them})").to(latest.name)
    plans = []
    with app.start(checkpoint=str(tmp_path), interval="0 seconds") as started:
        (query,) = started.queries.values()
        for size in (1, RECORDS_MAX + 1, 2):
            with Producer(servers) as producer:
                for _ in range(size):
                    producer.send(rows.name, b'{"v":7}', key=b"k")
            query.processAllAvailable()
            plans.append(_names(_plan(query)))
    values = [row["value"] for row in consume(latest, committed=True)]
    assert len(values) >= len(plans)
    assert len(set(values)) == 1, values
    assert set(json.loads(values[0])) == {column.rpartition(" ")[2] for column in columns}
    # an interval has a form of its own in Arrow: a function in Python unpacks it
    small = ["RowsPacked", "RowsUnpacked"] if columns is _COLUMNS else ["MapInArrow", "RowsPacked"]
    assert plans == [small, ["MapInArrow"], small]


def test_each_task_gets_its_rows_and_a_batch_of_many_rows_goes_through_python(
    session: SparkSession, servers: str, new_topic: Callable[..., Any], consume: Any, tmp_path: Path
) -> None:
    session.conf.set("spark.sql.shuffle.partitions", "3")
    numbers, sums = new_topic(2), new_topic(1)
    app = Streams("three-tasks", servers=servers, spark=session, partitions=3)
    stream = app.stream(numbers.name, key="STRING", value="v BIGINT").filter("v >= 0")
    stream.group_by_key().agg("sum(v) AS n").to(sums.name)
    keys = [f"k{number}" for number in range(9)]
    expected = dict.fromkeys(keys, 0)
    plans, counts = [], []
    with app.start(checkpoint=str(tmp_path), interval="0 seconds") as started:
        (query,) = started.queries.values()
        for size in (1, 5, 40, 40, RECORDS_MAX + 20, 40):
            before = _planned_count(session)
            with Producer(servers) as producer:
                for number in range(size):
                    key = keys[number % len(keys)]
                    expected[key] += number
                    producer.send(numbers.name, b'{"v":%d}' % number, key=key.encode(), partition=number % 2)
            query.processAllAvailable()
            plans.append(_names(_plan(query)))
            counts.append(_planned_count(session) - before)
    last = {row["key"].decode(): json.loads(row["value"])["n"] for row in consume(sums, committed=True)}
    assert last == expected
    in_jvm = ["RowsPacked", "RowsUnpacked"]
    assert plans[2:] == [in_jvm, in_jvm, ["MapInArrow"], in_jvm]
    assert sum(counts) == 2 * sum(count > 0 for count in counts)
    assert counts[3:] == [0, 0, 0]  # the operators are chosen once


def test_rows_of_many_bytes_are_packed_a_few_at_a_time(
    session: SparkSession, servers: str, new_topic: Callable[..., Any], consume: Any, tmp_path: Path
) -> None:
    texts, lengths = new_topic(1), new_topic(1)
    app = Streams("large-rows", servers=servers, spark=session, partitions=1)
    stream = app.stream(texts.name, key="STRING", value="t STRING").select("repeat(t, 3000000) AS t")
    stream.group_by_key().agg("sum(length(t)) AS n", "count(*) AS c").to(lengths.name)
    count = 0
    with app.start(checkpoint=str(tmp_path), interval="0 seconds") as started:
        (query,) = started.queries.values()
        for size in (1, 1, 1, 7):
            with Producer(servers) as producer:
                for _ in range(size):
                    producer.send(texts.name, b'{"t":"x"}', key=b"k")
            query.processAllAvailable()
            count += size
        assert _names(_plan(query)) == ["RowsPacked", "RowsUnpacked"]
    last = json.loads(consume(lengths, committed=True)[-1]["value"])
    assert last == {"n": 3_000_000 * count, "c": count}
