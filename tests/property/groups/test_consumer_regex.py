"""Expressions of subscriptions beside Python's `re`, where both know the syntax; any text is matched or refused."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.groups.consumer.regex import TopicPatterns, matching
from odradek.model.errors import ErrorCode, KafkaError

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
    assert matching(pattern, subjects) == [name for name in subjects if theirs.fullmatch(name)]


@settings(max_examples=300, deadline=None)
@given(
    pattern=st.one_of(
        st.text(max_size=30), st.text(alphabet=r"ab()[]{}|*+?.\^$-1,:<>=!PpdDQEx0i", max_size=12)
    ),
    subjects=st.lists(names, max_size=6),
)
def test_any_text_is_either_refused_with_its_own_code_or_matched(pattern, subjects):
    try:
        matched = matching(pattern, subjects)
    except KafkaError as error:
        refusal = error
        matched = []
    else:
        refusal = None
    assert set(matched) <= set(subjects)
    if refusal is not None:
        assert refusal.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert repr(pattern) in refusal.message


@settings(max_examples=100, deadline=None)
@given(pattern=patterns, rounds=st.lists(st.lists(names, max_size=8), min_size=1, max_size=4))
def test_what_is_remembered_is_what_would_be_matched(pattern, rounds):
    remembered = TopicPatterns()
    for subjects in rounds:
        assert remembered.matching(pattern, subjects) == set(matching(pattern, subjects))
