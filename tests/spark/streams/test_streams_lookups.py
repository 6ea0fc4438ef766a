"""A stream that is joined with a table which the program computes sees the table as all records before have left it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.streams.until_now import run, send

from odradek.streams import Streams

JOINED: dict[str, Any] = {"how": "left", "prefix": "r_", "select": ["value AS l", "r_value AS r"]}
COUNTED: dict[str, Any] = {"how": "left", "prefix": "r_", "select": ["value AS l", "n AS r"]}
Program = Callable[[Streams], Any]


def _stream(app: Streams, topic: str) -> Any:
    return app.stream(topic, key="STRING", value="BIGINT")


def _sums(stream: Any) -> Any:
    return stream.group_by_key().sum("value")


def with_a_sum(app: Streams) -> Any:
    return _stream(app, "a").join(_sums(_stream(app, "b")), **JOINED)


def with_a_filtered_sum(app: Streams) -> Any:
    return _stream(app, "a").join(_sums(_stream(app, "b")).filter("value > 10"), **JOINED)


def with_a_regrouped_sum(app: Streams) -> Any:
    groups = _sums(_stream(app, "b")).group_by("concat('k', value % 10) AS key").agg("count(*) AS n")
    return _stream(app, "a").join(groups, on="concat(key, '0')", **COUNTED)


def with_joined_sums(app: Streams) -> Any:
    amounts = _stream(app, "b")
    both = _sums(amounts).join(amounts.group_by_key().count(), prefix="c_", select="value + c_value AS value")
    return _stream(app, "a").join(both, **JOINED)


def by_another_key(app: Streams) -> Any:
    return _stream(app, "a").join(_sums(_stream(app, "b")), on="lower(key)", **JOINED)


def with_its_own_sum(app: Streams) -> Any:
    own = _stream(app, "own")
    return own.join(_sums(own), **JOINED)


def with_the_sum_of_its_own_topic(app: Streams) -> Any:
    return _stream(app, "own").join(_sums(_stream(app, "own")), **JOINED)


def with_its_own_table(app: Streams) -> Any:
    own = _stream(app, "own")
    return own.join(own.to_table(), **JOINED)


def with_a_filter_of_its_own_sum(app: Streams) -> Any:
    own = _stream(app, "own")
    return own.join(_sums(own).filter("value > 1"), **JOINED)


def built_before_its_own_sum(app: Streams) -> Any:
    own = _stream(app, "own")
    first = own.filter("value > 0")
    return first.join(_sums(own), **JOINED)


def built_after_its_own_sum(app: Streams) -> Any:
    own = _stream(app, "own")
    sums = _sums(own)
    return own.filter("value > 0").join(sums, **JOINED)


def with_a_regrouping_of_its_own(app: Streams) -> Any:
    own = _stream(app, "own")
    groups = own.to_table().group_by("key").agg("sum(value) AS n")
    return own.join(groups, **COUNTED)


def with_the_table_that_it_is_of(app: Streams) -> Any:
    table = app.table("table", key="STRING", value="BIGINT")
    changes = table.to_stream()
    return changes.join(table.filter("value > 1"), **JOINED)


def twice_with_one_sum(app: Streams) -> Any:
    own = _stream(app, "own")
    sums = _sums(own)
    once = own.join(sums, prefix="r_", select="r_value AS value")
    return once.join(sums, **JOINED)


BESIDE = [("b", "k", 10), ("a", "k", 1), ("b", "k", 20), ("a", "k", 2), ("b", "k", 30)]
OWN = [(topic, "k", value) for value in (1, 2, 3) for topic in ("own", "table")]
RIGHT: dict[Program, list[tuple[Any, Any]]] = {
    with_a_sum: [(1, 10), (2, 30)],
    with_a_filtered_sum: [(1, None), (2, 30)],
    with_a_regrouped_sum: [(1, 1), (2, 1)],
    with_joined_sums: [(1, 11), (2, 32)],
    by_another_key: [(1, 10), (2, 30)],
    with_its_own_sum: [(1, 1), (2, 3), (3, 6)],
    with_the_sum_of_its_own_topic: [(1, 1), (2, 3), (3, 6)],
    with_its_own_table: [(1, 1), (2, 2), (3, 3)],
    with_a_filter_of_its_own_sum: [(1, None), (2, 3), (3, 6)],
    built_before_its_own_sum: [(1, None), (2, 1), (3, 3)],
    built_after_its_own_sum: [(1, 1), (2, 3), (3, 6)],
    with_a_regrouping_of_its_own: [(1, None), (2, 1), (3, 2)],
    with_the_table_that_it_is_of: [(1, None), (2, 2), (3, 3)],
    twice_with_one_sum: [(1, 1), (3, 3), (6, 6)],
}
"""Kafka Streams says the same, however large its cache is: what is looked up is never held back."""


@pytest.mark.parametrize("emit", ["every", "latest"])
def test_a_lookup_sees_the_table_as_all_records_before_have_left_it(spark: SparkSession, emit: Any) -> None:
    app = Streams("lookups", emit=emit, spark=spark)
    for program in RIGHT:
        program(app).to(program.__name__)
    with app.test() as driver:
        for number, (topic, key, value) in enumerate(BESIDE + OWN):
            driver.feed(topic, [(key, value, number)])
        written = driver.read_all()
    assert {topic: _sides(records) for topic, records in written.items()} == {
        program.__name__: right for program, right in RIGHT.items()
    }


def test_where_batches_end_changes_no_lookup(spark: SparkSession) -> None:
    """An inner join with a count of what is joined: each record finds itself counted."""
    app = Streams("cut", spark=spark)
    orders = _stream(app, "orders")
    orders.join(orders.group_by_key().count(), prefix="c_", select="c_value AS value").to("out")
    choose = random.Random(7)
    rows = [(choose.choice("abc"), number, number) for number in range(100)]
    written = []
    for cuts in ([], sorted(choose.sample(range(100), 3))):
        with app.test() as driver:
            for number, row in enumerate(rows):
                if number in cuts:
                    driver.cut()
                driver.feed("orders", [row])
            written.append([(record.key, record.value) for record in driver.read("out")])
    seen = dict.fromkeys("abc", 0)
    expected = []
    for key, _, _ in rows:
        seen[key] += 1
        expected.append((key, seen[key]))
    assert written == [expected, expected]


def test_on_a_broker_a_lookup_sees_what_it_sees_in_a_test(
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    """Two outputs share a query: the table's is written once a batch, while the join sees every update. State goes on."""
    orders, totals, named = (new_topic() for _ in range(3))
    app = Streams("lookups", servers=servers, spark=spark)
    own = _stream(app, orders.name)
    sums = _sums(own)
    sums.to(totals.name, query="shop", name="totals")
    own.join(sums, **JOINED).to(named.name, query="shop", name="named")
    for batch in (
        [("a", "1", 1), ("b", "5", 2), ("a", "2", 3)],
        [("a", "3", 4), ("b", "1", 5), ("a", "4", 6)],
    ):
        send(servers, orders, *batch)
        run(app, tmp_path)

    assert [(row["key"], row["value"]) for row in consume(named)] == [
        (b"a", b'{"l":1,"r":1}'),
        (b"b", b'{"l":5,"r":5}'),
        (b"a", b'{"l":2,"r":3}'),
        (b"a", b'{"l":3,"r":6}'),
        (b"b", b'{"l":1,"r":6}'),
        (b"a", b'{"l":4,"r":10}'),
    ]
    assert [(row["key"], row["value"]) for row in consume(totals)] == [
        (b"b", b"5"),
        (b"a", b"3"),
        (b"b", b"6"),
        (b"a", b"10"),
    ]


def _sides(records: list[Any]) -> list[tuple[Any, Any]]:
    return [(record.value["l"], record.value["r"]) for record in records]
