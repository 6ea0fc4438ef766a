"""The short form of `python -m tests.faults.sink`: a few kills, and all is there once, in order."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.sink.outcome import Row, compare
from tests.faults.sink.program import PLAIN, SPARK
from tests.faults.sink.run import BROKER, COORDINATOR, DRIVER, WORKER, Terms, run

from odradek.spark.engine.java import find_java


def test_a_sink_loses_and_doubles_nothing_when_its_parts_are_killed(tmp_path: Path) -> None:
    terms = Terms(
        program=PLAIN,
        kills=12,
        seed=7,
        weights={DRIVER: 40, WORKER: 40, BROKER: 5, COORDINATOR: 15},
        rest_seconds=(0.1, 0.8),
    )
    run_result = run(terms, tmp_path)
    assert run_result.is_clean, run_result.text()
    assert run_result.outcome is not None
    assert run_result.outcome.target_count > 500
    assert run_result.batches > 10


@pytest.mark.spark
@pytest.mark.skipif(find_java().problem is not None, reason="a usable Java is absent")
def test_a_query_on_spark_loses_and_doubles_nothing_when_its_parts_are_killed(
    tmp_path: Path,
) -> None:
    pytest.importorskip("pyspark", reason="PySpark is absent")
    terms = Terms(
        program=SPARK,
        kills=3,
        seed=11,
        weights={DRIVER: 20, WORKER: 60, COORDINATOR: 20},
        rest_seconds=(0.5, 1.5),
    )
    run_result = run(terms, tmp_path)
    assert run_result.is_clean, run_result.text()
    assert run_result.outcome is not None
    assert run_result.outcome.target_count > 500


SOURCE: list[Row] = [(b"a", b"0"), (b"b", b"0"), (b"a", b"1"), (b"b", b"1"), (b"a", b"2")]


@pytest.mark.parametrize(
    ("target", "wrongs"),
    [
        (SOURCE, {}),
        ([SOURCE[1], SOURCE[3], *SOURCE[::2]], {}),  # keys among one another have no order
        (SOURCE[:-1], {"lost": ["a:2"]}),
        ([*SOURCE, (b"a", b"1")], {"doubled": ["a:1"]}),
        ([*SOURCE, (b"c", b"9")], {"foreign": ["c:9"]}),
        (SOURCE[::-1], {"disordered": ["a", "b"]}),
        ([SOURCE[4], *SOURCE[:4], SOURCE[4]], {"doubled": ["a:2"], "disordered": ["a"]}),
        ([], {"lost": ["a:0", "a:1", "a:2", "b:0", "b:1"]}),
    ],
)
def test_the_checker_sees_what_is_wrong(target: list[Row], wrongs: dict[str, list[str]]) -> None:
    outcome = compare(SOURCE, target)
    kinds = ("lost", "doubled", "foreign", "disordered")
    assert {kind: getattr(outcome, kind) for kind in kinds if getattr(outcome, kind)} == wrongs
    assert outcome.is_clean is not bool(wrongs)
