"""Waiting for the results of fetching, or of the group, for each face of the consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from odradek.client.consumer.news import SharedNews
from odradek.runtime.ports import Clock

T = TypeVar("T")


class LoopWaiting:
    """Waits on the event loop."""

    def __init__(self, news: SharedNews, clock: Clock) -> None:
        self._news: Final = news

    async def until(self, look: Callable[[], T], timeout_s: float) -> T:
        """Returns the first result of `look` that is not None, or None after the timeout. `look` is called with the
        lock of the news held."""
        with self._news.lock:
            seen = look()
        if seen is not None:
            return seen
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                return await self._next(look)
        except TimeoutError:
            return seen

    async def _next(self, look: Callable[[], T]) -> T:
        while True:
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            tell = partial(_settle, changed)
            with self._news.lock:
                seen = look()
                if seen is not None:
                    return seen
                self._news.watch(tell)
            try:
                await changed
            finally:
                with self._news.lock:
                    self._news.unwatch(tell)


class ThreadWaiting:
    """Waits on the caller's thread."""

    def __init__(self, news: SharedNews, clock: Clock) -> None:
        self._news: Final = news
        self._clock: Final = clock

    def until(self, look: Callable[[], T], timeout_s: float) -> T:
        """Does the same as `LoopWaiting.until`."""
        deadline = self._clock.monotonic() + timeout_s
        with self._news.lock:
            while True:
                seen = look()
                left_s = deadline - self._clock.monotonic()
                if seen is not None or left_s <= 0:
                    return seen
                self._news.wait(left_s)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
