"""The rows of Spark beside its connector: which are measured, how often, and how they are written."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.spark import connector, formats


def test_rows_are_chosen_by_a_part_of_their_name() -> None:
    cases = dict.fromkeys(("1 KiB, lz4", "1 KiB, zstd", "headers"), float)
    assert list(formats.chosen(cases, "KiB")) == ["1 KiB, lz4", "1 KiB, zstd"]
    assert list(formats.chosen(cases, "")) == list(cases)
    with pytest.raises(
        ValueError, match="no row has 'gzip' in its name; there are: 1 KiB, lz4; 1 KiB, zstd; headers"
    ):
        formats.chosen(cases, "gzip")


def test_formats_run_in_turn_after_a_round_that_warms_up_and_long_rows_once() -> None:
    calls: list[tuple[str, str]] = []

    def case(name: str) -> Any:
        def run(spark_format: str) -> float:
            calls.append((name, spark_format))
            return float(len(calls))

        return run

    cases = {"short": case("short"), "long": case("long")}
    figures = formats.measured(cases, lambda _: ("kafka", "odradek"), rounds=2, minutes=1, once=["long"])
    assert [spark_format for name, spark_format in calls if name == "short"] == [
        *("odradek", "kafka"),
        *("kafka", "odradek"),
        *("odradek", "kafka"),
    ]
    assert [spark_format for name, spark_format in calls if name == "long"] == ["kafka", "odradek"]
    assert {name: [len(rates) for rates in by.values()] for name, by in figures.items()} == {
        "short": [2, 2],
        "long": [1, 1],
    }


def test_a_row_without_the_connector_has_no_ratio() -> None:
    both = {"kafka": [100.0, 200.0], "odradek": [300.0, 400.0], "ready-made": [500.0, 500.0]}
    document = {
        "spark": "4.2.0",
        "sockets": "tcp",
        "load before and after": [0.5, 1.0],
        "rows/s": {"both": both, "alone": {"odradek": [7.0, 7.0]}},
    }
    lines = connector.table(document).splitlines()
    assert any(line.startswith("| both | 150 | 350 | 2.50 (2.00 to 3.00) |") for line in lines)
    assert any(line.startswith("| alone |  | 7 |  |") for line in lines)
