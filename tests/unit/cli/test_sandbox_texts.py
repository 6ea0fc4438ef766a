"""Both languages of the sandbox say the same things, of the same values."""

from __future__ import annotations

import inspect
import re
import string

from odradek.cli.sandbox import access, story, texts


def fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


def test_both_languages_name_the_same_values() -> None:
    differing = [key for key, (english, russian) in texts.WORDS.items() if fields(english) != fields(russian)]
    assert differing == []


def test_every_step_of_the_story_has_words() -> None:
    keys = set(
        re.findall(r'(?:Said|Claim)\(\s*"([a-z_.]+)"', inspect.getsource(story) + inspect.getsource(access))
    )
    assert keys
    assert keys <= texts.WORDS.keys()


def test_every_lesson_has_a_title_in_each_language() -> None:
    for lesson in (*story.LESSONS, access.LESSON):
        assert all(texts.title(lesson, language) for language in texts.LANGUAGES)
