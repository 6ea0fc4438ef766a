"""Notices when the event loop was held: by what, for how long, and how often.

Theory. A timer of the loop beats every half of the limit, and ever more seldom while the loop does next to nothing: so to watch
an idle process costs next to nothing, and what holds its loop once, for less than `IDLE_PAUSE_S`, may be missed. A thread looks
whether the beat is overdue; when it is, what holds the loop is on the stack of the loop's thread at this moment, and nowhere
once it is over. The next beat reports it, with the CPU time of the loop's thread since the last one, and the time for which it
had no core. If it spent as much CPU as it was held, it computed; if it had no core, the machine is busy; else it waited for a
disk or for the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from odradek.runtime.real_thread_stack import CoreWait, ThreadStack

_FRAMES_MAX: Final = 12
_STILL_HELD_S: Final = 5.0
IDLE_PAUSE_S: Final = 0.5
"""The longest time between two beats."""
_BUSY_SHARE: Final = 0.01
"""The share of one core from which a loop counts as busy and is watched closely."""
BUCKETS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStall:
    """One time that the loop was held."""

    seconds: float
    cpu_seconds: float | None
    """CPU time of the loop's thread; None during the hold."""
    stack: tuple[str, ...]
    """The stack when the hold was noticed, the innermost call last; empty when it was over before a look."""
    is_over: bool = True
    core_wait_seconds: float | None = None
    """Time for which the loop's thread could run and had no core; None during the hold, or where it is
    unknown."""


@dataclass(slots=True, kw_only=True)
class LoopStallCounts:
    """A histogram for measurements: how often the loop was held beyond the limit, and for how long."""

    count: int = 0
    seconds: float = 0.0
    seconds_max: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    """Counts by the bounds of `BUCKETS_S`, not cumulative; the last one counts longer holds."""

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        self.seconds_max = max(self.seconds_max, seconds)
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1


class LoopWatch:
    """Watches the running loop from now until `close`.

    `on_held` is called on the loop after a hold, and on a thread during a long one. `on_failed_look` is
    called on that thread with an error of the watch itself, which then continues.
    """

    def __init__(
        self,
        limit_s: float,
        on_held: Callable[[LoopStall], None],
        on_failed_look: Callable[[Exception], None],
    ) -> None:
        self.counts: Final = LoopStallCounts()
        self._loop = asyncio.get_running_loop()
        self._loop_stack = ThreadStack(threading.get_ident(), frames_max=_FRAMES_MAX)
        self._core_wait = CoreWait(threading.get_native_id())
        self._limit_s = limit_s
        self._pause_s = limit_s / 2
        """The time from this beat to the next."""
        self._on_held = on_held
        self._on_failed_look = on_failed_look
        self._stack: tuple[str, ...] = ()
        self._stopping = False
        self._look_closer = threading.Event()
        self._beat_at, self._cpu_at = time.monotonic(), time.thread_time()
        self._core_wait_at = self._core_wait.seconds()
        self._reported_beat_at = 0.0
        """The beat before the last hold that was reported before its end."""
        self._timer = self._loop.call_later(self._pause_s, self.beat)
        self._thread = threading.Thread(target=self._watch_beats, name="odradek-loop-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the watch; it is called on the loop. A second call does nothing."""
        self._timer.cancel()
        self._stopping = True
        self._look_closer.set()
        self._thread.join()
        self._loop_stack.close()
        self._core_wait.close()

    def beat(self) -> None:
        now, cpu, core_wait = time.monotonic(), time.thread_time(), self._core_wait.seconds()
        passed_s, cpu_s = now - self._beat_at, cpu - self._cpu_at
        core_wait_s = (
            None if core_wait is None or self._core_wait_at is None else core_wait - self._core_wait_at
        )
        held_s = passed_s - self._pause_s
        stack, self._stack = self._stack, ()
        self._set_pace(is_busy=cpu_s > passed_s * _BUSY_SHARE)
        self._beat_at, self._cpu_at, self._core_wait_at = now, cpu, core_wait
        self._timer = self._loop.call_later(self._pause_s, self.beat)
        if held_s > self._limit_s:
            self.counts.add(held_s)
            self._on_held(
                LoopStall(seconds=held_s, cpu_seconds=cpu_s, stack=stack, core_wait_seconds=core_wait_s)
            )

    def _set_pace(self, *, is_busy: bool) -> None:
        shortest_s = self._limit_s / 2
        if not is_busy:
            self._pause_s = max(shortest_s, min(self._pause_s * 2, IDLE_PAUSE_S))
        elif self._pause_s > shortest_s:
            self._pause_s = shortest_s
            self._look_closer.set()

    def _watch_beats(self) -> None:
        while True:
            if self._look_closer.wait(self._pause_s):
                self._look_closer.clear()
            if self._stopping:
                return
            try:
                self._check()
            except Exception as error:  # noqa: BLE001 - the root of this thread
                self._on_failed_look(error)

    def _check(self) -> None:
        """Takes the stack if the beat is overdue; reports a long hold before it ends."""
        beat_at = self._beat_at
        held_s = time.monotonic() - beat_at - self._pause_s
        if held_s <= self._limit_s / 2:
            return
        if not self._stack:
            self._stack = self._loop_stack.read()
        if held_s > _STILL_HELD_S and self._reported_beat_at != beat_at:
            self._reported_beat_at = beat_at
            stack = self._loop_stack.read()
            self._on_held(LoopStall(seconds=held_s, cpu_seconds=None, stack=stack, is_over=False))
