"""A windowed table and a table without windows, joined by SQL, as a stream on a broker that goes on from its changelogs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.spark.streams.until_now import run, send

from odradek.client import Producer
from odradek.sql.applying import apply
from odradek.sql.changes import QueryStarted
from odradek.sql.language import parse
from odradek.sql.metastore.catalog import SqlCatalog
from odradek.sql.planning import Plan
from odradek.streams import Streams

HOUR_MS = 3_600_000


def planned(statements: str) -> Plan:
    """The plan of the last one."""
    catalog = SqlCatalog()
    plans: list[Plan] = []
    for number, statement in enumerate(parse(statements)):
        applied = apply(catalog, statement, number)
        catalog = applied.catalog
        plans += [change.plan for change in applied.changes if isinstance(change, QueryStarted)]
    return plans[-1]


def windowed(key: str, start: int) -> bytes:
    return key.encode() + start.to_bytes(8, "big")


def test_held_windows_are_written_again_without_a_checkpoint(
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    hourly, users, named = (new_topic() for _ in range(3))
    plan = planned(
        f"CREATE TABLE hourly (id STRING PRIMARY KEY, n INT) WITH (KAFKA_TOPIC='{hourly.name}', VALUE_FORMAT='JSON',"
        f" WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 HOUR', RETENTION_MS={HOUR_MS});"
        f"CREATE TABLE users (id STRING PRIMARY KEY, name STRING) WITH (KAFKA_TOPIC='{users.name}', VALUE_FORMAT='JSON');"
        f"CREATE TABLE named WITH (KAFKA_TOPIC='{named.name}') AS"
        " SELECT h.id, n, name FROM hourly h JOIN users u ON h.id = u.id;"
    )
    app = Streams("windows", servers=servers, emit="every", partitions=2, spark=spark)
    plan.build(app)
    with Producer(servers) as producer:
        for key, start, value in (("a", 0, 1), ("b", 0, 2), ("a", HOUR_MS, 3)):
            when = start + 1_000
            producer.send(hourly.name, b'{"N":%d}' % value, key=windowed(key, start), timestamp_ms=when)
    send(servers, users, ("a", '{"NAME": "Ann"}', HOUR_MS + 2_000))
    run(app, tmp_path / "first")
    send(servers, users, ("a", '{"NAME": "Anna"}', 2 * HOUR_MS), ("b", '{"NAME": "Bob"}', 2 * HOUR_MS))
    # The windows that ended more than an hour ago are no longer held: `b` has none, `a` has one.
    send(servers, users, ("a", None, 2 * HOUR_MS + 1), ("b", None, 2 * HOUR_MS + 1))
    run(app, tmp_path / "second")

    written = [(row["key"], row["value"]) for row in consume(named)]
    assert [row for row in written if row[0][:1] == b"a"] == [
        (windowed("a", 0), b'{"N":1,"NAME":"Ann"}'),
        (windowed("a", HOUR_MS), b'{"N":3,"NAME":"Ann"}'),
        (windowed("a", 0), b'{"N":1,"NAME":"Anna"}'),
        (windowed("a", HOUR_MS), b'{"N":3,"NAME":"Anna"}'),
        (windowed("a", HOUR_MS), None),
    ]
    assert [row for row in written if row[0][:1] == b"b"] == [(windowed("b", 0), b'{"N":2,"NAME":"Bob"}')]
