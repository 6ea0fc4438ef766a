"""Each test is in one tier: `make fast`, `make broker` and `make spark` together run what `make test` runs."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
MAKEFILE = (TESTS.parent / "Makefile").read_text()
SPARK_MARK = re.compile(r"pytest\.mark\.spark\b")


def tier(name: str) -> set[str]:
    (folders,) = re.findall(rf"^{name} *:= (.+)$", MAKEFILE, re.MULTILINE)
    return set(folders.split())


def test_each_folder_of_tests_is_in_the_fast_tier_or_in_that_of_brokers_or_all_spark() -> None:
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")}
    fast, broker = tier("FAST"), tier("BROKER")
    assert not fast & broker
    assert folders - fast - broker == {"spark"}, "add a new folder of tests to a tier in the Makefile"


def test_what_is_marked_spark_is_in_the_tier_of_spark() -> None:
    marked = {
        path.relative_to(TESTS).parts[0]
        for path in TESTS.glob("*/**/*.py")
        if path != Path(__file__) and SPARK_MARK.search(path.read_text())
    }
    assert "spark" in marked
    assert marked <= tier("SPARK")


def test_tiers_exclude_each_other_by_the_marker() -> None:
    recipes = dict(re.findall(r"^(fast|broker|spark): .*\n\t(.+)$", MAKEFILE, re.MULTILINE))
    assert '-m "not spark"' in recipes["fast"]
    assert '-m "not spark"' in recipes["broker"]
    assert "-m spark " in recipes["spark"]
