"""docs/spark.md names every option there is, and no other, with its default."""

from __future__ import annotations

import re
from pathlib import Path

from odradek.config.options import DURATION_MS, Option
from odradek.spark.options.option_table import OPTIONS

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"
ROWS = re.findall(r"^\| (`[^|]+) \|(.*?)\|.*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


def test_the_page_lists_the_options_that_exist() -> None:
    listed = {name for names, _ in ROWS for name in CODE.findall(names)}
    assert listed == {option.name for option in OPTIONS.options}


def test_the_page_has_the_defaults_that_count() -> None:
    shown: dict[str, str] = {}
    for names, defaults in ROWS:
        cells = defaults.split(",") if "," in names and "," in defaults else [defaults] * names.count("`")
        for name, cell in zip(CODE.findall(names), cells, strict=False):
            shown.setdefault(name, cell)
    for option in OPTIONS.options:
        if option.default is not None:
            assert CODE.findall(shown[option.name]) == [text_of(option)], option.name


def text_of(option: Option) -> str:
    if option.type is DURATION_MS:
        assert option.default == 15 * 60_000
        return "15m"
    return str(option.default).lower() if isinstance(option.default, bool) else str(option.default)
