"""Filters of a batch read reach the source, when a setting makes Spark pass them on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


@pytest.fixture
def poisoned(topic: Any) -> Any:
    """A topic whose first ten records, at 0 to 9 ms, are no JSON: a read of one of them fails."""
    topic.send_numbers(0, 10)
    for number in range(10, 20):
        topic.send(b'{"n": %d}' % number, key=b"k%d" % (number % 2), timestamp_ms=number)
    return topic


FILTERS = (
    "offset >= 10",
    "offset IN (12, 15)",
    "offset BETWEEN 11 AND 13 AND partition = 0",
    "timestamp >= timestamp_millis(10)",
    "key = CAST('k1' AS BINARY)",
    "partition = 7",
    "topic = 'another'",
)
"""Each keeps none of the first ten records."""


@pytest.mark.parametrize("condition", FILTERS)
def test_what_a_filter_drops_is_not_read(pushdown: None, poisoned: Any, read: Any, condition: str) -> None:
    frame = read(poisoned, valueDecode="json", valueSchema="n INT", filterPushdown="true")
    results = {row.n for row in frame.where(condition).select("value.n").collect()}
    everything = read(poisoned, valueDecode="json", valueSchema="n INT", decodeErrors="null")
    kept = [row.offset for row in everything.where(condition).collect()]
    assert results == set(kept)
    assert len(results) == len(kept)


def test_without_pushdown_the_filter_is_applied_and_everything_is_read(poisoned: Any, read: Any) -> None:
    frame = read(poisoned, valueDecode="json", valueSchema="n INT", filterPushdown="true")
    with pytest.raises(PySparkException, match="is not JSON that fits valueSchema"):
        frame.where("offset >= 10").collect()
    assert read(poisoned).where("offset >= 10").count() == 10


def test_a_query_without_filters_reads_all(pushdown: None, poisoned: Any, read: Any) -> None:
    assert read(poisoned, filterPushdown="true").count() == 20


def test_a_frame_that_is_used_with_several_filters_is_right_unless_it_was_asked_for(
    pushdown: None, poisoned: Any, read: Any
) -> None:
    frame = read(poisoned)
    late, early = frame.where("offset >= 10"), frame.where("offset < 5")
    assert (late.count(), late.union(early).count(), frame.count()) == (10, 15, 20)
