"""A thread's stack is read without a step of Python between its frames."""

import asyncio
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from odradek.runtime.real_thread_stack import CoreWait, ThreadStack, stack_of

pytestmark = pytest.mark.usefixtures("few_threads")
FRAMES_MAX = 12
THIS_FILE = "test_thread_stack.py"


@contextmanager
def fast_switches() -> Iterator[None]:
    """Lets threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


async def descend(depth: int) -> None:
    if depth:
        await descend(depth - 1)
    else:
        await asyncio.sleep(0)


async def generate(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number
        await asyncio.sleep(0)


async def churn(stopping: threading.Event) -> None:
    while not stopping.is_set():
        await descend(6)
        async for depth in generate(3):
            await descend(depth)


def run_churn(stopping: threading.Event) -> None:
    async def many() -> None:
        await asyncio.gather(*(churn(stopping) for _ in range(10)))

    asyncio.run(many())


def test_calls_of_a_thread_whose_coroutines_come_and_go_are_all_calls_of_that_thread() -> None:
    stopping = threading.Event()
    thread = threading.Thread(target=run_churn, args=(stopping,))
    thread.start()
    stack = ThreadStack(thread.ident or 0, frames_max=100)
    try:
        with fast_switches():
            stacks = [stack.read() for _ in range(500)]
    finally:
        stopping.set()
        thread.join()
        stack.close()
    seen = [calls for calls in stacks if any(call.startswith("run_churn ") for call in calls)]
    assert seen, "the thread was never seen at work"
    for calls in seen:
        assert calls[0].startswith("_bootstrap "), calls
        of_this_file = {call.split(" ")[0] for call in calls if THIS_FILE in call}
        assert of_this_file <= {"run_churn", "many", "churn", "descend", "generate"}, calls


def test_no_frame_object_of_another_thread_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("frames of a thread that runs are not safe to walk")

    monkeypatch.setattr("sys._current_frames", refuse)
    monkeypatch.setattr(traceback, "walk_stack", refuse)
    stack = ThreadStack(threading.get_ident(), frames_max=FRAMES_MAX)
    try:
        assert any("test_no_frame_object" in call for call in stack.read())
    finally:
        stack.close()


def wait_for(event: threading.Event) -> None:
    event.wait()


def test_the_innermost_calls_come_last_with_file_and_line() -> None:
    event = threading.Event()
    thread = threading.Thread(target=wait_for, args=(event,))
    thread.start()
    stack = ThreadStack(thread.ident or 0, frames_max=3)
    try:
        calls = stack.read()
        while not any("wait_for" in call for call in calls):
            assert thread.is_alive()
            calls = stack.read()
        assert len(calls) <= 3
        assert next(call for call in calls if "wait_for" in call).split(":")[0].endswith(THIS_FILE)
    finally:
        event.set()
        thread.join()
    assert stack.read() == ()
    stack.close()
    stack.close()
    assert stack.read() == ()


@pytest.mark.parametrize(
    "header",
    [
        "Thread 0x00000000000000ff (most recent call first):",
        "Current thread 0xff [loop] (most recent call first):",
    ],
)
def test_only_the_wanted_thread_is_taken_from_the_text(header: str) -> None:
    text = f"""Thread 0x00000000000000fe (most recent call first):
  File "/other.py", line 1 in other

{header}
  File "/home/a b/lib/python3.11/asyncio/events.py", line 84 in _run
  File "/x/site-packages/odradek/broker/app.py", line 7 in main
  <tail call>

Thread 0x0000000000000001 (most recent call first):
  File "/other.py", line 2 in other
"""
    calls = stack_of(0xFF, text.encode(), FRAMES_MAX)
    assert calls == ("main (odradek/broker/app.py:7)", "_run (asyncio/events.py:84)")
    assert stack_of(0xAB, text.encode(), FRAMES_MAX) == ()


def test_the_wait_for_a_core_is_a_growing_total_or_unknown() -> None:
    wait = CoreWait(threading.get_native_id())
    first = wait.seconds()
    second = wait.seconds()
    if first is None:
        assert not sys.platform.startswith("linux")
    else:
        assert second is not None
        assert 0 <= first <= second
    wait.close()
    wait.close()
    assert wait.seconds() is None
    unknown = CoreWait(0)
    assert unknown.seconds() is None
    unknown.close()
