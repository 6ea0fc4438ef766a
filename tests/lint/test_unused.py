"""The rule that nothing is defined without a user: what it reports, and what it leaves alone."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.lint.unused import check, words_of


def names_in(source: str, elsewhere: str = "") -> list[str]:
    mentioned = Counter(f"{source} {elsewhere}".replace("(", " ").replace(")", " ").replace(".", " ").split())
    return [name for _, name in check(source, mentioned)]


UNUSED = [
    "LIMIT = 3",
    "LIMIT : Final = 3",
    "def size ( ) : ...",
    "async def size ( ) : ...",
    "def size ( depth ) :\n    return size ( depth - 1 )",
    "class Size :\n    pass",
]


@pytest.mark.parametrize("source", UNUSED)
def test_what_only_names_itself_is_unused(source: str) -> None:
    assert len(names_in(source)) == 1
    assert names_in(source, "LIMIT size Size") == []


def test_a_method_of_a_plain_class_is_unused_and_one_that_a_base_calls_is_not() -> None:
    method = "    def size ( self ) : ..."
    assert names_in(f"class Batch :\n{method}", "Batch") == ["size"]
    assert names_in(f"class Batch :\n    @property\n{method}", "Batch") == ["size"]
    assert names_in(f"class Batch ( Base ) :\n{method}", "Batch") == []
    assert names_in(f"class Batch :\n    @handler\n{method}", "Batch") == []


def test_what_is_for_others_says_so() -> None:
    assert names_in("apilevel = '2.0'  # unused: PEP 249") == []
    assert names_in("def __getattr__ ( name ) : ...") == []


def test_words_are_read_from_code_and_prose(tmp_path) -> None:
    (tmp_path / "a.md").write_text("Call `broker.size()`.")
    assert words_of([tmp_path / "a.md"])["size"] == 1
