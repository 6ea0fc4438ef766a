"""`CREATE TABLE t USING odradek`: the catalog keeps the options, and SQL reads, streams and writes by the table's name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession


@pytest.fixture
def sql(spark: SparkSession, topic: Any) -> Iterator[Callable[[str], Any]]:
    """Run a statement about the table `t`; `{options}` are those of the test's topic."""
    options = f"'kafka.bootstrap.servers'='{topic.servers}', 'subscribe'='{topic.name}'"

    def run(statement: str) -> Any:
        return spark.sql(statement.replace("{options}", options))

    yield run
    spark.sql("DROP TABLE IF EXISTS t")


def test_a_table_is_selected_from_by_its_name(sql: Callable[[str], Any], topic: Any) -> None:
    topic.send_numbers(0, 5)
    sql("CREATE TABLE t USING odradek OPTIONS ({options}, 'valueDecode'='utf8')")
    assert sorted(row.value for row in sql("SELECT value FROM t WHERE offset > 1").collect()) == [
        "2",
        "3",
        "4",
    ]
    offsets = json.dumps({topic.name: {"0": 4}})
    only = sql(f"SELECT value FROM t WITH ('startingOffsets'='{offsets}')").collect()
    assert [row.value for row in only] == ["4"]
    assert any(topic.name in (row.comment or "") for row in sql("DESCRIBE t").collect())


def test_a_table_is_streamed_from(
    sql: Callable[[str], Any], topic: Any, collect_stream: Any, spark: SparkSession
) -> None:
    topic.send_numbers(0, 5)
    sql("CREATE TABLE t USING odradek OPTIONS ({options}, 'startingOffsets'='earliest')")
    assert collect_stream(sql("SELECT value FROM STREAM t"), checkpoint="a") == ["0", "1", "2", "3", "4"]
    assert collect_stream(spark.readStream.table("t"), checkpoint="b") == ["0", "1", "2", "3", "4"]


def test_a_table_is_written_to(sql: Callable[[str], Any], topic: Any, consume: Any) -> None:
    sql("CREATE TABLE t USING odradek OPTIONS ({options}, 'keyDecode'='utf8', 'valueDecode'='utf8')")
    sql("INSERT INTO t (key, value) VALUES ('a', '1'), ('b', '2')")
    assert sorted((row["key"], row["value"]) for row in consume(topic)) == [(b"a", b"1"), (b"b", b"2")]


def test_a_table_that_cannot_be_read_is_refused_when_it_is_made(sql: Callable[[str], Any]) -> None:
    with pytest.raises(
        AnalysisException, match="unknown option 'subscibe'; did you mean subscribe"
    ) as caught:
        sql("CREATE TABLE t USING odradek OPTIONS ({options}, 'subscibe'='t')")
    first_line = str(caught.value).splitlines()[0]
    assert "did you mean subscribe" in first_line


def test_a_temporary_view_reads_a_batch(sql: Callable[[str], Any], topic: Any, tmp_path: Path) -> None:
    topic.send_numbers(0, 2)
    sql("CREATE OR REPLACE TEMPORARY VIEW v USING odradek OPTIONS ({options})")
    assert sql("SELECT count(*) FROM v").collect()[0][0] == 2
    sql("DROP VIEW v")
