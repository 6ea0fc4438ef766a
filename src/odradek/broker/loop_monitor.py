"""Logs holds of the event loop: one event with the stack, and no flood of them.

Theory. A hold is worth a stack if the loop's thread did something: it computed, or it waited for a disk. A thread that had no
core did nothing, so its stack names a function without guilt: `event_loop_starved` counts such holds. Events of either kind
become rare while the holds go on, and the totals in each include what was left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from odradek.runtime.real_loop_watch import LoopStall, LoopStallCounts, LoopWatch
from odradek.telemetry import events

_log = events.get("broker")
_EVENT_SECONDS_MIN: Final = 10.0
"""Shortest time between two events of a kind."""
_EVENT_SECONDS_MAX: Final = 600.0
"""Longest time between two events of a kind, while there is something to report."""
_STARVED_SHARE: Final = 0.5
"""Share of a hold without a core from which on the machine is the cause."""


class _Pace:
    """Decides which events of one kind are logged: each pause is twice the one before, until nothing came for so long."""

    def __init__(self) -> None:
        self._due_at = float("-inf")
        self._pause_s = _EVENT_SECONDS_MIN
        self.unreported_count = 0

    def passes(self, now: float) -> bool:
        if now < self._due_at:
            self.unreported_count += 1
            return False
        was_quiet = now >= self._due_at + self._pause_s
        self._pause_s = _EVENT_SECONDS_MIN if was_quiet else min(self._pause_s * 2, _EVENT_SECONDS_MAX)
        self._due_at = now + self._pause_s
        return True

    def drain_unreported(self) -> int:
        """Returns how many events were left out since the last one that was logged."""
        count, self.unreported_count = self.unreported_count, 0
        return count


class LoopStallLog:
    """Logs holds of the loop. Each event has the totals since the start: the log is the metric."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._stall_pace, self._starved_pace, self._failure_pace = _Pace(), _Pace(), _Pace()
        self._stalls, self._starved = LoopStallCounts(), LoopStallCounts()

    def __call__(self, stall: LoopStall) -> None:
        now = self._now()
        if stall.core_wait_seconds is not None and stall.core_wait_seconds >= stall.seconds * _STARVED_SHARE:
            self._starved.add(stall.seconds)
            if self._starved_pace.passes(now):
                self._report_starved(stall)
            return
        if stall.is_over:
            self._stalls.add(stall.seconds)
        if not stall.is_over or self._stall_pace.passes(now):
            self._report_stall(stall)

    def check_failed(self, error: Exception) -> None:
        """Logs that a check itself failed. The checks continue."""
        if self._failure_pace.passes(self._now()):
            _log.warning(
                "event_loop_watch_failed",
                error=f"{type(error).__name__}: {error}",
                unreported_count=self._failure_pace.drain_unreported(),
            )

    def _report_starved(self, stall: LoopStall) -> None:
        _log.warning(
            "event_loop_starved",
            held_ms=round(stall.seconds * 1000),
            without_core_ms=round((stall.core_wait_seconds or 0.0) * 1000),
            unreported_count=self._starved_pace.drain_unreported(),
            count=self._starved.count,
            total_ms=round(self._starved.seconds * 1000),
            longest_ms=round(self._starved.seconds_max * 1000),
        )

    def _report_stall(self, stall: LoopStall) -> None:
        _log.warning(
            "event_loop_held",
            held_ms=round(stall.seconds * 1000),
            cpu_ms=None if stall.cpu_seconds is None else round(stall.cpu_seconds * 1000),
            is_over=stall.is_over,
            unreported_count=self._stall_pace.drain_unreported(),
            count=self._stalls.count,
            total_ms=round(self._stalls.seconds * 1000),
            longest_ms=round(self._stalls.seconds_max * 1000),
            stack=" > ".join(stall.stack) or "it was over before a look",
        )


def watch_loop(limit_s: float, now: Callable[[], float]) -> LoopWatch:
    """Watches the running loop, and logs what held it."""
    report = LoopStallLog(now)
    return LoopWatch(limit_s, report, report.check_failed)
