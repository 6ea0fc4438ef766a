"""The lint rule for names finds what it is there for, and nothing in this project."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lint.names import findings


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


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


@pytest.mark.parametrize(
    "line",
    [
        "one = 1",
        "one: int = 1",
        "first, one = 1, 2",
        "for each in range(2): ...",
        "x = [told for told in ()]",
        "x = lambda found: 1",
        "def f(*, found=()): ...",
        "with open('') as found: ...",
        "if (found := 1): ...",
        "for item in (): ...",
        "result, answer_count = 1, 2",
        "def g(answer): ...",
    ],
)
def test_a_variable_whose_name_says_nothing_is_found(tmp_path: Path, line: str) -> None:
    write(tmp_path, "tests/a.py", f"{line}\n")
    (finding,) = findings(tmp_path)
    assert finding.startswith("tests/a.py:1: a variable named ")


def test_some_names_are_left_alone_outside_the_house_alone(tmp_path: Path) -> None:
    text = "for result in ():\n    item = result\n"
    write(tmp_path, "benchmarks/a.py", text)
    assert list(findings(tmp_path)) == []
    write(tmp_path, "src/odradek/a.py", text)
    assert len(list(findings(tmp_path))) == 2


@pytest.mark.parametrize("word", ["given", "ground", "kept", "looks", "made", "place", "said", "wish"])
def test_a_word_with_many_meanings_names_nothing_in_the_rooms_of_pipelines(tmp_path: Path, word: str) -> None:
    for room in ("broker", "streams"):
        write(tmp_path, f"src/odradek/{room}/a.py", f"def f({word}): ...\n")
    assert list(findings(tmp_path)) == [
        f"src/odradek/streams/a.py:1: a variable named {word}: say what it holds"
    ]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("def kept_rows(): ...", "kept"),
        ("self._place = 1", "place"),
        ("places = []", "place"),
        ("def f(is_given): ...", "given"),
        ("rows_made = 1", "made"),
    ],
)
def test_a_word_with_many_meanings_is_no_part_of_a_name_there(tmp_path: Path, line: str, word: str) -> None:
    for room in ("broker", "views"):
        write(tmp_path, f"src/odradek/{room}/a.py", f"{line}\n")
    (finding,) = findings(tmp_path)
    assert finding.startswith(f"src/odradek/views/a.py:1: {word!r} in the name ")


def test_fields_constants_and_longer_words_have_their_names_there(tmp_path: Path) -> None:
    text = "class A:\n    made_ms: int = 0\n\nIS_KEPT = 1\nreplaced = placement = maker = 1\nx.is_kept()\n"
    write(tmp_path, "src/odradek/views/a.py", text)
    assert list(findings(tmp_path)) == []


@pytest.mark.parametrize("line", ["def find_anew(): ...", "x = a.was_told", "x = f(_told_of=1)"])
def test_a_hard_word_in_a_name_is_found(tmp_path: Path, line: str) -> None:
    write(tmp_path, "src/odradek/a.py", f"{line}\n")
    (finding,) = findings(tmp_path)
    assert " in a name: write " in finding


def test_fields_words_and_names_with_more_in_them_are_left_alone(tmp_path: Path) -> None:
    write(
        tmp_path, "tests/a.py", '"""One."""\nclass A:\n    found: int = 1\n\none_day = f(one=1)\nx.told = 1\n'
    )
    assert list(findings(tmp_path)) == []


@pytest.mark.parametrize("name", ["_ask", "ask_leader", "look_again", "_take_over", "asked", "tell"])
def test_a_function_with_a_verb_of_our_own_is_found(tmp_path: Path, name: str) -> None:
    write(tmp_path, "src/odradek/a.py", f"class A:\n    async def {name}(self): ...\n")
    (finding,) = findings(tmp_path)
    assert finding.startswith(f"src/odradek/a.py:2: a function named {name}: write ")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("src/odradek/a.py", "look_up"),
        ("src/odradek/a.py", "_look_up_committed"),
        ("src/odradek/a.py", "_take_offline"),
        ("src/odradek/a.py", "retake"),
        ("src/odradek/records/a.py", "take"),
        ("tests/a.py", "take"),
    ],
)
def test_the_fields_words_may_stay(tmp_path: Path, path: str, name: str) -> None:
    write(tmp_path, path, f"def {name}(): ...\n")
    assert list(findings(tmp_path)) == []
