"""The examples of delivery guarantees: each claim, as its own table states it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples" / "delivery"
ORDER_COUNT = 240


def table_of(script: str) -> dict[str, int]:
    words = [sys.executable, str(EXAMPLES / script), "--count", str(ORDER_COUNT)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^  (\S.*?) +([\d,]+)$", done.stdout, flags=re.MULTILINE)
    return {what: int(count.replace(",", "")) for what, count in rows}


@pytest.mark.parametrize(
    ("script", "loses", "doubles"),
    [
        ("at_most_once.py", True, False),
        ("at_least_once.py", False, True),
        ("exactly_once.py", False, False),
        ("exactly_once_sqlite.py", False, False),
    ],
)
def test_a_worker_that_dies_twice_loses_and_doubles_what_its_guarantee_allows(
    script: str, loses: bool, doubles: bool
) -> None:
    rows = table_of(script)
    assert rows["orders"] == ORDER_COUNT
    assert rows["times that the worker was killed"] == 2
    assert (rows["orders lost"] > 0) is loses
    assert (rows["orders handled more than once"] > 0) is doubles
