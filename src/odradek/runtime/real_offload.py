"""`Offload` on threads of its own.

An fsync takes a fifth of a millisecond, so what surrounds it counts. The standard library's executor puts a second future, two
conditions and a semaphore around each piece of work; here it is one queue in, and one call of the loop out.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
Done = Callable[[Any, BaseException | None], None]


class _Work(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any] | None
    """The waiter, whose cancellation drops work that has not begun; None for work that always runs."""
    done: Done
    work: Callable[..., object]
    arguments: tuple[object, ...]


class ThreadOffload:
    """Runs work on at most `threads` threads, which start when first needed; more work waits its turn.

    When the awaiting task is cancelled, work that has begun still runs to its end and its result is dropped.
    """

    __slots__ = ("_closed", "_free", "_lock", "_queue", "_threads", "_threads_max")

    def __init__(self, threads: int = 4) -> None:
        self._threads_max = threads
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0
        """Threads that wait, less the work in the queue: below 1, another thread is of use."""
        self._closed = False

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._put(_Work(loop, future, partial(_settle, future), work, arguments))
        try:
            return await future
        finally:
            del future  # it holds the error, whose traceback holds this frame: a cycle that keeps what the work expanded

    def submit(
        self,
        done: Callable[[T | None, BaseException | None], None],
        work: Callable[..., T],
        *arguments: object,
    ) -> None:
        """Calls `work(*arguments)` on another thread, and then `done(value, error)` on the loop, which saves the loop the
        rounds of a future and of a task. Work that `close` drops ends with CancelledError."""
        self._put(_Work(asyncio.get_running_loop(), None, done, work, arguments))

    def _put(self, work: _Work) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError("no more work is taken: the offload is closed")
            if self._free < 1 and len(self._threads) < self._threads_max:
                self._start()
            else:
                self._free -= 1
        self._queue.put(work)

    def close(self) -> None:
        """Waits for work that has begun, drops the rest. Idempotent; `run` raises RuntimeError after it."""
        with self._lock:
            self._closed = True
            threads, self._threads = self._threads, []
        dropped = []
        while not self._queue.empty():
            dropped.append(self._queue.get())
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            thread.join()
        for work in dropped:
            if work is not None:
                _deliver(work, None, asyncio.CancelledError())

    def _start(self) -> None:
        name = f"odradek-offload-{len(self._threads)}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            value, error = None, None
            if work.future is None or not work.future.cancelled():
                try:
                    value = work.work(*work.arguments)
                except BaseException as raised:  # noqa: BLE001 - it belongs to the waiter
                    error = raised
            with self._lock:
                self._free += 1
            _deliver(work, value, error)
            work = value = error = None  # hold nothing while waiting


def _deliver(work: _Work, value: object, error: BaseException | None) -> None:
    try:
        work.loop.call_soon_threadsafe(work.done, value, error)
    except RuntimeError:
        return  # the loop is closed: nothing waits any more


def _settle(future: asyncio.Future[T], value: T, error: BaseException | None) -> None:
    if future.done():
        return
    if isinstance(error, asyncio.CancelledError):
        future.cancel()
    elif error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)
