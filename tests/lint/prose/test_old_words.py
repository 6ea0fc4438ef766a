"""The lint rule for old-fashioned words counts them in prose, and finds few in this project."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lint.prose.old_words import SHARE_MAX, share

SOURCE = Path(__file__).resolve().parents[3] / "src" / "odradek"


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ('"""What stands in the file."""\n', ["a.py:1: stands"]),
        ('"""Reads all,\n\nalso those\nof a topic."""\n', ["a.py:3: those of"]),
        ("x = 1\n# what is to be written\n", ["a.py:2: is to be"]),
        ('class A:\n    x: int\n    """Behind the other."""\n', ["a.py:3: Behind"]),
        ('"""A standard stand-in, and the name `behind`."""\n', []),
        ('x = "stands behind"\n', []),
    ],
)
def test_old_words_are_counted_at_their_lines(tmp_path: Path, text: str, old: list[str]) -> None:
    (tmp_path / "a.py").write_text(text)
    assert share(tmp_path).old == old


def test_the_share_is_of_ten_thousand_words(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('"""One two three behind."""\n')
    assert share(tmp_path).in_ten_thousand == 2500.0


def test_the_project_has_few_of_them() -> None:
    counted = share(SOURCE)
    assert counted.in_ten_thousand <= SHARE_MAX, counted.old
