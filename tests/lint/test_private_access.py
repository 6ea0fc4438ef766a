"""The lint rule for private accesses finds them, and no more of them in this project than there may be."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lint import private_access
from tests.lint.private_access import accesses, findings


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    "line",
    [
        "x = log._segments",
        "x.y._z = 1",
        "patch.object(Log, '_append', f)",
        "monkeypatch.setattr(log, '_read', f)",
    ],
)
def test_an_access_is_found(tmp_path: Path, line: str) -> None:
    write(tmp_path, "tests/test_a.py", f"\n{line}\n")
    (text,) = accesses(tmp_path)
    assert text.startswith("tests/test_a.py:2: ")


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    def f(self, other):\n        self._x = other._x\n",
        "class A(B):\n    def f(self):\n        return super()._f() + self._x\n",
        "asyncio._get_running_loop()",
        "x.__class__",
    ],
)
def test_what_belongs_to_the_file_or_to_others_is_left_alone(tmp_path: Path, text: str) -> None:
    write(tmp_path, "tests/test_a.py", text)
    assert list(accesses(tmp_path)) == []


def test_planted_bugs_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_access, "ACCESSES_MAX", 0)
    write(tmp_path, "tests/simulation/mutants.py", "patch.object(Log, '_append', f)\n")
    assert list(findings(tmp_path)) == []
    write(tmp_path, "tests/test_a.py", "log._append()\n")
    place, summary = findings(tmp_path)
    assert place == "tests/test_a.py:1: log._append"
    assert summary.startswith("tests have 1 private accesses, and may have 0")


def test_this_project_keeps_to_its_numbers() -> None:
    assert list(findings(Path(__file__).parents[2])) == []
