"""The lint rule for plain words finds them in prose, and none in this project."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lint.prose.wording import PLAIN, findings


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("word", PLAIN)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/odradek/a.py", '"""Of\n\n{}."""\n'),
        ("tests/a.py", "x = 1\n\nx = 2  # {} knows\n"),
        ("src/odradek/b.py", 'x = 1\n\nraise ValueError(f"{} knows {{x}}")\n'),
        ("docs/a.md", "# A\n\n{} knows\n"),
        ("README.md", "# A\n\n{} knows\n"),
    ],
)
def test_a_word_is_found_at_its_line(tmp_path: Path, name: str, text: str, word: str) -> None:
    write(tmp_path, name, text.format(word.capitalize()))
    (finding,) = findings(tmp_path)
    assert finding == f"{name}:3: {word!r}: write {PLAIN[word]}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/odradek/a.py", '"""Says what became\n    of it."""\n'),
        ("docs/a.md", "It says what became\nof it.\n"),
    ],
)
def test_a_phrase_may_go_on_in_the_next_line(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, name, text)
    (finding,) = findings(tmp_path)
    assert finding == f"{name}:1: 'what became of': write {PLAIN['what became of']}"


def test_names_and_data_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "src/odradek/a.py", 'nobody = "nobody"\nx = "nobody-knows"\n"""The name `anew`."""\n')
    assert list(findings(tmp_path)) == []


def test_the_name_of_a_test_is_prose(tmp_path: Path) -> None:
    write(tmp_path, "tests/test_a.py", "\n\nasync def test_a_client_is_told() -> None: ...\n")
    (finding,) = findings(tmp_path)
    assert finding.startswith("tests/test_a.py:3: 'told' in the name of a test: write hears")
