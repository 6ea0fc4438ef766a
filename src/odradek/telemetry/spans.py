"""Spans as plain values: what one step did with a record, and when. A port separates them from their
exporter.

Theory. A part that makes spans hands each finished one to a `SpanSink`, which returns at once. The sink that sends them to a
collector is in `opentelemetry_export.py`; nothing else in Odradek imports OpenTelemetry's SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from odradek.telemetry.trace_context import TraceContext

AttributeValue = str | int | bool
_STEP_NS: Final = 50_000_000
_NS_PER_MS: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000


class SpanKind(Enum):
    """OpenTelemetry's kinds of spans that Odradek makes."""

    SERVER = "server"
    CONSUMER = "consumer"
    PRODUCER = "producer"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedSpan:
    """A span that has ended. Times are nanoseconds since 1970."""

    name: str
    kind: SpanKind
    context: TraceContext
    parent: TraceContext
    start_ns: int
    end_ns: int
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    error: str | None = None
    """The reason of a failure; None for a step that succeeded."""


class SpanSink(Protocol):
    """Receives finished spans. `add` may be called on any thread; it neither waits nor raises."""

    def add(self, span: FinishedSpan) -> None: ...


class SpanClock:
    """Wall time in nanoseconds, from a wall clock in milliseconds and a monotonic one. Used by one thread.

    Milliseconds are cut off, so each reading shows at least how far the wall clock is ahead of the monotonic one. The largest
    reading counts, until the wall clock is set to another time.
    """

    def __init__(self, wall_ms: Callable[[], int], monotonic: Callable[[], float]) -> None:
        self._wall_ms = wall_ms
        self._monotonic = monotonic
        self._ahead_ns = 0

    def now_ns(self) -> int:
        return self.at_ns(self._monotonic())

    def at_ns(self, monotonic_s: float) -> int:
        """Returns the wall time at a monotonic time of a moment ago."""
        ahead_ns = self._wall_ms() * _NS_PER_MS - int(self._monotonic() * _NS_PER_S)
        if ahead_ns > self._ahead_ns or self._ahead_ns - ahead_ns > _STEP_NS:
            self._ahead_ns = ahead_ns
        return int(monotonic_s * _NS_PER_S) + self._ahead_ns


class RateLimit:
    """What may be spent each second; it can be saved for one second. Used by one thread."""

    def __init__(self, per_second: int, now: Callable[[], float]) -> None:
        self._per_second = per_second
        self._now = now
        self._left = float(per_second)
        self._updated_at = now()

    def allow(self, cost: float = 1.0) -> bool:
        """Tells whether `cost` is available now, and spends it if it is."""
        now = self._now()
        self._left = min(self._left + (now - self._updated_at) * self._per_second, float(self._per_second))
        self._updated_at = now
        if self._left < cost:
            return False
        self._left -= cost
        return True
