"""Fibers for offloaded work in simulation: a greenlet if that package is installed, else a thread that waits for its turn.

Either is handed a baton, and hands it back at each I/O point, so a seed gives one and the same order of
events. A greenlet is handed it by a function call. A thread must be woken by the system: runs take two to
three times as long, above all on a busy machine.
"""

from __future__ import annotations

import _thread
import asyncio
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    import greenlet
else:
    greenlet = lazy("greenlet")

_REAL_SECONDS_MAX: Final = 60.0


class Fiber(Protocol):
    """Runs a function in steps. As on any thread of an offload, no event loop runs there."""

    def resume(self) -> None:
        """Go on with the function, until it gives way or ends."""

    def give_way(self) -> None:
        """Lets `resume` return; the function continues with the next `resume`. The function calls it."""


def _acquired_lock() -> _thread.LockType:
    lock = _thread.allocate_lock()
    lock.acquire()
    return lock


class ThreadFiber:
    """A thread and the two halves of its baton."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._go = _acquired_lock()
        self._back = _acquired_lock()
        threading.Thread(target=self._begin, daemon=True, name="sim-offload").start()

    def _begin(self) -> None:
        self._go.acquire()
        self._run()
        self._back.release()

    def resume(self) -> None:
        self._go.release()
        if not self._back.acquire(timeout=_REAL_SECONDS_MAX):
            raise RuntimeError("offloaded work waits for something that the simulator does not rule")

    def give_way(self) -> None:
        self._back.release()
        self._go.acquire()


class GreenletFiber:
    """A stack of its own on the thread that resumes it, which may itself run another fiber."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._fiber = greenlet.greenlet(run)
        self._resumed_by = greenlet.getcurrent()

    def resume(self) -> None:
        loop = asyncio._get_running_loop()
        self._fiber.parent = self._resumed_by = greenlet.getcurrent()  # where it goes when it ends
        asyncio._set_running_loop(None)
        try:
            self._fiber.switch()
        finally:
            asyncio._set_running_loop(loop)

    def give_way(self) -> None:
        self._resumed_by.switch()


new_fiber: Callable[[Callable[[], None]], Fiber] = (
    GreenletFiber if find_spec("greenlet") is not None else ThreadFiber
)
