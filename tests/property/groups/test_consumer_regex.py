"""Our matcher against others that know the same syntax: Python's `re`, and RE2 itself where it is installed."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from odradek.groups.consumer.regex import TopicPattern
from odradek.model.errors import KafkaError

names = st.text(alphabet="aAb1_.-", min_size=1, max_size=8)  # a topic has a name
atoms = st.sampled_from(
    [
        "a",
        "b",
        "A",
        "1",
        "_",
        r"\.",
        "-",
        ".",
        r"\d",
        r"\w",
        r"\W",
        "[ab]",
        "[^a]",
        "[a-b1]",
        "[^.-]",
        r"\b",
        r"\B",
        "^",
        "$",
    ]
)


def repeated(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    counts = st.sampled_from(
        ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}", "{1,}", "{0}", "{2,3}?"]
    )
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        inner.map("({})".format),
        inner.map("(?:{})".format),
        st.tuples(inner.map("({})".format), counts).map("".join),
    )


patterns = st.recursive(atoms, repeated, max_leaves=10)


@settings(max_examples=400, deadline=None)
@given(pattern=patterns, subjects=st.lists(names, max_size=12))
@example(pattern="(a|b)*?$^", subjects=["a", "ab"])
def test_it_agrees_with_pythons_re_where_both_know_the_syntax(pattern, subjects):
    theirs = re.compile(pattern)
    ours = TopicPattern(pattern)
    for name in subjects:
        assert ours.matches(name) == bool(theirs.fullmatch(name)), (pattern, name)


@settings(max_examples=300, deadline=None)
@given(
    pattern=st.one_of(patterns, st.text(alphabet=r"ab()[]{}|*+?.\^$-1,:<>=!PpdDQEx0i", max_size=12)),
    subjects=st.lists(names, max_size=6),
)
def test_it_accepts_what_re2_accepts_and_agrees_with_it(pattern, subjects):
    re2 = pytest.importorskip("re2")
    options = re2.Options()
    options.log_errors = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = re2.compile(pattern, options)
        except re2.error:
            with pytest.raises(KafkaError):
                TopicPattern(pattern)
            return
    ours = TopicPattern(pattern)
    for name in subjects:
        assert ours.matches(name) == bool(theirs.fullmatch(name)), (pattern, name)


@settings(max_examples=200, deadline=None)
@given(pattern=st.text(max_size=30), name=names)
def test_any_text_is_either_refused_or_matched(pattern, name):
    try:
        compiled = TopicPattern(pattern)
    except KafkaError:
        assume(False)
        return
    assert compiled.matches(name) in (True, False)
