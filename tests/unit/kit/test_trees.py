"""Rules of one process share syntax trees, and each rule has its say."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kit.trees import keep, parsed
from tests.lint.__main__ import RULES, main

LINT = Path(__file__).parents[2] / "lint"


def test_the_tree_of_a_text_that_is_kept_is_made_once_and_of_another_each_time() -> None:
    kept, other = "first = 1\n", "second = 2\n"
    keep([kept])
    assert parsed(kept) is parsed(kept)
    assert parsed(other) is not parsed(other)
    assert parsed(kept).body[0].lineno == 1


def test_every_rule_that_is_a_program_runs_with_the_others() -> None:
    programs = {path.stem for path in LINT.rglob("[!_]*.py") if "\ndef main(" in path.read_text("utf-8")}
    assert programs == RULES.keys()


def test_all_rules_run_and_those_that_find_something_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[str] = []

    def rule(name: str, outcome: int) -> int:
        ran.append(name)
        return outcome

    rules = {
        name: lambda name=name, outcome=outcome: rule(name, outcome) for name, outcome in (("a", 1), ("b", 0))
    }
    assert main(rules) == 1
    assert ran == ["a", "b"]
    assert "broken: a " in capsys.readouterr().err
    assert main({"b": rules["b"]}) == 0
