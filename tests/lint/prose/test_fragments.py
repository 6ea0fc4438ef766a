"""The lint rule for fragments finds them, and lets sentences pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lint.prose import fragments as rule
from tests.lint.prose.fragments import findings, fragments, is_fragment, unnamed


@pytest.mark.parametrize(
    "text",
    [
        "Of each partition.",
        "Of a record; None when it has no headers.",
        "Those of this process.",
        "At once.",
        "As far as any may go.",
        "Where Spark would look for Java.",
        "Like `end`, but False.",
    ],
)
def test_a_part_of_a_sentence_is_a_fragment(text: str) -> None:
    assert is_fragment(text)


@pytest.mark.parametrize(
    "text",
    [
        "The end offset of each partition.",
        "Returns the end offset of each partition.",
        "With a keytab, tickets are in memory.",
        "At most 10 connections are open.",
        "`end` of a segment.",
        "",
    ],
)
def test_a_sentence_is_none(text: str) -> None:
    assert not is_fragment(text)


def test_docstrings_of_all_kinds_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "src" / "a.py"
    path.parent.mkdir()
    path.write_text(
        '"""Of one."""\n\nX = 1\n"""Of two."""\n\nclass A:\n    """Of three."""\n    x: int\n    """Of four."""\n\n'
        '    def f(self):\n        """Of five."""\n        g()\n        """Of no one: text."""\n'
    )
    lines = list(fragments(tmp_path))
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["one.", "two.", "three.", "four.", "five."]
    monkeypatch.setattr(rule, "FRAGMENTS_MAX", 5)
    assert list(findings(tmp_path)) == []
    monkeypatch.setattr(rule, "FRAGMENTS_MAX", 4)
    assert len(list(findings(tmp_path))) == 6


def test_a_class_or_function_begins_with_what_it_is_or_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "src" / "a.py"
    path.parent.mkdir()
    path.write_text(
        'class A:\n    """`keys`: those of now."""\n    def __init__(self, n):\n        """`n`: a count."""\n\n'
        'class B:\n    """See the module."""\n    def f(self):\n        """See `A.f`."""\n\n'
        'def g():\n    """Idempotent."""\n\ndef h():\n    """`text` in upper case."""\n\n'
        'class C:\n    """A key. Used on the event loop only."""\n    def k(self):\n        """Ends it. Idempotent."""\n'
    )
    assert [line.rsplit(" ", 1)[1] for line in unnamed(tmp_path)] == ["A", "B", "g", "h"]
    monkeypatch.setattr(rule, "UNNAMED_MAX", 4)
    assert list(findings(tmp_path)) == []
    monkeypatch.setattr(rule, "UNNAMED_MAX", 3)
    assert len(list(findings(tmp_path))) == 5


def test_this_project_has_no_more_than_it_may() -> None:
    assert list(findings(Path(__file__).resolve().parents[3])) == []
