"""`Offload` on a pool of threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class ThreadOffload:
    """Runs work on at most `threads` threads, which start when first needed; more work waits its turn.

    When the awaiting task is cancelled, work that has begun still runs to its end and its result is dropped.
    """

    __slots__ = ("_executor",)

    def __init__(self, threads: int = 4) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="odradek-offload")

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)

    def close(self) -> None:
        """Wait for work that has begun, drop what has not. Idempotent; `run` raises RuntimeError after it."""
        self._executor.shutdown(wait=True, cancel_futures=True)
