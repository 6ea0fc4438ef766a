"""Blocking work in simulation: workers, of which only one ever moves.

Theory. Work handed to the Offload port runs concurrently with the event loop: its disk operations fall
between any two steps of the loop, and its result arrives when the world may have changed. To meet such
interleavings with a seed instead of luck, each piece of work runs on a worker that holds a baton: the loop
hands the baton over and waits; the worker hands it back at its next I/O point, and gets it again after a
virtual delay drawn from the seed. Two workers never run at once, so nothing here is a race of the real
machine, and a seed gives one order of events. `fibers` defines what a worker is made of.

A lock held across an I/O point would stop everything, because its waiter holds the baton. So while
a world is entered `threading.Lock` makes `BatonLock`s: a worker that finds one taken gives way and tries
again; the loop that finds one taken lets its holder move, and virtual time with it, as a blocked loop would.

A host that crashes revokes its disk, so its work dies at the I/O point where it waits.
"""

from __future__ import annotations

import _thread
import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from odradek.testing.sim.failures import HostCrashed
from odradek.testing.sim.fibers import Fiber, new_fiber
from odradek.testing.sim.loop import SimLoop

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class OffloadDelays:
    """Virtual seconds, uniform between the two: before work starts, at each I/O point, before its
    result is seen.
    """

    start_s: tuple[float, float] = (0.0, 0.001)
    step_s: tuple[float, float] = (0.0, 0.002)
    result_s: tuple[float, float] = (0.0, 0.001)


@dataclass(slots=True, kw_only=True, eq=False)
class _Job:
    offload: SimOffload
    work: Callable[..., object]
    arguments: tuple[object, ...]
    outcome: asyncio.Future[Any]
    done: Callable[[Any, BaseException | None], None] | None = None
    """The function that takes the result in place of the future."""
    result: object = None
    error: BaseException | None = None  # stored-error: it goes into one future
    is_over: bool = False
    abandoned: bool = False


@dataclass(slots=True, eq=False)
class _Worker:
    """A fiber, and the job that it is at."""

    job: _Job | None = None
    timer: asyncio.TimerHandle | None = None
    fiber: Fiber = field(init=False)

    def __post_init__(self) -> None:
        self.fiber = new_fiber(self.run)

    def run(self) -> None:
        _HERE.worker = self
        while (job := self.job) is not None:
            try:
                job.result = job.work(*job.arguments)
            except BaseException as error:  # noqa: BLE001  whatever it is belongs to the waiter
                job.error = error  # stored-error: as there
            job.is_over = True
            self.fiber.give_way()

    def move(self) -> None:
        """Let it run to its next I/O point or to the end of its job; without a job, to its own."""
        before, _HERE.worker = _HERE.worker, self
        try:
            self.fiber.resume()
        finally:
            _HERE.worker = before

    def give_way(self) -> None:
        """Hands the baton back at an I/O point of the job, which calls it."""
        self.fiber.give_way()
        if self.job is not None and self.job.abandoned:
            raise HostCrashed


class _Here(threading.local):
    worker: _Worker | None = None


_HERE = _Here()


def give_way() -> bool:
    """Let the loop run for a while, if a worker calls this; False on the loop."""
    worker = _HERE.worker
    if worker is None:
        return False
    worker.give_way()
    return True


class SimOffload:
    """The worker threads of one life of a host: implements `Offload`."""

    def __init__(
        self, loop: SimLoop, rng: Random, *, threads: int = 4, delays: OffloadDelays | None = None
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._delays = delays or OffloadDelays()
        self._free_threads = threads
        self._waiting: deque[_Job] = deque()
        self._idle: list[_Worker] = []
        self._busy: dict[_Worker, None] = {}
        self._closed = False

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        job = _Job(offload=self, work=work, arguments=arguments, outcome=self._loop.create_future())
        self._waiting.append(job)
        self._start_next()
        value: T = await job.outcome
        return value

    def submit(
        self,
        done: Callable[[T | None, BaseException | None], None],
        work: Callable[..., T],
        *arguments: object,
    ) -> None:
        job = _Job(
            offload=self, work=work, arguments=arguments, outcome=self._loop.create_future(), done=done
        )
        self._waiting.append(job)
        self._start_next()

    def _start_next(self) -> None:
        while self._waiting and self._free_threads > 0:
            job = self._waiting.popleft()
            if job.outcome.cancelled():  # nothing waits, and it has not begun
                continue
            self._free_threads -= 1
            self._loop.call_later(self._draw(self._delays.start_s), self._begin, job)

    def _begin(self, job: _Job) -> None:
        if self._closed:
            return
        if not self._idle:
            self._idle.append(_Worker())
        worker = self._idle.pop()
        worker.job = job
        self._busy[worker] = None
        self._move(worker)

    def _move(self, worker: _Worker) -> None:
        worker.timer = None
        job = worker.job
        if job is None:  # closed meanwhile
            return
        worker.move()
        if not job.is_over:
            worker.timer = self._loop.call_later(self._draw(self._delays.step_s), self._move, worker)
            return
        self._release(worker)
        self._loop.call_later(self._draw(self._delays.result_s), _deliver, job)
        self._start_next()

    def hurry(self) -> None:
        """The loop waits for a lock that a worker holds: time passes until a worker's next step,
        and no more.
        """
        waiting = [(worker.timer.when(), worker) for worker in self._busy if worker.timer is not None]
        due_s, worker = min(waiting, key=lambda entry: entry[0])
        self._loop.stall(max(0.0, due_s - self._loop.time()))
        assert worker.timer is not None
        worker.timer.cancel()
        self._move(worker)

    def _release(self, worker: _Worker) -> None:
        worker.job = None
        self._busy.pop(worker, None)
        self._idle.append(worker)
        self._free_threads += 1

    def _draw(self, bounds: tuple[float, float]) -> float:
        low, high = bounds
        return low + (high - low) * self._rng.random()

    def close(self) -> None:
        """Unwind the work under way, as a dead host's, and end the threads."""
        self._closed = True
        self._waiting.clear()
        for worker in list(self._busy):
            while worker.job is not None and not worker.job.is_over:
                worker.job.abandoned = True
                worker.move()
            self._release(worker)
        for worker in self._idle:
            worker.move()
        self._idle.clear()


def _deliver(job: _Job) -> None:
    if job.outcome.done():  # its task was cancelled: the result comes too late for anyone
        return
    if job.done is not None:
        job.done(job.result, job.error)
    elif job.error is not None:
        job.outcome.set_exception(job.error)
    else:
        job.outcome.set_result(job.result)


class BatonLock:
    """Replaces `threading.Lock` while a world is entered. Between threads of no world it is a
    plain lock.
    """

    __slots__ = ("_holder", "_lock")

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._holder: _Worker | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        while not self._lock.acquire(blocking=False):
            if not blocking or timeout == 0:
                return False
            holder, me = self._holder, _HERE.worker
            if me is not None:
                me.give_way()
            elif holder is not None and holder.job is not None:
                holder.job.offload.hurry()
            elif not self._lock.acquire(timeout=timeout):
                return False
            else:
                break
        self._holder = _HERE.worker
        return True

    def release(self) -> None:
        self._holder = None
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_exception: object) -> None:
        self.release()


@contextmanager
def baton_locks() -> Iterator[None]:
    """Lets `threading.Lock()` make locks that worker threads may hold across I/O points, while the context is open."""
    real = threading.Lock
    threading.Lock = BatonLock  # type: ignore[assignment]
    try:
        yield
    finally:
        threading.Lock = real
