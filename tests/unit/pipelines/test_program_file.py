"""A program is a file; what is wrong with it is one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.pipelines.program_file import MODULE, WrongProgram, load_program


@pytest.fixture(autouse=True)
def process_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("sys.argv", list(sys.argv))
    monkeypatch.setattr("sys.path", list(sys.path))
    yield
    sys.modules.pop(MODULE, None)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "totals.py"
    file.write_text(text)
    return file


def test_a_function_is_found_with_its_arguments_and_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_totals.py").write_text("factor = 2")
    file = written(
        tmp_path,
        "import sys, neighbour_of_totals\n"
        "def pipeline(spark): return [spark, neighbour_of_totals.factor, sys.argv[1:]]\n"
        "if __name__ == '__main__': raise SystemExit('by hand only')",
    )
    program = load_program(file, ["--since", "2013"])
    assert program.app is None
    assert program.pipeline is not None
    assert program.pipeline("spark") == ["spark", 2, ["--since", "2013"]]


def test_an_app_is_found(tmp_path: Path) -> None:
    file = written(tmp_path, "class App:\n    def start(self): pass\napp = App()")
    program = load_program(file, [])
    assert (program.app.start(), program.pipeline) == (None, None)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x = 1", r"totals\.py defines no pipeline: define `app"),
        ("app = 3", r"defines no pipeline"),
        ("def pipeline(spark): pass\nclass app: start = print", r"defines both"),
        ("a = 1\nb = 1 / 0", r"totals\.py, line 2: ZeroDivisionError: division by zero"),
        ("a = 1\n\ndef (:", r"totals\.py, line 3: invalid syntax"),
        ("import no_such_module_here", r"line 1: ModuleNotFoundError: No module named"),
        ("raise SystemExit(3)", r"line 1: SystemExit: 3"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(WrongProgram, match=line) as caught:
        load_program(written(tmp_path, text), [])
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WrongProgram, match=r"gone\.py: there is no such Python file on this machine"):
        load_program(tmp_path / "gone.py", [])
