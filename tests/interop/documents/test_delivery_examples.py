"""The examples of delivery guarantees: each claim, as its own table states it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples" / "delivery"
ORDER_COUNT = 240
SECONDS_MAX = 120
CLAIMS = [
    ("at_most_once.py", True, False),
    ("at_least_once.py", False, True),
    ("exactly_once.py", False, False),
    ("exactly_once_sqlite.py", False, False),
]
"""A script, whether orders get lost, and whether orders are handled twice."""
Scripts = dict[str, subprocess.Popen[str]]


@pytest.fixture(scope="module")
def scripts() -> Iterator[Scripts]:
    """All scripts, side by side, each with a broker of its own; the processes end with the module."""
    running = {
        script: subprocess.Popen(
            [sys.executable, str(EXAMPLES / script), "--count", str(ORDER_COUNT)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for script, *_ in CLAIMS
    }
    try:
        yield running
    finally:
        for process in running.values():
            process.kill()
            process.communicate()


def _table_of(process: subprocess.Popen[str]) -> dict[str, int]:
    printed, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, errors
    rows = re.findall(r"^  (\S.*?) +([\d,]+)$", printed, flags=re.MULTILINE)
    return {what: int(count.replace(",", "")) for what, count in rows}


@pytest.mark.parametrize(("script", "loses", "doubles"), CLAIMS)
def test_a_worker_that_dies_twice_loses_and_doubles_what_its_guarantee_allows(
    script: str, loses: bool, doubles: bool, scripts: Scripts
) -> None:
    rows = _table_of(scripts[script])
    assert rows["orders"] == ORDER_COUNT
    assert rows["times that the worker was killed"] == 2
    assert (rows["orders lost"] > 0) is loses
    assert (rows["orders handled more than once"] > 0) is doubles
