"""Outputs of one query: each gets what it would get from a query of its own, and what they share has its state once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odradek.client import Admin, Producer
from odradek.streams import Streams

TIMEOUT_S = 300
Fed = tuple[str, str, dict[str, Any] | None]
"""Topic (orders or users), key and value."""
ROUNDS: list[list[Fed]] = [
    [
        ("users", "a", {"name": "Ann", "born": "2001-02-03"}),
        ("orders", "a", {"amount": 2}),
        ("orders", "b", {"amount": 3}),
        ("orders", "a", {"amount": 0}),
        ("orders", "a", {"amount": 5}),
    ],
    [
        ("orders", "b", {"amount": 4}),
        ("users", "b", {"name": "Bob"}),
        ("users", "a", None),
        ("orders", "a", {"amount": -9}),
    ],
    [("orders", "b", {"amount": 0}), ("users", "a", {"name": "Eve", "born": "1999-12-31"})],
    [("orders", "a", {"amount": 50}), ("orders", "c", {"amount": 1})],
]


@pytest.mark.parametrize(
    ("delivery", "rounds"),
    [
        ("exactly_once", [ROUNDS[0], ROUNDS[1], ROUNDS[2] + ROUNDS[3]]),
        ("at_least_once", [ROUNDS[0] + ROUNDS[1], ROUNDS[2] + ROUNDS[3]]),
    ],
    ids=["exactly_once", "at_least_once"],
)
def test_outputs_of_one_query_say_what_each_would_say_alone(
    delivery: str,
    rounds: list[list[Fed]],
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    """One turns off behind the state that all share, one by a topic that each record names, one behind a second state."""
    topics = {"orders": new_topic(), "users": new_topic()}
    totals, large, named, rich, bad = (new_topic() for _ in range(5))
    app = Streams(
        f"together-{totals.name}",
        servers=servers,
        spark=spark,
        partitions=2,
        emit="every",
        on_error="dead-letter",
        bad=bad.name,
    )
    orders = app.stream(topics["orders"].name, key="STRING", value="amount BIGINT")
    people = app.table(topics["users"].name, key="STRING", value="name STRING, born STRING", name="people")
    users = people.select("name", "to_date(born) AS born")
    paid = orders.filter("if(amount = 0, raise_error('zero'), true)")
    summed = paid.group_by_key().agg("sum(amount) AS sum", name="sums")
    summed.to(totals.name, query="shop", name="totals")
    kept = summed.filter("sum > 4").to_stream().peek(lambda record: None)
    kept.flat_map("array(sum, sum + 1)").to(by=f"if(value > 5, '{large.name}', '-')", query="shop")
    joined = summed.join(users, how="left", name="joined")
    joined.to(named.name, query="shop", name="named")
    joined.filter("born IS NOT NULL").select("year(born) AS year").to(rich.name, query="shop", name="rich")

    checkpoints = time = 0
    with app.test() as driver:
        for fed in rounds:
            with Producer(servers) as producer:
                for role, key, value in fed:
                    time += 1
                    encoded = None if value is None else json.dumps(value).encode()
                    producer.send(topics[role].name, encoded, key=key.encode(), timestamp_ms=time)
                    driver.feed(topics[role].name, [(key, value, time)])
            driver.cut()
            checkpoint = tmp_path / str(checkpoints)
            with app.start(checkpoint=str(checkpoint), until_now=True, delivery=delivery) as run:
                assert list(run.queries) == ["shop"]
                assert run.wait(TIMEOUT_S)
            if fed is ROUNDS[1]:  # its state comes back from the changelog
                shutil.rmtree(checkpoint)
                checkpoints += 1
        expected = {topic.name: driver.read(topic.name) for topic in (totals, large, named, rich)}
    for topic in (totals, large, named, rich):
        written = read_records(consume(topic))
        said = [(record.key, record.timestamp, plain(record.value)) for record in expected[topic.name]]
        assert by_key(written) == by_key(said)
    assert [row["key"] for row in consume(bad)] == [b"a", b"b"]
    states = ("joined", "people", "sums") if delivery == "exactly_once" else ()
    assert changelogs_of(servers, app) == [f"{app.program.name}.shop-{state}-changelog" for state in states]


def changelogs_of(servers: str, app: Streams) -> list[str]:
    with Admin(servers) as admin:
        return sorted(name for name in admin.list_topics() if name.startswith(f"{app.program.name}."))


def read_records(rows: list[dict[str, Any]]) -> list[tuple[str, int, Any]]:
    """Key, time and value of each."""
    return [
        (row["key"].decode(), row["timestamp_ms"], plain(json.loads(row["value"] or b"null"))) for row in rows
    ]


def by_key(records: list[tuple[str, int, Any]]) -> dict[str, list[tuple[int, Any]]]:
    """What was said of each key, in order."""
    said: dict[str, list[tuple[int, Any]]] = {}
    for key, time, value in records:
        said.setdefault(key, []).append((time, value))
    return said


def plain(value: Any) -> Any:
    """Without fields that are null; dates as text."""
    if not isinstance(value, dict):
        return value
    return {name: str(part) if name == "born" else part for name, part in value.items() if part is not None}
