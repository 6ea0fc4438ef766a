"""What the log says when something held the event loop: one event with the stack, and no flood of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from odradek.runtime.real_loop_watch import LoopStall, LoopStallCounts, LoopWatch
from odradek.telemetry import events

_log = events.get("broker")
_EVENT_SECONDS_MIN: Final = 10.0
"""Between two events. The totals in each have them all."""


class LoopStallLog:
    """Called with each time that the loop was held. Each event has the totals since the start: the log is the metric."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._reported_at = float("-inf")
        self._unreported_count = 0
        self._totals = LoopStallCounts()

    def __call__(self, held: LoopStall) -> None:
        now = self._now()
        if held.is_over:
            self._totals.add(held.seconds)
        if held.is_over and now - self._reported_at < _EVENT_SECONDS_MIN:
            self._unreported_count += 1
            return
        self._reported_at = now
        unreported_count, self._unreported_count = self._unreported_count, 0
        _log.warning(
            "event_loop_held",
            held_ms=round(held.seconds * 1000),
            cpu_ms=None if held.cpu_seconds is None else round(held.cpu_seconds * 1000),
            is_over=held.is_over,
            unreported_count=unreported_count,
            count=self._totals.count,
            total_ms=round(self._totals.seconds * 1000),
            longest_ms=round(self._totals.seconds_max * 1000),
            stack=" > ".join(held.stack) or "it was over before a look",
        )


def watch_loop(limit_s: float, now: Callable[[], float]) -> LoopWatch:
    """Watch the running loop."""
    return LoopWatch(limit_s, LoopStallLog(now))
