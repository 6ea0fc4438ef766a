"""The thread on which the console reads clusters: decoding an answer about 10,000 topics must not hold up pages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """One daemon thread with one event loop. Models and their clients live there; pages call in from their own loop."""

    def __init__(self, name: str = "odradek-console-model") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def run(self, coroutine: Coroutine[object, None, T]) -> T:
        """Runs the coroutine on the thread, and waits for it without blocking the caller's loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    def start(self, coroutine: Coroutine[object, None, object]) -> None:
        """Runs the coroutine on the thread, and does not wait. It reports its own errors."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """Cancels what still runs, and joins the thread. Idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.close()
