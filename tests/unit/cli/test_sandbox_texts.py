"""Both languages of the sandbox say the same things, of the same values."""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Iterator
from typing import Any, cast

import pytest

from odradek.cli.sandbox import access, story, texts
from odradek.cli.sandbox.command import _Narrator
from odradek.cli.sandbox.story import Claim, Lesson


def fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


def test_both_languages_name_the_same_values() -> None:
    differing = [key for key, (english, russian) in texts.WORDS.items() if fields(english) != fields(russian)]
    assert differing == []


def test_every_step_of_the_story_has_words() -> None:
    keys = set(
        re.findall(
            r'(?:StoryText|Claim)\(\s*"([a-z_.]+)"', inspect.getsource(story) + inspect.getsource(access)
        )
    )
    assert {"partitions.intro", "partitions.spread"} <= keys
    assert keys <= texts.WORDS.keys()


def test_every_lesson_has_a_title_in_each_language() -> None:
    for lesson in (*story.LESSONS, access.LESSON):
        assert all(texts.title(lesson, language) for language in texts.LANGUAGES)


@pytest.mark.parametrize("language", texts.LANGUAGES)
def test_what_was_counted_reads_as_a_person_writes_it(language: str) -> None:
    counted = {"leaders": {0: 2, 1: 3, 2: 1}, "shares": [0, 1, 1, 1], "isr": [1, 2, 3], "records": 12345}
    for key, (english, _) in texts.WORDS.items():
        values = dict.fromkeys(fields(english), counted["leaders"])
        assert not re.search(r"[{}\[]", texts.words(key, language, **values).replace("[Enter]", "")), key
    assert "0: 2, 1: 3, 2: 1" in texts.words("partitions.spread", language, leaders=counted["leaders"])
    assert "0, 1, 1, 1" in texts.words("groups.idle", language, shares=counted["shares"])
    assert "12,345" in texts.words("partitions.order", language, records=counted["records"])


@pytest.mark.parametrize("columns", [40, 60, 200])
def test_lines_break_between_words(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    def lesson(_: object) -> Iterator[Claim]:
        yield Claim("groups.once", True, {"expected": 400, "count": 400, "distinct": 400})

    narrator = _Narrator("en", quiet=False)
    narrator.run_lesson("groups", cast(Lesson, lesson), cast(Any, None))
    narrator.say(f"  export ODRADEK_CLIENT_CONFIG=/a/path/that/is/longer/than/{'x' * 40}/the-line")
    lines = capsys.readouterr().out.splitlines()
    words = " ".join(lines).split()
    assert words[-1] == f"ODRADEK_CLIENT_CONFIG=/a/path/that/is/longer/than/{'x' * 40}/the-line"
    assert texts.words("groups.once", "en", expected=400, count=400, distinct=400).split() == words[3:-2]
    assert all(len(line) <= min(columns, 100) + 10 for line in lines if "ODRADEK" not in line)
