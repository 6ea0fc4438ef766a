"""The demo's check sees every kind of difference, and its Java check comes before anything else."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pd = pytest.importorskip("pandas", reason="pandas is absent")

DEMO = Path(__file__).parents[3] / "examples" / "flights"


@pytest.fixture(scope="module")
def verify() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flights_verify", DEMO / "verify.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wanted(verify: ModuleType) -> pd.DataFrame:
    flights = pd.DataFrame(
        {
            "year": [2013] * 4,
            "month": [7, 7, 12, 12],
            "day": [1] * 4,
            "hour": [5, 5, 5, 23],
            "origin": ["EWR"] * 4,
            "carrier": ["UA"] * 4,
            "dep_time": [501, pd.NA, 502, 2301],
            "dep_delay": [1.0, pd.NA, 2.0, -3.0],
        }
    )
    airlines = pd.DataFrame({"carrier": ["UA"], "name": ["United"]})
    return verify.expected({"flights": flights, "airlines": airlines})


def found(wanted: pd.DataFrame) -> pd.DataFrame:
    return wanted.reset_index().assign(versions=1)


def test_local_hours_become_utc_with_the_clock_change_in_mind(wanted: pd.DataFrame) -> None:
    hours = [str(hour) for hour in wanted.index.get_level_values("hour")]
    assert hours == ["2013-07-01 09:00:00+00:00", "2013-12-01 10:00:00+00:00", "2013-12-02 04:00:00+00:00"]
    assert list(wanted["departures"]) == [1, 1, 1]
    assert list(wanted["cancellations"]) == [1, 0, 0]


def test_equal_results_have_no_differences(verify: ModuleType, wanted: pd.DataFrame) -> None:
    assert verify.differences(found(wanted), wanted) == []


def test_every_kind_of_difference_is_reported(verify: ModuleType, wanted: pd.DataFrame) -> None:
    rows = found(wanted)
    changed = rows.assign(departures=[1, 2, 1], mean_delay=[1.0, 2.0 + 1e-8, -3.0])
    assert verify.differences(changed, wanted) == [
        "departures differs in 1 groups, first in UA from EWR at 2013-12-01 10:00 UTC: 2 instead of 1.",
        "mean_delay differs in 1 groups, first in UA from EWR at 2013-12-01 10:00 UTC: 2.00000001 instead of 2.0.",
    ]
    assert verify.differences(rows.iloc[1:], wanted) == [
        "1 groups are missing, the first being UA from EWR at 2013-07-01 09:00 UTC."
    ]
    assert verify.differences(pd.concat([rows, rows.iloc[:1]]), wanted) == [
        "1 groups came out more than once."
    ]
    twice = rows.assign(versions=[1, 1, 2])
    assert verify.differences(twice, wanted) == [
        "1 groups were written more than once, first UA from EWR at 2013-12-02 04:00 UTC."
    ]
    stray = rows.iloc[:1].assign(carrier="XX")
    assert verify.differences(pd.concat([rows, stray]), wanted) == [
        "1 groups should not be there, the first being XX from EWR at 2013-07-01 09:00 UTC."
    ]


def test_a_missing_java_is_one_sentence_and_exit_code_1(tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, DEMO / "demo.py"], capture_output=True, text=True, env=environment, check=False
    )
    assert process.returncode == 1
    assert process.stdout == ""
    assert process.stderr.startswith(f"JAVA_HOME is {tmp_path}, but there is no program bin/java in it")
    assert process.stderr.count("\n") == 1
