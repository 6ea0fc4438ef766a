"""docs/spark.md names every option there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from odradek.spark.option_table import OPTIONS

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"


def test_the_page_lists_the_options_that_exist() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|.*\|.*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert listed == {option.name for option in OPTIONS}
