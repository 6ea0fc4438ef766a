"""Rows that an operator with state hands to the sink packed: programs write what they write when Spark computes the rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.streams.until_now import TIMEOUT_S, send

from odradek.spark.writing.duplicates import BATCH_HEADER
from odradek.streams import Stream, Streams, Table
from odradek.streams.translation.outputs import packed_output


def _joined(left: Stream, right: Table) -> Stream:
    return left.join(
        right, how="left", select="concat(value, ':', coalesce(r_value, '-')) AS value", prefix="r_"
    )


def _filtered(left: Stream, right: Table) -> Stream:
    joined = left.join(right, select=["value", "r_value"], prefix="r_")
    return joined.filter("r_value <> 'hidden'").select("concat(value, r_value) AS value")


def _counted(left: Stream, right: Table) -> Stream:
    counts = left.group_by_key().window("1 second", grace="1 minute").count()
    return counts.to_stream().select_key("concat(key, '@', window_start) AS k")


def _table(left: Stream, right: Table) -> Table:
    return left.group_by_key().count().join(right, select="concat(value, '|', r_value) AS value", prefix="r_")


class _Outputs:
    """Stands between a program and its sink. `is_packed`: rows go to the sink packed where they can."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_packed = True
        self.packed_count = 0
        self._packed_output = packed_output
        monkeypatch.setattr("odradek.streams.running.packed_output", self)

    def __call__(self, rows: DataFrame) -> tuple[DataFrame, Any]:
        if not self.is_packed:
            return rows, {}
        below, options = self._packed_output(rows)
        self.packed_count += bool(options)
        return below, options


@pytest.mark.parametrize(
    ("program", "delivery"),
    [
        (_joined, "at_least_once"),
        (_filtered, "exactly_once"),
        (_counted, "exactly_once"),
        (_table, "exactly_once"),
    ],
)
def test_a_program_writes_the_same_packed_or_not_and_goes_on_from_a_checkpoint_of_either(
    delivery: str,
    program: Callable[[Stream, Table], Stream | Table],
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs = _Outputs(monkeypatch)
    written = []
    for kind, runs in (("spark", (False, False)), ("sink", (True, True)), ("both", (False, True))):
        stream, table, output = new_topic(), new_topic(), new_topic()
        app = Streams(
            f"output-{program.__name__[1:]}-{delivery}-{kind}", servers=servers, spark=spark, partitions=2
        )
        left = app.stream(stream.name, key="STRING", value="STRING")
        right = app.table(table.name, key="STRING", value="STRING")
        program(left, right).to(output.name)
        send(servers, table, ("a", "A", 1), ("b", "hidden", 2), ("é", "É", 3))
        for number, outputs.is_packed in enumerate(runs):
            when = 10_000 * number
            send(
                servers,
                stream,
                *((key, text, when + 5) for key in ("a", "b", "é", "none", "") for text in ("x", None, "y")),
            )
            with app.start(checkpoint=str(tmp_path / kind), delivery=delivery, until_now=True) as started:
                assert started.wait(TIMEOUT_S)
        written.append(
            [
                (row["key"], row["value"], row["timestamp_ms"], _marks_of(row, delivery))
                for row in consume(output)
            ]
        )
    assert outputs.packed_count == 3
    assert written[0] == written[1] == written[2]
    assert len(written[0]) >= 6


def _marks_of(row: dict[str, Any], delivery: str) -> list[bytes]:
    """Returns the number of the batch, which rows are marked with that are delivered at least once."""
    marks = [value for name, value in row["headers"] if name == BATCH_HEADER]
    assert len(marks) == (delivery == "at_least_once")
    return marks
