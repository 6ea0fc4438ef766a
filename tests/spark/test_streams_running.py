"""Programs of streams and tables on a broker: what they write, and that they go on where they stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from odradek.client import Producer
from odradek.streams import Streams

TIMEOUT_S = 120


def run(app: Streams, checkpoint: Path) -> None:
    """Until all is read that is there now."""
    with app.start(checkpoint=str(checkpoint), until_now=True) as running:
        assert running.wait(TIMEOUT_S), "the queries did not end"


def test_a_program_is_started_again_with_its_state(
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    orders, users, totals, named = (new_topic() for _ in range(4))
    app = Streams("running", servers=servers, emit="every", spark=spark)
    stream = app.stream(orders.name, key="STRING", value="item STRING, amount DOUBLE")
    table = app.table(users.name, key="STRING", value="name STRING")
    stream.group_by_key().agg("count(*) AS n", "sum(amount) AS total").to(totals.name)
    stream.join(table, how="left", select="concat(coalesce(name, '-'), ':', item) AS value").to(named.name)

    def send(topic: Any, *records: tuple[str, str | None, int]) -> None:
        with Producer(servers) as producer:
            for key, value, when in records:
                encoded = None if value is None else value.encode()
                producer.send(topic.name, encoded, key=key.encode(), timestamp_ms=when)

    send(users, ("a", '{"name": "Ann"}', 5))
    send(orders, ("a", '{"item": "tea", "amount": 2}', 10), ("b", '{"item": "cup", "amount": 1}', 20))
    run(app, tmp_path)
    send(users, ("a", None, 30))
    send(orders, ("a", '{"item": "pot", "amount": 3.5}', 25), ("a", '{"item": "tea"}', 40))
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
