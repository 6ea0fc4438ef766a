"""Metrics of a client, under Kafka's names.

Theory. The part that changes a figure owns it (decision 0078): a `Measure` is filled by one thread only, and a gauge is read
where it is. `metrics()` reads all of them through a table (`producer_metrics.py`, `consumer_metrics.py`) and changes none, so
that any thread may call it. A value costs an addition for each request or batch, never for each record.

Averages, maxima and rates cover the last 30 to 60 seconds, as in Java (metrics.sample.window.ms,
metrics.num.samples).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from odradek.runtime.ports import Clock

_WINDOW_S: Final = 30.0
_MS: Final = 1000.0


class MetricName(NamedTuple):
    """Kafka's name of a figure: `MetricName("producer-metrics", "record-send-total", (("client-id", "odradek"),))`."""

    group: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()
    """Pairs of a tag and its value."""


class _Window:
    """The values of one window of time."""

    __slots__ = ("began_at", "count", "largest", "total")

    def __init__(self, began_at: float) -> None:
        self.began_at: Final = began_at
        self.count = 0
        self.total = 0.0
        self.largest = -math.inf


class Measure:
    """Values that come one by one: their count, their sum, and averages of the last windows. `add` is for one thread."""

    __slots__ = ("_clock", "_windows", "count", "total")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._windows: tuple[_Window, ...] = (_Window(clock.monotonic()),)
        """The last one takes values; the one before it still counts."""
        self.count = 0
        self.total = 0.0

    def add(self, value: float) -> None:
        now = self._clock.monotonic()
        window = self._windows[-1]
        if now - window.began_at >= _WINDOW_S:
            window = _Window(now)
            self._windows = (self._windows[-1], window)
        window.count += 1
        window.total += value
        window.largest = max(window.largest, value)
        self.count += 1
        self.total += value

    @property
    def average(self) -> float:
        """NaN where no value came, as in Java."""
        windows = self._recent()
        count = sum(window.count for window in windows)
        return sum(window.total for window in windows) / count if count else math.nan

    @property
    def maximum(self) -> float:
        """NaN where no value came, as in Java."""
        largest = max((window.largest for window in self._recent()), default=-math.inf)
        return largest if largest > -math.inf else math.nan

    @property
    def rate(self) -> float:
        """The sum per second."""
        return self._per_second(sum(window.total for window in self._recent()))

    @property
    def count_rate(self) -> float:
        """The count per second."""
        return self._per_second(sum(window.count for window in self._recent()))

    def _recent(self) -> list[_Window]:
        since = self._clock.monotonic() - 2 * _WINDOW_S
        return [window for window in self._windows if window.began_at > since]

    def _per_second(self, total: float) -> float:
        """Returns the rate, over 30 seconds at least: a client that has just begun shows no wild rates."""
        now = self._clock.monotonic()
        began_at = min((window.began_at for window in self._recent()), default=now)
        return total / max(now - began_at, _WINDOW_S)


class Metric(NamedTuple):
    """A row of a table: the figure, what it means, and where it is read."""

    group: str
    name: str
    meaning: str
    read: Callable[[], float]


Rows = Iterable[Metric]


def latency(group: str, name: str, what: str, measure: Measure) -> Rows:
    """Yields two rows of a measure of seconds, in milliseconds as in Java."""
    yield Metric(group, f"{name}-avg", f"The average time of {what}, in ms.", lambda: measure.average * _MS)
    yield Metric(group, f"{name}-max", f"The longest time of {what}, in ms.", lambda: measure.maximum * _MS)


def size(group: str, name: str, what: str, measure: Measure) -> Rows:
    """Yields two rows of a measure of sizes."""
    yield Metric(group, f"{name}-avg", f"The average of {what}.", lambda: measure.average)
    yield Metric(group, f"{name}-max", f"The largest of {what}.", lambda: measure.maximum)


def total(group: str, name: str, what: str, measure: Measure) -> Rows:
    """Yields the sum of a measure's values, and its rate."""
    yield Metric(group, f"{name}-total", f"{what}.", lambda: measure.total)
    yield Metric(group, f"{name}-rate", f"{what}, per second.", lambda: measure.rate)


def count(group: str, name: str, what: str, measure: Measure) -> Rows:
    """Yields the count of a measure's values, and its rate."""
    yield Metric(group, f"{name}-total", f"{what}.", lambda: float(measure.count))
    yield Metric(group, f"{name}-rate", f"{what}, per second.", lambda: measure.count_rate)


def read(rows: Rows, client_id: str) -> dict[MetricName, float]:
    """Returns the figures of a table now."""
    tags = (("client-id", client_id),)
    return {MetricName(metric.group, metric.name, tags): metric.read() for metric in rows}
