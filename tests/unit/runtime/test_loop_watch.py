"""What held the event loop is noticed, with its stack, while it goes on or when it is over."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from tests.kit.waiting import until

from odradek.runtime.real_loop_watch import IDLE_PAUSE_S, LoopStall, LoopStallCounts, LoopWatch
from odradek.runtime.real_thread_stack import ThreadStack

pytestmark = pytest.mark.usefixtures("few_threads")
LIMIT_S = 0.05


def compute_for(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


async def next_one(held: list[LoopStall]) -> LoopStall:
    await until(lambda: held)
    return held[0]


async def test_a_callback_that_holds_the_loop_is_reported_once_with_where_it_was() -> None:
    held: list[LoopStall] = []
    watch = LoopWatch(LIMIT_S, held.append, pytest.fail)
    try:
        await asyncio.sleep(LIMIT_S)
        held.clear()
        compute_for(LIMIT_S * 8)
        loop_held = await next_one(held)
        assert loop_held.seconds > LIMIT_S * 4
        assert any("compute_for" in call for call in loop_held.stack)
        assert loop_held.cpu_seconds is not None
        assert loop_held.is_over
        assert watch.counts.count >= 1
        assert watch.counts.seconds_max >= loop_held.seconds
    finally:
        watch.close()


async def test_waiting_is_distinguished_from_computing() -> None:
    held: list[LoopStall] = []
    watch = LoopWatch(LIMIT_S, held.append, pytest.fail)
    try:
        await asyncio.sleep(0)
        threading.Event().wait(LIMIT_S * 8)
        loop_held = await next_one(held)
        assert loop_held.cpu_seconds is not None
        assert loop_held.cpu_seconds < loop_held.seconds / 2
    finally:
        watch.close()


async def test_a_loop_that_does_nothing_is_looked_at_seldom_and_closely_again_once_it_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    pauses: list[float] = []
    real = loop.call_later

    def call_later(delay: float, callback: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
        if getattr(callback, "__func__", None) is LoopWatch.beat:
            pauses.append(delay)
        return real(delay, callback, *arguments)

    monkeypatch.setattr(loop, "call_later", call_later)
    watch = LoopWatch(LIMIT_S, lambda _: None, pytest.fail)
    try:
        async with asyncio.timeout(60):
            while pauses[-1] < IDLE_PAUSE_S:
                await asyncio.sleep(0.2)
            seldom_count = len(pauses)
            while len(pauses) == seldom_count:
                compute_for(LIMIT_S / 10)
                await asyncio.sleep(LIMIT_S / 10)
        assert pauses[-1] == LIMIT_S / 2
    finally:
        watch.close()


async def test_an_error_of_a_look_is_reported_and_the_watch_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[LoopStall] = []
    errors: list[Exception] = []
    read = ThreadStack.read

    def read_after_a_failure(stack: ThreadStack) -> tuple[str, ...]:
        if not errors:
            raise AttributeError("no frame")
        return read(stack)

    monkeypatch.setattr(ThreadStack, "read", read_after_a_failure)
    watch = LoopWatch(LIMIT_S, held.append, errors.append)
    try:
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            while not any("compute_for" in call for hold in held for call in hold.stack):
                compute_for(LIMIT_S * 8)
                await asyncio.sleep(0.01)
        assert [str(error) for error in errors] == ["no frame"]
    finally:
        watch.close()


async def test_nothing_is_looked_at_after_the_end() -> None:
    held: list[LoopStall] = []
    watch = LoopWatch(LIMIT_S, held.append, pytest.fail)
    watch.close()
    watch.close()
    compute_for(LIMIT_S * 4)
    await asyncio.sleep(0)
    assert held == []


def test_holds_are_counted_by_how_long_they_were() -> None:
    counts = LoopStallCounts()
    for seconds in (0.11, 0.2, 0.3, 7.0, 60.0):
        counts.add(seconds)
    assert (counts.count, counts.seconds_max) == (5, 60.0)
    assert counts.buckets == [0, 2, 1, 0, 0, 0, 1, 1]
