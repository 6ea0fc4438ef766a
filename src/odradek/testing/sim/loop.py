"""An asyncio event loop on virtual time.

Theory. A program on asyncio acts only when the loop calls it: because a timer is due, because bytes arrived,
because another thread finished. Here all three come from one heap of timers, so a run is a function of its
seed. When nothing is ready, time jumps to the next timer: an hour of heartbeats costs what its callbacks
cost. What asyncio promises is kept (`call_soon` is first in, first out; a timer never fires early, nor before
one that was due earlier); what it leaves open (the order of timers due at one instant) is drawn from the
seed.

Nothing may wait on the real world: `run_in_executor` is refused (work goes through the Offload port),
sockets, signals and subprocesses do not exist, and connections go to the simulated network.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import Context, copy_context
from random import Random
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar, TypeVarTuple

from odradek.testing.sim.failures import DeadlockError, OutOfTimeError, describe_tasks

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_CANCELLED_TIMERS_KEPT = 512
AddressInfo: TypeAlias = tuple[int, int, int, str, tuple[str, int]]
"""An address as `getaddrinfo` returns it: family, type, protocol, canonical name, and (address, port)."""


class Connections(Protocol):
    """The parts of the simulated network that the loop calls."""

    async def create_server(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str | None, port: int
    ) -> asyncio.AbstractServer: ...

    async def create_connection(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...

    def resolve(self, host: str | None, port: int) -> list[AddressInfo]: ...


class _Handle(asyncio.Handle):
    """A callback of a loop that is never in debug mode: a run makes tens of thousands of them."""

    __slots__ = ()
    _repr = None
    _source_traceback = None

    def __init__(
        self,
        callback: Callable[..., object],
        args: Sequence[object],
        loop: asyncio.AbstractEventLoop,
        context: Context | None = None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False


class _TimerHandle(asyncio.TimerHandle):
    """The handle of a timer, made for the loop's callbacks like `_Handle`, with a time."""

    __slots__ = ()
    _repr = None
    _source_traceback = None

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[object],
        loop: asyncio.AbstractEventLoop,
        context: Context | None = None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._when = when
        self._scheduled = True

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._loop._timer_handle_cancelled(self)  # type: ignore[attr-defined]
            self._callback = self._args = None  # type: ignore[assignment]


