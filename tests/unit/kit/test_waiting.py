"""Waiting: what is returned, what a failure says, and what is left alone."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.kit.waiting import eventually, seconds_until, until


def values_of(*values: Any) -> Callable[[], Any]:
    remaining: Iterator[Any] = iter(values)
    return lambda: next(remaining)


def test_the_first_true_value_is_returned() -> None:
    assert eventually(values_of(None, [], 0, "ready", "later"), every_s=0) == "ready"


async def test_a_task_waits_for_a_value_or_for_a_coroutine_that_returns_it() -> None:
    async def look() -> str:
        await asyncio.sleep(0)
        return plain()

    plain = values_of("", "there", "", "again")
    assert await until(plain) == "there"
    assert await until(look) == "again"


def test_a_test_may_ask_for_more_than_a_true_value() -> None:
    assert eventually(values_of([1], [1, 2], [1, 2, 3]), holds=lambda rows: len(rows) == 2, every_s=0) == [
        1,
        2,
    ]
    with pytest.raises(AssertionError, match=r"within 0 s; the last value is \[1\]$"):
        eventually(lambda: [1], holds=lambda rows: len(rows) == 2, seconds=0)


def test_what_never_comes_fails_with_what_was_seen() -> None:
    seen: list[int] = []
    with pytest.raises(AssertionError, match=r"it did not come true within 0.01 s: \[1, 2\]"):
        eventually(lambda: seen.clear() or seen.extend((1, 2)), lambda: seen, seconds=0.01, every_s=0)


async def test_a_task_fails_with_what_it_waited_for() -> None:
    with pytest.raises(AssertionError, match="within 0 s: a leader"):
        await until(lambda: False, "a leader", seconds=0)
    with pytest.raises(AssertionError, match=r"within 0 s$"):
        await until(asyncio.Event().wait, seconds=0)


async def test_an_error_of_the_look_is_the_tests_own() -> None:
    async def look() -> bool:
        raise TimeoutError("the broker is silent")

    with pytest.raises(TimeoutError, match="the broker is silent"):
        await until(look)
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 / 0)


def test_a_report_goes_on_without_what_did_not_come() -> None:
    assert seconds_until(values_of(False, True), 120.0, every_s=0) is not None
    assert seconds_until(lambda: False, 0.0, every_s=0) is None
