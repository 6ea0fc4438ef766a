"""Fails a test when one callback holds the event loop for too long.

It counts the CPU time of the loop's thread, so a busy machine fails nobody: a callback that waits for its turn spends none. One
that waits for a disk spends none either: `guarded_disk` is there for those.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

HELD_SECONDS_MAX: Final = 0.05


@contextmanager
def callbacks_are_short(seconds_max: float = HELD_SECONDS_MAX) -> Iterator[list[str]]:
    """Within, what a loop of this process called, and took more CPU time than that, gets into the list."""
    found: list[str] = []
    real = asyncio.Handle._run

    def run(self: asyncio.Handle) -> None:
        callback = getattr(self, "_callback", None)
        began = time.thread_time()
        try:
            real(self)
        finally:
            seconds = time.thread_time() - began
            if seconds > seconds_max:
                found.append(f"{seconds * 1000:.0f} ms of CPU time in one callback: {_named(callback)}")

    asyncio.Handle._run = run  # type: ignore[method-assign]
    try:
        yield found
    finally:
        asyncio.Handle._run = real  # type: ignore[method-assign]


def _named(callback: Any) -> str:
    task = getattr(callback, "__self__", None)
    return repr(task) if isinstance(task, asyncio.Task) else repr(callback)