class SimLoop(asyncio.BaseEventLoop):
    """An event loop on virtual time. It runs until done, until nothing can happen any more (`DeadlockError`), or until a
    bound (`OutOfTimeError`)."""

    def __init__(self, rng: Random, *, seconds_max: float = 3600.0, steps_max: int = 20_000_000) -> None:
        super().__init__()
        self._rng = rng
        self._now_s = 0.0
        self._seconds_max = seconds_max
        self._steps_left = steps_max
        self._runnable: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._cancelled_timers = 0
        self._task_count = 0
        self._paused: dict[object, deque[asyncio.Handle]] = {}
        self.owner_of: Callable[[Context], object] = lambda context: None
        """Returns the host whose code a callback is, by its context."""
        self.network: Connections | None = None
        self.on_task: Callable[[asyncio.Task[object], Context], None] | None = None
        self.kernel: Context | None = None
        """The context of callbacks that run no code of a host: packets arrive, and nothing has read them yet."""
        self.on_turn: Callable[[], None] | None = None
        """Called after every turn that ran more than callbacks of the kernel, as no one; what it raises ends the run."""

    # -- time ------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    def stall(self, seconds: float) -> None:
        """Let time pass while the running callback holds the loop, as a blocking call would."""
        self._now_s += seconds

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed:  # type: ignore[attr-defined]
            self._refuse_closed()
        handle = _Handle(callback, args, self, context)
        self._runnable.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Does what `call_soon` does: threads of the simulator run only while the loop waits for them."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._set_timer(self._now_s + max(0.0, delay), callback, args, context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._set_timer(when, callback, args, context)

    def _set_timer(
        self, when: float, callback: Callable[..., object], args: Sequence[object], context: Context | None
    ) -> asyncio.TimerHandle:
        if self._closed:  # type: ignore[attr-defined]
            self._refuse_closed()
        timer = _TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._rng.random(), self._timer_count, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled_timers += 1

    def _refuse_closed(self) -> NoReturn:
        raise RuntimeError("Event loop is closed")

    # -- running ---------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Runs turns until the loop is to stop. Most turns run one callback, and a call for each turn would cost as much."""
        runnable, timers, paused, kernel = self._runnable, self._timers, self._paused, self.kernel
        while True:
            if not runnable or (timers and timers[0][0] <= self._now_s):
                self._wake_timers()
            in_kernel = True
            handle: asyncio.Handle | None
            for _ in range(len(runnable)):
                handle = runnable.popleft()
                if handle._cancelled or (paused and self._is_held(handle)):
                    continue
                self._steps_left -= 1
                context = handle._context  # type: ignore[attr-defined]
                if context is not kernel:
                    in_kernel = False
                try:
                    context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001  the root of a callback, as in asyncio
                    self._callback_failed(handle, error)
            handle = context = None
            if self.on_turn is not None and not in_kernel:
                self.on_turn()
            if self._steps_left < 0:
                raise OutOfTimeError(
                    f"the run used up its steps at {self._now_s:.6f} s; waiting:\n{self._waiting()}"
                )
            if self._stopping:  # type: ignore[attr-defined]
                return

    def _callback_failed(self, handle: asyncio.Handle, error: BaseException) -> None:
        message = f"Exception in callback {handle!r}"
        self.call_exception_handler({"message": message, "exception": error, "handle": handle})

    def pause(self, owner: object) -> None:
        """Hold back every callback of `owner`, as a process that is stopped runs none; its time still
        passes."""
        self._paused.setdefault(owner, deque())

    def resume(self, owner: object) -> None:
        """Let it go on: what was held back comes first, in its order."""
        held = self._paused.pop(owner, None)
        if held:
            self._runnable.extend(held)

    def is_paused(self, owner: object) -> bool:
        return owner in self._paused

    def _is_held(self, handle: asyncio.Handle) -> bool:
        held = self._paused.get(self.owner_of(handle._context))  # type: ignore[attr-defined]
        if held is None:
            return False
        held.append(handle)
        return True

    def allow_more_steps(self, count: int) -> None:
        """Raise the bound on steps to at least `count` from here."""
        self._steps_left = max(self._steps_left, count)

    def _wake_timers(self) -> None:
        """Makes what is due runnable; if nothing is runnable, lets time pass until something is."""
        runnable, timers = self._runnable, self._timers
        if not runnable and not self._stopping:  # type: ignore[attr-defined]
            if not timers or timers[0][3]._cancelled or self._cancelled_timers > _CANCELLED_TIMERS_KEPT:
                self._drop_cancelled_timers()
            self._now_s = max(self._now_s, timers[0][0])
            if self._now_s > self._seconds_max:
                raise OutOfTimeError(
                    f"the run passed {self._seconds_max} s of virtual time; waiting:\n{self._waiting()}"
                )
        now_s = self._now_s
        while timers and timers[0][0] <= now_s:
            timer = heapq.heappop(timers)[3]
            timer._scheduled = False  # type: ignore[attr-defined]
            if timer._cancelled:
                self._cancelled_timers -= 1
            else:
                runnable.append(timer)

    def _drop_cancelled_timers(self) -> None:
        """Leaves a timer that will be due as the next one. Raises DeadlockError when there is none."""
        timers = self._timers
        if self._cancelled_timers > _CANCELLED_TIMERS_KEPT and self._cancelled_timers * 2 > len(timers):
            timers[:] = [entry for entry in timers if not entry[3].cancelled()]
            heapq.heapify(timers)
            self._cancelled_timers = 0
        while timers and timers[0][3]._cancelled:
            heapq.heappop(timers)
            self._cancelled_timers -= 1
        if not timers:
            raise DeadlockError(
                f"nothing can ever happen after {self._now_s:.6f} s; waiting:\n{self._waiting()}"
            )

    def _waiting(self) -> str:
        return describe_tasks(list(asyncio.all_tasks(self)))

    def close(self) -> None:
        if not self.is_closed():
            self._runnable.clear()
            self._timers.clear()
        super().close()

    # -- tasks -----------------------------------------------------------------------------------------------

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Returns a task whose default name counts from 1 in this loop: asyncio's own counter spans the process."""
        self._task_count += 1
        chosen = f"task-{self._task_count}" if name is None else str(name)
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=chosen, context=context)
        if self.on_task is not None:
            self.on_task(task, context if context is not None else copy_context())
        return task

    # -- the outside -----------------------------------------------------------------------------------------

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> NoReturn:
        raise RuntimeError("no executor in simulation: pass blocking work to the Offload port of the runtime")

    def _connections(self) -> Connections:
        if self.network is None:
            raise RuntimeError("this loop has no simulated network")
        return self.network

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int = 0,
        *,
        ssl: object = None,
        sock: object = None,
        **_ignored: object,
    ) -> asyncio.AbstractServer:
        _refuse(ssl=ssl, sock=sock)
        return await self._connections().create_server(protocol_factory, host, port)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl: object = None,
        sock: object = None,
        **_ignored: object,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        _refuse(ssl=ssl, sock=sock)
        return await self._connections().create_connection(protocol_factory, host, port)

    async def getaddrinfo(
        self,
        host: str | bytes | None,
        port: str | bytes | int | None,
        **_ignored: object,
    ) -> list[tuple[Any, ...]]:
        name = host.decode() if isinstance(host, bytes) else host
        return [*self._connections().resolve(name, int(port or 0))]

    def _process_events(self, event_list: object) -> None:  # required by BaseEventLoop, never called
        raise AssertionError("this loop has no selector")


def _refuse(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"the simulated network has no {name}=")
