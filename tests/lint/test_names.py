"""The lint rule for names finds what it is there for, and nothing in this project."""

from __future__ import annotations

from pathlib import Path

from tests.lint.names import findings

ROOT = Path(__file__).parents[2]


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_each_name_of_this_project_means_one_thing() -> None:
    assert list(findings(ROOT)) == []


def test_a_class_that_two_modules_define_is_found(tmp_path: Path) -> None:
    write(tmp_path, "src/odradek/a.py", "class Plan: ...\nclass _Step: ...\n")
    write(tmp_path, "src/odradek/b.py", "class Plan: ...\nclass _Step: ...\n")
    assert list(findings(tmp_path)) == ["class Plan is defined 2 times: src/odradek/a.py, src/odradek/b.py"]


def test_messages_and_record_engines_are_left_alone(tmp_path: Path) -> None:
    for name in ("messages/x/a.py", "messages/x/b.py", "records/_fast.py", "records/_plain.py"):
        write(tmp_path, f"src/odradek/{name}", "class Topic: ...\n")
    assert list(findings(tmp_path)) == []


def test_a_file_name_that_says_nothing_is_found(tmp_path: Path) -> None:
    write(tmp_path, "tests/utils.py", "")
    assert list(findings(tmp_path)) == [
        "tests/utils.py: a file name that says nothing: name what the file holds"
    ]


def test_a_retired_word_is_found_as_an_identifier_and_not_in_prose(tmp_path: Path) -> None:
    write(tmp_path, "src/odradek/a.py", '"""Of long standing."""\nx = 1\nself.standing = x\n')
    assert list(findings(tmp_path)) == ["src/odradek/a.py:3: standing is retired: availability"]
