"""`python -m tests.simulation`, as a person uses it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.simulation.__main__ import main
from tests.simulation.fault_plan import FaultPlan

pytestmark = pytest.mark.sim


def test_a_sweep_prints_a_table_and_says_that_each_seed_ran_twice() -> None:
    invocation = CliRunner().invoke(main, ["--seeds", "2", "--first", "1", "--scenario", "storage"])
    assert invocation.exit_code == 0, invocation.output
    assert ["storage", "2"] in [line.split()[:2] for line in invocation.output.splitlines()]
    assert "each seed ran twice, with different hash seeds" in invocation.output


def test_one_seed_runs_again_from_the_line_that_a_failure_prints(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    arguments = [
        "--scenario",
        "storage",
        "--seed",
        "1",
        "--faults",
        "kill@30,power@12",
        "--trace",
        str(trace),
    ]
    first, second = (CliRunner().invoke(main, arguments) for _ in range(2))
    assert first.exit_code == 0, first.output
    assert first.output == second.output
    assert "crash ('kill',)" in trace.read_text()


def test_a_fault_that_does_not_exist_is_refused() -> None:
    invocation = CliRunner().invoke(main, ["--seed", "1", "--faults", "flood@3"])
    assert invocation.exit_code != 0
    assert "flood@3" in str(invocation.exception)


def test_plans_are_read_as_they_are_written() -> None:
    for seed in range(50):
        plan = FaultPlan.draw(seed)
        assert FaultPlan.parse(str(plan)) == (plan if plan.lives else FaultPlan(((),)))
    assert str(FaultPlan.parse("none,eio@3+kill@9")) == "none,eio@3+kill@9"
