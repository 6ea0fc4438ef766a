"""Notices when the event loop was held: by what, for how long, and how often.

Theory. A timer of the loop beats every half of the limit, and ever more seldom while the loop does next to nothing: so to watch
an idle process costs next to nothing, and what holds its loop once, for less than `IDLE_PAUSE_S`, may be missed. A thread looks
whether the beat is overdue; when it is, what holds the loop is on the stack of the loop's thread at this moment, and nowhere
once it is over. The next beat reports it, with the CPU time that the loop's thread spent since the last one: as much as it was
held, and it computed; far less, and it waited, for a disk, for the interpreter's lock, or for a busy machine.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_FRAMES_MAX: Final = 12
_STILL_HELD_S: Final = 5.0
IDLE_PAUSE_S: Final = 0.5
"""Between two beats, at most."""
_BUSY_SHARE: Final = 0.01
"""Of one core: a loop that takes more is looked at closely."""
BUCKETS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStall:
    """One time that the loop was held."""

    seconds: float
    cpu_seconds: float | None
    """Of the loop's thread; None while it goes on."""
    stack: tuple[str, ...]
    """Where it was when it was noticed, the innermost call last; empty when it was over before a look."""
    is_over: bool = True


@dataclass(slots=True, kw_only=True)
class LoopStallCounts:
    """A histogram for measurements: how often the loop was held beyond the limit, and for how long."""

    count: int = 0
    seconds: float = 0.0
    seconds_max: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    """By `BUCKETS_S`, not cumulative; the last one is for more."""

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        self.seconds_max = max(self.seconds_max, seconds)
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1


class LoopWatch:
    """Of the running loop, from now until `close`. `on_held` is called on the loop, and on a thread while one goes on."""

    def __init__(self, limit_s: float, on_held: Callable[[LoopStall], None]) -> None:
        self.counts: Final = LoopStallCounts()
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._limit_s = limit_s
        self._pause_s = limit_s / 2
        """Between this beat and the next."""
        self._on_held = on_held
        self._stack: tuple[str, ...] = ()
        self._stopping = False
        self._look_closer = threading.Event()
        self._beat_at, self._cpu_at = time.monotonic(), time.thread_time()
        self._timer = self._loop.call_later(self._pause_s, self.beat)
        self._thread = threading.Thread(target=self._watch_beats, name="odradek-loop-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """On the loop. Idempotent."""
        self._timer.cancel()
        self._stopping = True
        self._look_closer.set()
        self._thread.join()

    def beat(self) -> None:
        now, cpu = time.monotonic(), time.thread_time()
        passed_s, cpu_s = now - self._beat_at, cpu - self._cpu_at
        held_s = passed_s - self._pause_s
        stack, self._stack = self._stack, ()
        self._set_pace(is_busy=cpu_s > passed_s * _BUSY_SHARE)
        self._beat_at, self._cpu_at = now, cpu
        self._timer = self._loop.call_later(self._pause_s, self.beat)
        if held_s > self._limit_s:
            self.counts.add(held_s)
            self._on_held(LoopStall(seconds=held_s, cpu_seconds=cpu_s, stack=stack))

    def _set_pace(self, *, is_busy: bool) -> None:
        shortest_s = self._limit_s / 2
        if not is_busy:
            self._pause_s = max(shortest_s, min(self._pause_s * 2, IDLE_PAUSE_S))
        elif self._pause_s > shortest_s:
            self._pause_s = shortest_s
            self._look_closer.set()

    def _watch_beats(self) -> None:
        reported_beat_at = 0.0
        while True:
            if self._look_closer.wait(self._pause_s):
                self._look_closer.clear()
            if self._stopping:
                return
            beat_at = self._beat_at
            held_s = time.monotonic() - beat_at - self._pause_s
            if held_s <= self._limit_s / 2:
                continue
            if not self._stack:
                self._stack = self._sample()
            if held_s > _STILL_HELD_S and reported_beat_at != beat_at:
                reported_beat_at = beat_at
                self._on_held(
                    LoopStall(seconds=held_s, cpu_seconds=None, stack=self._sample(), is_over=False)
                )

    def _sample(self) -> tuple[str, ...]:
        frame = sys._current_frames().get(self._thread_id)
        if frame is None:
            return ()
        summary = traceback.StackSummary.extract(
            traceback.walk_stack(frame), limit=_FRAMES_MAX, lookup_lines=False
        )
        return tuple(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(summary))
