"""Updates that are held back, versions in a processor and sessions that are kept, on a broker as in a test.

On the broker the program runs in two parts, and each part begins without a checkpoint: state comes back from changelogs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.spark.streams.until_now import run, send

from odradek.streams import Processor, Streams, time_limit

OUTPUTS = ("rates", "sessions", "held")


class Rates(Processor):
    """Says what was true 15 ms before each record, and what is true now."""

    def process(self, record: Any, state: Any, timers: Any) -> Iterator[dict[str, Any]]:
        rates = state.versioned("rates", history=25)
        is_kept = rates.put("eur", record.value, record.timestamp)
        before, now = rates.get("eur", as_of=record.timestamp - 15), rates.get("eur")
        yield {"amount": record.value, "seen": f"{is_kept} {before and before.value} {now and now.value}"}


def program(app: Streams, orders: str, written_to: dict[str, str]) -> None:
    """One query: each operator with state reads what the one before it writes."""
    amounts = app.stream(orders, key="STRING", value="BIGINT")
    rates = amounts.group_by_key().process(Rates(), schema="amount BIGINT, seen STRING", name="rates")
    rates.to(written_to["rates"], query="all")
    windows = rates.group_by_key().session(10, grace=20, retention=60)
    sessions = windows.agg("sum(amount) AS sum", name="sessions")
    sessions.to(written_to["sessions"], query="all")
    held = sessions.suppress(until=time_limit(20, max_records=2), name="held")
    held.to(written_to["held"], query="all")


PARTS: list[list[tuple[str, int, int]]] = [
    [("a", 1, 100), ("b", 2, 101), ("a", 3, 102)],
    [
        ("a", 4, 132),
        ("a", 5, 109),
        ("a", 6, 121),
        ("b", 7, 133),
        ("c", 8, 134),
        ("b", 9, 105),
        ("c", 10, 170),
    ],
]


def test_on_a_broker_what_is_held_back_comes_as_in_a_test(
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    orders = new_topic()
    topics = {name: new_topic() for name in OUTPUTS}
    app = Streams(f"held-{orders.name}", servers=servers, emit="every", partitions=1)
    program(app, orders.name, {name: topic.name for name, topic in topics.items()})
    for number, part in enumerate(PARTS):
        send(servers, orders, *((key, str(value), when) for key, value, when in part))
        run(app, tmp_path / str(number), spark=spark)
        shutil.rmtree(tmp_path / str(number))

    tested = Streams("tested", emit="every", spark=spark, partitions=1)
    program(tested, "orders", {name: name for name in OUTPUTS})
    with tested.test() as driver:
        for part in PARTS:
            driver.feed("orders", part)
        records = driver.read_all()
    for name, topic in topics.items():
        written = [
            (_read(row["key"]), _read(row["value"]), row["timestamp_ms"])
            for row in consume(topic, committed=True)
        ]
        assert written == [(record.key, record.value, record.timestamp) for record in records[name]], name
    seen = [record.value["seen"] for record in records["rates"]]
    assert seen == [
        *("True None 1", "True None 2", "True None 3"),
        *("True 3 4", "True None 4", "True None 4", "True 2 7", "True None 8", "False None 7", "True 8 10"),
    ]
    a_session = {"key": "a", "window_start": 100, "window_end": 102}
    bridged = {"key": "b", "window_start": 101, "window_end": 105}
    assert (a_session, None) in [(record.key, record.value) for record in records["sessions"]]
    assert (bridged, {"sum": 11}) in [(record.key, record.value) for record in records["sessions"]]
    held = [(record.key, record.value) for record in records["held"]]
    assert held.index((a_session, {"sum": 4})) < held.index((a_session, None))
    assert {"key": "c", "window_start": 170, "window_end": 170} not in [key for key, _ in held]


def _read(text: bytes | None) -> Any:
    """A key of one column is text; a key of several and a value are JSON."""
    if text is None or not text.startswith(b"{"):
        return text and text.decode()
    return json.loads(text)
