"""`python -m tests.simulation`, as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.simulation import kill_rate
from tests.simulation.__main__ import main
from tests.simulation.fault_plan import FaultPlan
from tests.simulation.mutant import ASIDE

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


def test_one_planted_bug_is_hunted_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "caught_by.json"
    noted.write_text("{}")
    monkeypatch.setattr(kill_rate, "CAUGHT_BY_FILE", noted)
    invocation = CliRunner().invoke(main, ["--mutant", "ack_before_flush"])
    assert invocation.exit_code == 0, invocation.output
    assert invocation.output.startswith("ack_before_flush, storage, ")
    assert list(json.loads(noted.read_text())) == ["ack_before_flush"]


def test_a_planted_bug_that_is_not_in_the_bank_is_refused_with_the_reason() -> None:
    unknown = CliRunner().invoke(main, ["--mutant", "no_such_bug"])
    assert unknown.exit_code != 0
    assert "is its file imported in tests/simulation/bank.py?" in unknown.output
    mutant, reason = ASIDE[0]
    aside = CliRunner().invoke(main, ["--mutant", mutant.name])
    assert aside.exit_code != 0
    assert f"it is not hunted: {reason}" in aside.output
