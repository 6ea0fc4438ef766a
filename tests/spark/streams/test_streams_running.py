"""Programs of streams and tables on a broker: what they write, and that they go on where they stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.kit.waiting import eventually
from tests.spark.streams.until_now import TIMEOUT_S, run, send

from odradek.client import Producer
from odradek.spark.writing.duplicates import MARK_HEADERS
from odradek.streams import Avro, Processor, StreamRecord, Streams, Timers, To
from odradek.streams.processors.keyed_state import KeyedState


def test_a_program_is_started_again_with_its_state(
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    orders, users, totals, named = (new_topic() for _ in range(4))
    committed = {"kafka.isolation.level": "read_committed"}
    app = Streams("running", servers=servers, emit="every", spark=spark, options=committed)
    stream = app.stream(orders.name, key="STRING", value="item STRING, amount DOUBLE")
    table = app.table(users.name, key="STRING", value="name STRING")
    stream.group_by_key().agg("count(*) AS n", "sum(amount) AS total").to(totals.name)
    stream.join(table, how="left", select="concat(coalesce(name, '-'), ':', item) AS value").to(named.name)

    send(servers, users, ("a", '{"name": "Ann"}', 5))
    send(
        servers, orders, ("a", '{"item": "tea", "amount": 2}', 10), ("b", '{"item": "cup", "amount": 1}', 20)
    )
    run(app, tmp_path)
    send(servers, users, ("a", None, 30))
    send(servers, orders, ("a", '{"item": "pot", "amount": 3.5}', 25), ("a", '{"item": "tea"}', 40))
    run(app, tmp_path)
    run(app, tmp_path)  # nothing new: nothing is written again

    assert [(row["key"], row["value"], row["timestamp_ms"]) for row in consume(totals)] == [
        (b"a", b'{"n":1,"total":2.0}', 10),
        (b"b", b'{"n":1,"total":1.0}', 20),
        (b"a", b'{"n":2,"total":5.5}', 25),
        (b"a", b'{"n":3,"total":5.5}', 40),
    ]
    assert [(row["key"], row["value"]) for row in consume(named)] == [
        (b"a", b"Ann:tea"),
        (b"b", b"-:cup"),
        (b"a", b"Ann:pot"),
        (b"a", b"-:tea"),
    ]


def test_programs_write_the_same_records_with_both_deliveries(
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    """A program without state and a join with a table: their records differ in the marks alone."""
    items, names = new_topic(2), new_topic(2)
    send(servers, names, *((f"k{number}", f"N{number}", number) for number in range(4)))
    large = "y" * 300_000
    with Producer(servers) as producer:
        for number in range(60):
            producer.send(
                items.name,
                None if number % 6 == 5 else large if number % 20 == 0 else f"v{number}",
                key=None if number % 7 == 6 else f"k{number % 5}",
                headers=[("h", b"%d" % number), ("h", None), ("", b"")][: number % 4],
                partition=number % 2,
                timestamp_ms=1_000 + number,
            )
    written: dict[str, list[list[tuple[Any, ...]]]] = {}
    for delivery in ("exactly_once", "at_least_once"):
        mapped, joined = new_topic(2), new_topic(2)
        app = Streams(f"both-{delivery}-{mapped.name}", servers=servers, spark=spark, partitions=1)
        stream = app.stream(items.name, key="STRING", value="STRING")
        keyed = stream.filter("key IS NOT NULL AND coalesce(value, '') != 'v1'")
        keyed.select("upper(value) AS value").to(mapped.name)
        table = app.table(names.name, key="STRING", value="STRING")
        stream.join(table, select="concat(value, ':', r_value) AS value", prefix="r_").to(joined.name)
        run(app, tmp_path / delivery, delivery=delivery)
        written[delivery] = [
            sorted(
                (row["partition"], row["timestamp_ms"], row["key"], row["value"], _own_headers(row))
                for row in consume(topic, committed=True)
            )
            for topic in (mapped, joined)
        ]
    assert written["exactly_once"] == written["at_least_once"]
    assert [len(rows) for rows in written["exactly_once"]] == [51, 34]


def _own_headers(row: dict[str, Any]) -> list[tuple[str, bytes | None]]:
    return [tuple(header) for header in row["headers"] if header[0] not in MARK_HEADERS]


def test_avro_is_read_and_written(
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    file = tmp_path / "order.avsc"
    fields = [
        {"name": "item", "type": "string"},
        {"name": "amount", "type": ["null", "long"], "default": None},
    ]
    file.write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    framed, plain = Avro(file, confluent=True, schema_id=7), Avro(file)
    orders, out = new_topic(), new_topic()
    app = Streams("formats", servers=servers, spark=spark)
    stream = app.stream(orders.name, key="STRING", value_format=framed)
    stream.select("item", "amount * 2 AS amount").to(out.name, value_format=plain)
    with Producer(servers) as producer:
        for amount in (2, None):
            producer.send(orders.name, framed.encode({"item": "tea", "amount": amount}), key=b"a")
        producer.send(orders.name, None, key=b"b")
    run(app, tmp_path / "checkpoint")
    written = [None if row["value"] is None else plain.decode(row["value"]) for row in consume(out)]
    assert written == [{"item": "tea", "amount": 4}, {"item": "tea", "amount": None}, None]


class EchoLater(Processor):
    """Says a value at once, and again a second later, on the clock."""

    def process(self, record: StreamRecord, state: KeyedState, timers: Timers) -> Any:
        state["value"] = record.value
        timers.at(timers.wall_clock + 1_000, wall_clock=True)
        yield To("now", record.value)

    def on_wall_clock_timer(self, key: Any, time: int, state: KeyedState, timers: Timers) -> Any:
        yield To("later", f"{state.pop('value')} again")


def test_the_clock_moves_timers_and_idle_windows_and_a_global_table_is_whole(
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    words, names, later, counts, named = (new_topic() for _ in range(5))
    app = Streams("clock", servers=servers, emit="every", partitions=2, spark=spark)
    stream = app.stream(words.name, key="STRING", value="STRING")
    outputs = stream.group_by_key().process(EchoLater(), outputs={"now": "STRING", "later": "STRING"})
    outputs["later"].to(later.name)
    stream.group_by_key().window("1 hour", idle_timeout="1 second").final().count().to(counts.name)
    table = app.global_table(names.name, key="STRING", value="STRING")
    stream.join(table, on="value", select="r_value AS value", prefix="r_").to(named.name)
    with Producer(servers) as producer:
        for number, word in enumerate(("one", "two", "three")):
            producer.send(names.name, word.upper().encode(), key=word.encode(), timestamp_ms=9_000 + number)
        for key, word in (("a", "one"), ("b", "two"), ("c", "three"), (None, "two")):
            producer.send(words.name, word.encode(), key=key and key.encode(), timestamp_ms=5_000)
    with app.start(checkpoint=str(tmp_path)):
        eventually(
            lambda: len(consume(later)) >= 3 and len(consume(counts)) >= 3 and len(consume(named)) >= 4,
            "timers, windows or the join said too little",
            seconds=TIMEOUT_S,
            every_s=0.5,
        )
    assert sorted(row["value"] for row in consume(later)) == [b"one again", b"three again", b"two again"]
    assert sorted((row["key"], row["value"]) for row in consume(counts)) == [
        (b'{"key":"%s","window_start":0,"window_end":3600000}' % key, b"1") for key in (b"a", b"b", b"c")
    ]
    assert sorted(row["value"] for row in consume(named)) == [b"ONE", b"THREE", b"TWO", b"TWO"]
