"""Fails a test when one callback holds the event loop for too long.

It counts the CPU time of the loop's thread, so a busy machine fails no one: a callback that waits for its turn spends none. One
that waits for a disk spends none either: `guarded_disk` is there for those. The garbage collector's time is taken off: it grows
with the heap of the tests, and falls on whatever callback runs then.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

HELD_SECONDS_MAX: Final = 0.05


class _Collecting(threading.local):
    """CPU time that the garbage collector took, on each thread: it runs on whichever allocates."""

    seconds = 0.0
    _began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.thread_time()
        else:
            self.seconds += time.thread_time() - self._began


@contextmanager
def callbacks_are_short(
    seconds_max: float = HELD_SECONDS_MAX, *, except_tasks_of: str | None = None
) -> Iterator[list[str]]:
    """Yields a list of the callbacks, of any loop of this process, that take more CPU time than `seconds_max` meanwhile.

    `except_tasks_of`: the name of a coroutine function whose own steps may take longer, such as a test with large requests.
    """
    results: list[str] = []
    collecting = _Collecting()
    real = asyncio.Handle._run

    def run(self: asyncio.Handle) -> None:
        callback = getattr(self, "_callback", None)
        began = time.thread_time() - collecting.seconds
        try:
            real(self)
        finally:
            seconds = time.thread_time() - collecting.seconds - began
            if seconds > seconds_max and (except_tasks_of is None or _coroutine(callback) != except_tasks_of):
                results.append(f"{seconds * 1000:.0f} ms of CPU time in one callback: {_named(callback)}")

    asyncio.Handle._run = run  # type: ignore[method-assign]
    gc.callbacks.append(collecting)
    try:
        yield results
    finally:
        gc.callbacks.remove(collecting)
        asyncio.Handle._run = real  # type: ignore[method-assign]


def _coroutine(callback: object) -> str | None:
    task = getattr(callback, "__self__", None)
    return getattr(task.get_coro(), "__name__", None) if isinstance(task, asyncio.Task) else None


def _named(callback: object) -> str:
    task = getattr(callback, "__self__", None)
    return repr(task) if isinstance(task, asyncio.Task) else repr(callback)
