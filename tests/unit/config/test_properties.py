from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.files.properties import format_properties, parse_properties
from odradek.model.errors import ConfigError

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def values(text: str) -> dict[str, str]:
    return parse_properties(text).values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t=\t1", {"a": "1"}),
        ("a = = 1", {"a": "= 1"}),
        ("  a=1  ", {"a": "1  "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=1", {"": "1"}),
        ("# no\n! no\n\n  # no\na=1 # part of it", {"a": "1 # part of it"}),
        ("a=1,\\\n   2,\\\r\n\t3", {"a": "1,2,3"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("# a comment does not go on \\\na=1", {"a": "1"}),
        ("a=even\\\\\nb=2", {"a": "even\\", "b": "2"}),
        ("a=end\\", {"a": "end"}),
        ("a=1\\\n", {"a": "1"}),
        (r"a\=b\:c\ d=1", {"a=b:c d": "1"}),
        (r"a=\t\n\r\f\q\\", {"a": "\t\n\r\fq\\"}),
        (r"a=\u00e9\u20AC", {"a": "é€"}),
        (r"a=\ud83e\uddf5", {"a": "\U0001f9f5"}),
        ("\\\n\n# no\na=1", {"a": "1"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_a_file_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert values(text) == expected


def test_a_key_that_is_written_twice_is_reported() -> None:
    assert parse_properties("a=1\nb=2\na=3\na=4").repeated == ("a",)


@pytest.mark.parametrize("escape", [r"\u12", r"\u12g4", r"\u"])
def test_a_broken_escape_is_refused_with_its_line(escape: str) -> None:
    with pytest.raises(ConfigError, match="line 3"):
        parse_properties(f"# one\na=1\nb={escape}")


@given(st.dictionaries(TEXT, TEXT))
def test_what_is_written_reads_back(given_values: dict[str, str]) -> None:
    assert values(format_properties(given_values)) == given_values


@given(st.text(alphabet="ab=: #!\\\n\r\t\fu01"))
def test_no_text_does_more_than_raise_a_config_error(text: str) -> None:
    try:
        parse_properties(text)
    except ConfigError:
        pass
