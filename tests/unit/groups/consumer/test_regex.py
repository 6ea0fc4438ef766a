"""Subscription by regular expression: RE2's syntax, the whole name, and no expression that takes for ever."""

from __future__ import annotations

import pytest

from odradek.groups.consumer.regex import WORK_MAX, TopicPattern, TopicPatterns
from odradek.groups.consumer.regex_syntax import parse
from odradek.model.errors import ErrorCode, KafkaError

NAMES = ["a", "aa", "ab", "b", "orders", "orders-eu", "orders.eu.1", "_x", "A", "payments-2024", "x.y", "x-y"]


def matching(pattern: str) -> list[str]:
    return [name for name in NAMES if TopicPattern(pattern).matches(name)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", []),
        (".*", NAMES),
        ("a", ["a"]),
        ("a*", ["a", "aa"]),
        ("a+?", ["a", "aa"]),
        ("a{2}", ["aa"]),
        ("a{1,}", ["a", "aa"]),
        ("a{0,1}b?", ["a", "ab", "b"]),
        ("orders", ["orders"]),
        ("^orders$", ["orders"]),
        ("orders.*", ["orders", "orders-eu", "orders.eu.1"]),
        (r"orders\b.*", ["orders", "orders-eu", "orders.eu.1"]),
        (r"x\By|x[.]y", ["x.y"]),
        (r"\w+", ["a", "aa", "ab", "b", "orders", "_x", "A"]),
        (r"[^\w]*", []),
        (r"[[:alpha:]]{6}", ["orders"]),
        (r"(?i)a", ["a", "A"]),
        (r"(?i:A)b|(?P<other>b)", ["ab", "b"]),
        (r"(?i)(?-i)a", ["a"]),
        (r"a|b|(?:x\.y)", ["a", "b", "x.y"]),
        (r"\Qx.y\E", ["x.y"]),
        (r"\x78\x{2e}y", ["x.y"]),
        (r"x\056y", ["x.y"]),
        (r"\pL+", ["a", "aa", "ab", "b", "orders", "A"]),
        (r"\P{Lu}\p{Greek}*", ["a", "b"]),
        (r"[a-b]+", ["a", "aa", "ab", "b"]),
        (r"[]a-]", ["a"]),
        (r"x[.-]y", ["x.y", "x-y"]),
        (r"orders\Z?|a", None),
        (r"(((((a)))))", ["a"]),
        (r"(a*)*", ["a", "aa"]),
        (r"a{,2}", []),
        (r"\Ab\z", ["b"]),
        ("é|b", ["b"]),
    ],
)
def test_the_whole_name_is_matched_by_the_rules_of_re2(pattern, names):
    if names is None:
        with pytest.raises(KafkaError):
            TopicPattern(pattern)
    else:
        assert matching(pattern) == names


@pytest.mark.parametrize(
    "pattern",
    [
        "*a", "a**", "a*+", "(a", "a)", "[a", "[z-a]", "[", "a\\", r"(a)\1", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)",
        "(?#c)a", "(?x)a", "(?P=n)", "(?P<n>a)(?P<n>b)", "a{2,1}", "a{1001}", "a{99999999999}", r"\G", r"\p{Klingon}", r"\8",
        r"\p", "[[:nothing:]]", r"\x{110000}", r"[a-\d]", "(" * 1001, "(" * 5000 + ")" * 5000,
    ],
)  # fmt: skip
def test_what_re2_does_not_accept_is_refused_with_its_own_code(pattern):
    with pytest.raises(KafkaError) as refused:
        TopicPattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)*(.*)*(.*)*b"])
def test_an_expression_that_makes_others_explode_takes_one_step_per_character(pattern):
    assert not TopicPattern(pattern).matches("a" * 249)


@pytest.mark.parametrize(
    "pattern", ["((a{1000}){1000}){1000}", "(((a{100}){100}){100})", "(a{500}b{500}){500}"]
)
def test_repetitions_that_would_fill_the_memory_are_refused_before_they_are_written_out(pattern):
    with pytest.raises(KafkaError, match="too large"):
        TopicPattern(pattern)


def test_an_expression_with_exponentially_many_states_is_given_up_after_bounded_work():
    pattern = TopicPattern("(a|b)*a(a|b){400}(a|b)*c")
    names = [
        "".join("ab"[(seed >> bit) & 1] for bit in range(240)) for seed in range(0, 2**64, 2**57 + 12345)
    ]
    with pytest.raises(KafkaError, match="too much work"):
        pattern.matching(names)
    assert pattern.work_left > -WORK_MAX


def test_known_names_and_states_cost_no_more_work():
    pattern = TopicPattern("orders-.*")
    pattern.matching(f"orders-{number}" for number in range(10))
    before = pattern.work_left
    assert len(pattern.matching(f"orders-{number}" for number in range(1000))) == 1000
    assert before - pattern.work_left < 1000


def test_thousands_of_expressions_are_not_all_remembered():
    patterns = TopicPatterns()
    for number in range(3000):
        patterns.matching(f"orders-{number}-.*", ["orders-7-x"])
    assert len(patterns) <= 2000
    assert patterns.matching("orders-7-.*", ["orders-7-x"]) == {"orders-7-x"}


def test_one_that_was_refused_is_refused_again():
    patterns = TopicPatterns()
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            patterns.matching("(", [])
        assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(patterns) == 1


@pytest.mark.parametrize("pattern", ["|" * 32_760, "a|" * 16_000, "(" * 900 + "a|" * 9000 + ")" * 900])
def test_alternatives_count_with_all_that_joins_them(pattern):
    with pytest.raises(KafkaError, match="too large"):
        TopicPattern(pattern)


def test_branches_are_joined_once_and_not_again_for_each_branch():
    assert len(parse("a|" * 5000)) == 15_000
    with pytest.raises(KafkaError, match="too large"):
        parse("(a{1000}){0}" * 30)


def test_a_pattern_has_so_many_characters_at_most():
    TopicPattern("[" + "a" * 32_765 + "]")
    with pytest.raises(KafkaError, match="32767 are the most"):
        TopicPattern("[" + "a" * 32_766 + "]")


def test_a_class_that_is_written_often_is_kept_once_and_looks_at_a_character_once():
    classes = {instruction.accepted for instruction in parse(r"[\pL\pL\d]" * 2000 + r"[\d\pL]")}
    assert len(classes) == 1
    pattern = TopicPattern("[" + r"\p{Han}" * 4600 + "x]+")
    assert pattern.matches("x" * 200)
    assert WORK_MAX - pattern.work_left < 50


def test_a_class_of_many_ranges_counts_as_work():
    ranges = "".join(f"{chr(code)}-{chr(code + 9)}" for code in range(0x4E00, 0x4E00 + 10_000))
    pattern = TopicPattern(f"[^{ranges}]*")
    with pytest.raises(KafkaError, match="too much work"):
        pattern.matches("".join(map(chr, range(0x100, 0x200))))


def test_names_of_ten_thousand_different_characters_cost_a_step_for_each():
    name = "".join(map(chr, range(0x100, 0x2800)))
    pattern = TopicPattern("[^a]+")
    assert pattern.matches(name)
    assert WORK_MAX - pattern.work_left < 8 * len(name)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (r"(?i)GRÖSSE\p{Greek}", "größeω"),
        (r"(?i)[à-ÿ]+", "ÀÿÉ"),
        (r"\p{Han}\PL", "中1"),
        (r"(?i)\x{212A}", "k"),
    ],
)
def test_characters_beyond_those_of_topics_are_known(pattern, name):
    assert TopicPattern(pattern).matches(name) == ("ß" not in name)
