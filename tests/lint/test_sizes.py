"""The lint rule for sizes: small files, large files, large classes, long functions, full folders."""

from __future__ import annotations

from pathlib import Path

from tests.lint.sizes import (
    CLASS_METHODS_MAX,
    FILE_LINES_MAX,
    FILE_LINES_MIN,
    FOLDER_FILES_MAX,
    FUNCTION_LINES_MAX,
    LARGE_CLASSES,
    findings,
)

LONG_ENOUGH = "x = 1\n" * FILE_LINES_MIN


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_small_file_with_one_user_is_found(tmp_path: Path) -> None:
    write(tmp_path, "src/odradek/net/a.py", "x = 1\n")
    write(tmp_path, "src/odradek/net/b.py", f"from odradek.net.a import x\n{LONG_ENOUGH}")
    (finding,) = findings(tmp_path)
    assert finding.startswith("src/odradek/net/a.py: 1 lines and one user: fold it")


def test_a_small_file_with_two_users_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "src/odradek/net/a.py", "x = 1\n")
    write(tmp_path, "src/odradek/net/b.py", f"from odradek.net import a\n{LONG_ENOUGH}")
    write(tmp_path, "tests/test_a.py", 'a = lazy("odradek.net.a")\n')
    assert list(findings(tmp_path)) == []


def test_a_small_file_with_a_user_in_another_room_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "src/odradek/net/a.py", "x = 1\n")
    write(tmp_path, "src/odradek/broker/b.py", f"from odradek.net.a import x\n{LONG_ENOUGH}")
    assert list(findings(tmp_path)) == []


def test_a_handler_may_be_small(tmp_path: Path) -> None:
    write(tmp_path, "src/odradek/broker/handlers/a.py", "x = 1\n")
    assert list(findings(tmp_path)) == []


def test_a_large_file_and_a_long_function_are_found(tmp_path: Path) -> None:
    write(tmp_path, "tests/a.py", "x = 1\n" * (FILE_LINES_MAX + 1))
    write(tmp_path, "tests/b.py", "\n\ndef f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX)
    assert [finding.partition(",")[0] for finding in findings(tmp_path)] == [
        f"tests/a.py: {FILE_LINES_MAX + 1} lines",
        f"tests/b.py:3: f has {FUNCTION_LINES_MAX + 1} lines",
    ]


def class_of(method_count: int, name: str = "A") -> str:
    methods = "".join(f"    def m{number}(self): ...\n" for number in range(method_count))
    return f"class {name}:\n{methods}"


def test_a_large_class_is_found(tmp_path: Path) -> None:
    write(tmp_path, "tests/a.py", class_of(CLASS_METHODS_MAX))
    write(tmp_path, "tests/b.py", class_of(CLASS_METHODS_MAX + 1))
    (finding,) = findings(tmp_path)
    assert finding.startswith(f"tests/b.py:1: A has {CLASS_METHODS_MAX + 1} methods")


def test_a_class_that_is_named_may_be_large_and_is_named_no_longer_than_it_is(tmp_path: Path) -> None:
    path, _, name = next(iter(LARGE_CLASSES)).partition(":")
    write(tmp_path, path, class_of(CLASS_METHODS_MAX + 1, name))
    assert list(findings(tmp_path)) == []
    write(tmp_path, path, class_of(CLASS_METHODS_MAX, name))
    (finding,) = findings(tmp_path)
    assert finding.endswith("can go")


def test_a_full_folder_is_found(tmp_path: Path) -> None:
    for number in range(FOLDER_FILES_MAX + 1):
        write(tmp_path, f"tests/unit/a/test_{number}.py", "x = 1\n")
    (finding,) = findings(tmp_path)
    assert finding.startswith(f"tests/unit/a: {FOLDER_FILES_MAX + 1} files")
