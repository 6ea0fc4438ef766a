"""Latencies of millions of records in a table of fixed size, and their percentiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
_STEP_BITS: Final = 7
_STEPS: Final = 1 << _STEP_BITS
"""The cells of each doubling: a percentile is at most 1/128 above the actual latency."""
_DOUBLINGS: Final = 33
"""Doublings of `_STEPS` microseconds: up to 12 days. A longer latency counts in the last cell."""


class LatencyHistogram:
    """Counts latencies in cells of microseconds, log-linear: 34 KB, however many are added."""

    def __init__(self) -> None:
        self._counts = [0] * (_STEPS * (_DOUBLINGS + 1))
        self.count = 0
        self.max_s = 0.0
        self._sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Counts a latency. One below zero counts as zero."""
        seconds = max(0.0, seconds)
        self._counts[min(_cell(int(seconds * 1e6)), len(self._counts) - 1)] += 1
        self.count += 1
        self._sum_s += seconds
        self.max_s = max(self.max_s, seconds)

    @property
    def mean_s(self) -> float:
        """The mean, in seconds; 0 without latencies."""
        return self._sum_s / self.count if self.count else 0.0

    def percentile_s(self, percent: float) -> float:
        """Returns the latency, in seconds, that this share of all does not exceed; 0 without latencies."""
        wanted, seen = self.count * percent / 100, 0
        for cell, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min(_end_us(cell) / 1e6, self.max_s)
        return self.max_s

    def doublings(self) -> list[tuple[float, int]]:
        """Returns the upper end in seconds, and the count, of each doubling from the shortest latency to the longest."""
        counts: dict[int, int] = {}
        for cell, count in enumerate(self._counts):
            if count:
                end = _end_us(cell).bit_length()
                counts[end] = counts.get(end, 0) + count
        if not counts:
            return []
        return [((1 << end) / 1e6, counts.get(end, 0)) for end in range(min(counts), max(counts) + 1)]

    def figures(self) -> dict[str, float]:
        """Returns mean, percentiles and maximum in milliseconds, by the names that `--json` prints."""
        named = {f"p{percent:g}_ms": self.percentile_s(percent) for percent in PERCENTILES}
        seconds = {"mean_ms": self.mean_s, **named, "max_ms": self.max_s}
        return {name: round(value * 1000, 3) for name, value in seconds.items()}


def _cell(microseconds: int) -> int:
    shift = max(0, microseconds.bit_length() - _STEP_BITS - 1)
    return (shift << _STEP_BITS) + (microseconds >> shift)


def _end_us(cell: int) -> int:
    """Returns the longest latency, in microseconds, that the cell counts."""
    if cell < 2 * _STEPS:
        return cell
    shift = (cell >> _STEP_BITS) - 1
    return ((cell - (shift << _STEP_BITS) + 1) << shift) - 1


def paced(rate: float | None, count: int | None, seconds: float | None) -> Iterator[float]:
    """Yields the moment of each record, in seconds since the begin, until `count` or `seconds` are reached.

    Without a rate the moment of every record is 0: each is sent as soon as it can be. `seconds` counts with a rate only; the
    caller looks at the clock otherwise.
    """
    number = 0
    while count is None or number < count:
        moment = 0.0 if rate is None else number / rate
        if rate is not None and seconds is not None and moment >= seconds:
            return
        yield moment
        number += 1
