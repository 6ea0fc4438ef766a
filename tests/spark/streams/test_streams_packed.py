"""Records that nothing is computed of are packed for their tasks by the source: programs write what they write otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from tests.spark.streams.until_now import TIMEOUT_S, run, send

from odradek.streams import Stream, Streams, Table

_RECORD_COUNT: Final = 300
_VALUE: Final = "item STRING, amount BIGINT"
_ROWS_MAX: Final = 40
"""More rows than two partitions of two inputs have, and fewer than there are records."""


def test_a_window_goes_on_counting_after_a_restart(
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    visits, counts = new_topic(), new_topic()
    app = Streams("packed-windows", servers=servers, spark=spark, partitions=2)
    windows = (
        app.stream(visits.name, key="STRING", value="STRING")
        .group_by_key()
        .window("1 minute", grace="5 minutes")
    )
    windows.count().to_stream().select_key("concat(key, '@', window_start) AS k").to(counts.name)

    send(servers, visits, ("a", "x", 5), ("b", "y", 6), ("a", None, 7), (None, "z", 8), ("a", "x", 60_001))
    run(app, tmp_path)
    send(servers, visits, ("a", "x", 9), ("é", "x", 10))
    run(app, tmp_path)

    assert sorted((row["key"].decode(), row["value"]) for row in consume(counts)) == [
        ("a@0", b"2"),
        ("a@0", b"3"),
        ("a@60000", b"1"),
        ("b@0", b"1"),
        ("é@0", b"1"),
    ]


def _windowed(left: Stream, right: Stream | Table) -> Stream:
    counts = left.group_by_key().window("1 second", every="500 milliseconds", grace="1 minute").count()
    return counts.to_stream().select_key("concat(key, '@', window_start) AS k")


def _added_up(left: Stream, right: Stream | Table) -> Table:
    return left.group_by_key().agg("sum(amount) AS total", "count(*) AS n", "max(item) AS last")


def _folded(left: Stream, right: Stream | Table) -> Table:
    return left.group_by_key().aggregate(lambda: 0, lambda key, value, total: total + 1, schema="BIGINT")


def _joined(left: Stream, right: Stream | Table) -> Stream:
    assert isinstance(right, Table)
    return left.join(
        right, how="left", select="concat(coalesce(item, '-'), coalesce(r_item, '-')) AS value", prefix="r_"
    )


def _joined_in_time(left: Stream, right: Stream | Table) -> Stream:
    assert isinstance(right, Stream)
    return left.join(right, within="100 milliseconds", select="concat(item, r_item) AS value", prefix="r_")


@pytest.mark.parametrize(
    ("program", "has_table"),
    [(_windowed, None), (_added_up, None), (_folded, None), (_joined, True), (_joined_in_time, False)],
)
def test_a_program_writes_the_same_whether_the_source_packs_or_spark_does(
    program: Callable[[Stream, Stream | Table], Stream | Table],
    has_table: bool | None,
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    inputs = new_topic(), new_topic()
    for seed, topic in enumerate(inputs):
        send(servers, topic, *_records(Random(seed)))
    written = []
    rows_read = []
    for kind in ("packed", "by-spark", "mixed"):
        output = new_topic()
        app = Streams(f"packing-{program.__name__}-{kind}", servers=servers, spark=spark, partitions=2)
        left = app.stream(inputs[0].name, key="STRING", value=_VALUE)
        if kind != "packed":
            left = left.filter("true")
        right: Stream | Table = left
        if has_table is not None:
            make = app.table if has_table else app.stream
            right = make(inputs[1].name, key="STRING", value=_VALUE)
            if kind == "by-spark":
                right = right.filter("true")
        program(left, right).to(output.name)
        with app.start(checkpoint=str(tmp_path / kind), until_now=True) as running:
            assert running.wait(TIMEOUT_S)
            (query,) = running.queries.values()
            rows_read.append(sum(batch["numInputRows"] for batch in query.recentProgress))
        written.append([(row["key"], row["value"], row["timestamp_ms"]) for row in consume(output)])

    assert written[0] == written[1] == written[2]
    assert len(written[0]) > len({key for key, _, _ in written[0]}) // 2 > 0
    assert rows_read[0] < _ROWS_MAX < _RECORD_COUNT <= rows_read[1]


def _records(random: Random) -> Iterator[tuple[str | None, str | None, int]]:
    when = 1_000
    for number in range(_RECORD_COUNT):
        when += random.randrange(30)
        key = random.choice([None, "", "é", "user", "a longer key than a word", *"abcdefgh"])
        text = f'{{"item": "{number}", "amount": {random.randrange(9)}}}'
        yield (
            key,
            random.choice([None, '{"amount": 1}', "{}", text, text, text]),
            when - random.randrange(200),
        )
