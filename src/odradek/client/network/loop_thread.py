"""The event loop of a synchronous client: one daemon thread, one loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import TypeVar

from odradek.client.network.errors import ClientClosedError, IllegalStateError

T = TypeVar("T")


class LoopThread:
    """Starts at once; `stop` ends it. A daemon, so that a forgotten client does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._process_id = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._stopped = False
        self._last: asyncio.Task[object] | None = None
        self._order = threading.RLock()
        """Whatever is handed over before the stop is on the loop before it, and is cancelled there: no caller waits
        without an end. Reentrant, because a finalizer may run at any point."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread, where waiting for it would never end."""
        return threading.current_thread() is self._thread

    @property
    def is_gone(self) -> bool:
        """True if the thread belongs to the process that forked this one: nothing of the client can be
        reached.

        The copies of its descriptors must stay as they are here: the parent's loop has the same epoll instance.
        """
        return self._process_id != os.getpid()

    def check(self) -> None:
        """Raises IllegalStateError in a forked process, where waiting for the thread or a lock of its would never end."""
        if self._process_id != os.getpid():
            kind = self._name.removeprefix("odradek-")
            raise IllegalStateError(
                f"this {kind} belongs to process {self._process_id}, which forked this one: make another one here"
            )

    def call(self, coroutine: Coroutine[object, None, T]) -> T:
        """Run `coroutine` on the loop and wait for it. An interrupt (Ctrl-C) cancels it.

        ClientClosedError when the client is closed, or another thread closes it meanwhile.
        """
        if self.is_gone:
            coroutine.close()
            self.check()
        if self.is_current:
            coroutine.close()
            raise RuntimeError("a client's callback must not wait for that client: it would wait for itself")
        with self._order:
            if self._stopped:
                coroutine.close()
                raise ClientClosedError("client")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if self._stopped:
                raise ClientClosedError("client") from None
            raise
        except BaseException:
            future.cancel()
            raise

    def post(self, work: Callable[[], object]) -> None:
        """Have `work` called on the loop soon, without waiting. Ignored once stopped."""
        self.check()
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            if not self._stopped:
                raise

    def stop(self) -> None:
        """Cancel what still runs, end the loop and join the thread. Idempotent."""
        self.stop_soon()
        if not self.is_current and not self.is_gone:
            self._thread.join()

    def stop_soon(self) -> None:
        """End the loop without waiting for it: for finalizers."""
        if self.is_gone:
            return
        with self._order:
            if not self._stopped:
                self._stopped = True
                self._loop.call_soon_threadsafe(self._loop.stop)

    def stop_after(self, work: Callable[[], Coroutine[object, None, object]]) -> None:
        """End the loop when this last `work` is done, without waiting for it: for finalizers."""

        if self.is_gone:
            return

        def begin() -> None:
            self._last = self._loop.create_task(work())
            self._last.add_done_callback(lambda _: self._loop.stop())

        with self._order:
            if not self._stopped:
                self._stopped = True
                self._loop.call_soon_threadsafe(begin)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            leftovers = asyncio.all_tasks(self._loop)
            for task in leftovers:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*leftovers, return_exceptions=True))
            self._loop.close()
