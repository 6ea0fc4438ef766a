"""Subscription by regular expression: RE2's syntax, the whole name, and no expression that takes for ever."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable

import pytest

from odradek.groups.consumer import regex
from odradek.groups.consumer.regex import MatchingRequired, RegexWorker, TopicPatterns, matching
from odradek.model.errors import ErrorCode, KafkaError
from odradek.runtime.real_offload import ThreadOffload

HEAVY = "(a*b*)*" * 400 + "c"
"""An expression whose states do not fit into RE2's memory."""
NAMES = ["a", "aa", "ab", "b", "orders", "orders-eu", "orders.eu.1", "_x", "A", "payments-2024", "x.y", "x-y"]


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
            matching(pattern, NAMES)
    else:
        assert matching(pattern, NAMES) == names


@pytest.mark.parametrize(
    "pattern",
    [
        "*a", "a**", "a*+", "(a", "a)", "[a", "[z-a]", "[", "a\\", r"(a)\1", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)",
        "(?#c)a", "(?x)a", "(?P=n)", "a{2,1}", "a{1001}", r"\G", r"\p{Klingon}", r"\8",
        r"\p", "[[:nothing:]]", r"\x{110000}", r"[a-\d]", "(" * 1001,
    ],
)  # fmt: skip
def test_what_re2_does_not_accept_is_refused_with_its_own_code(pattern):
    with pytest.raises(KafkaError) as refused:
        matching(pattern, NAMES)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)*(.*)*(.*)*b"])
def test_an_expression_that_makes_others_explode_takes_one_step_per_character(pattern):
    assert matching(pattern, ["a" * 249]) == []


@pytest.mark.parametrize(
    "pattern",
    ["((a{1000}){1000}){1000}", "(((a{100}){100}){100})", r"\pL{1000}", r"(?i)[\pL\pN]{1000}"],
)
def test_programs_that_would_fill_the_memory_are_refused(pattern):
    with pytest.raises(KafkaError) as refused:
        matching(pattern, NAMES)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_the_error_quotes_the_expression_and_names_the_reason():
    with pytest.raises(KafkaError) as refused:
        matching("orders-(", [])
    assert refused.value.message == "the regular expression 'orders-(' is invalid: missing ): orders-("


def test_matches_stop_when_their_cpu_time_is_over():
    names = [f"{'ab' * 120}{number}" for number in range(2_000)]
    with pytest.raises(KafkaError, match="takes too much work: simplify it"):
        matching(HEAVY, names, cpu_ns_max=-(10**12))
    with pytest.raises(KafkaError, match="takes too much work: simplify it"):
        matching(HEAVY, ["ab" * 40_000])


def test_a_pattern_has_so_many_characters_at_most():
    matching("[" + "a" * 32_765 + "]", [])
    with pytest.raises(KafkaError, match="32767 are the most"):
        matching("[" + "a" * 32_766 + "]", [])


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(KafkaError, match="half a surrogate pair"):
        matching("a\ud800", [])


def test_a_broker_without_re2_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    monkeypatch.setattr(regex, "re2", regex.lazy("re2"))
    with pytest.raises(KafkaError, match="this broker lacks RE2") as refused:
        matching("a", [])
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


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
    assert matching(pattern, [name]) == ([] if "ß" in name else [name])


class CountedOffload:
    """Runs work on a thread, and counts it."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    async def run(self, work: Callable, *arguments: object):
        return await asyncio.to_thread(self._note, work, arguments)

    def _note(self, work: Callable, arguments: tuple[object, ...]):
        self.threads.append(threading.get_ident())
        return work(*arguments)


async def decide(
    patterns: TopicPatterns, pattern: str, names: list[str], offload: CountedOffload
) -> frozenset[str]:
    """Decides as a group does: again, after what it lacked was learnt."""
    for _ in range(3):
        try:
            return patterns.matching(pattern, names)
        except MatchingRequired as required:
            await patterns.learn(offload, required)
    raise AssertionError("the decision never learns enough")


@pytest.mark.parametrize(
    ("pattern", "count", "threads"),
    [
        ("orders-1.*", 100, 0),
        ("orders-1.*", 10_000, 1),  # many topics
        ("orders-1.*|" + "x" * 300, 100, 1),  # a long expression
        ("orders-1.*|" + "x" * 300, 0, 1),
        ("(a?b?c?){1000}|orders-1.*", 100, 1),  # a large program
    ],
)
async def test_long_work_is_for_another_thread_and_is_done_once(pattern, count, threads):
    patterns, offload = TopicPatterns(), CountedOffload()
    names = [f"orders-{number}" for number in range(count)]
    expected = {name for name in names if name.startswith("orders-1")}
    for _ in range(2):
        assert await decide(patterns, pattern, names, offload) == expected
    assert len(offload.threads) == threads
    assert threading.get_ident() not in offload.threads


async def test_only_topics_that_are_new_are_compared():
    patterns, offload = TopicPatterns(), CountedOffload()
    names = [f"orders-{number}" for number in range(10_000)]
    await decide(patterns, "orders-.*", names, offload)
    assert patterns.matching("orders-.*", [*names, "orders-x", "other"]) == {*names, "orders-x"}
    assert patterns.matching("orders-.*", names[:5]) == set(names[:5])
    assert patterns.matching("orders-.*", [*names[:5], "orders-y"]) == {*names[:5], "orders-y"}
    with pytest.raises(MatchingRequired):  # names that were gone for long were forgotten
        patterns.matching("orders-.*", names)


@pytest.mark.parametrize("pattern", ["(", "(" * 300, "a{1001}" + "a" * 300])
async def test_one_that_was_refused_is_refused_again(pattern):
    patterns, offload = TopicPatterns(), CountedOffload()
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            await decide(patterns, pattern, ["orders"], offload)
        assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(patterns) == 1
    assert len(offload.threads) == (len(pattern) > 256)


def test_thousands_of_expressions_are_not_all_remembered():
    patterns = TopicPatterns()
    for number in range(3000):
        patterns.matching(f"orders-{number}-.*", ["orders-7-x"])
    assert len(patterns) <= 2000
    assert patterns.matching("orders-7-.*", ["orders-7-x"]) == {"orders-7-x"}


async def test_expressions_are_matched_on_one_thread_at_a_time_also_after_a_caller_left(monkeypatch):
    began, end, running, most = threading.Event(), threading.Event(), [], []

    def held(pattern: str, names: list[str]) -> list[str]:
        running.append(pattern)
        most.append(len(running))
        began.set()
        end.wait()
        running.remove(pattern)
        return names

    monkeypatch.setattr(regex, "matching", held)
    worker, offload = RegexWorker(), ThreadOffload()
    first = asyncio.create_task(worker.matching(offload, "a", ["a"]))
    await asyncio.to_thread(began.wait)
    first.cancel()
    others = [asyncio.create_task(worker.matching(offload, text, [text])) for text in "bc"]
    await asyncio.gather(first, return_exceptions=True)
    assert running == ["a"]
    end.set()
    assert await asyncio.gather(*others) == [["b"], ["c"]]
    assert most == [1, 1, 1]
    offload.close()
