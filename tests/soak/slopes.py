"""Does a series grow? Theil and Sen's slope over its second half: a spike, or a step at the beginning, does not count."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Point = tuple[float, float]
_POINTS_MAX: Final = 400
_RISING_SHARE: Final = 0.7
"""Of all pairs of points, so many must rise: noise rises as often as it falls."""

FLOORS: Final = {
    "rss_bytes": 16 << 20,
    "descriptors": 10.0,
    "threads": 2.0,
    "close_wait_count": 2.0,
    "log_bytes": 4 << 20,
    "data_bytes": 64 << 20,
    "loop_holds": 60.0,
    "cpu_s": 3600.0,
    "lag_ms": 20.0,
    "p50_ms": 10.0,
    "p99_ms": 50.0,
    "max_ms": 250.0,
}
"""Growth in an hour, by the last word of a series, below which it is nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    name: str
    first: float
    median: float
    last: float
    most: float
    per_hour: float
    """Over the second half."""
    rising_share: float
    is_growing: bool


def growth(name: str, points: Sequence[Point]) -> Growth:
    """Returns the growth of a series with at least one point."""
    values = [value for _, value in points]
    half = _thinned(points[len(points) // 2 :])
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for index, earlier in enumerate(half)
        for later in half[index + 1 :]
        if later[0] > earlier[0]
    ]
    per_hour = statistics.median(slopes) * 3600 if slopes else 0.0
    rising_share = sum(slope > 0 for slope in slopes) / len(slopes) if slopes else 0.0
    floor = FLOORS[name.split()[-1]]
    return Growth(
        name=name,
        first=values[0],
        median=statistics.median(values),
        last=values[-1],
        most=max(values),
        per_hour=per_hour,
        rising_share=rising_share,
        is_growing=per_hour > floor and rising_share >= _RISING_SHARE,
    )


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """Few enough to compare each with each."""
    step = -(-len(points) // _POINTS_MAX) if points else 1
    return points[::step]


def table(growths: Sequence[Growth]) -> str:
    head = (
        f"{'series':28} {'first':>12} {'median':>12} {'last':>12} {'most':>12} {'per hour':>12} {'rising':>7}"
    )
    lines = [head, "-" * len(head)]
    for named in growths:
        numbers = " ".join(
            f"{_shown(named.name, value):>12}"
            for value in (named.first, named.median, named.last, named.most, named.per_hour)
        )
        lines.append(
            f"{named.name:28} {numbers} {named.rising_share:7.0%}{'  GROWS' if named.is_growing else ''}"
        )
    return "\n".join(lines)


def _shown(name: str, value: float) -> str:
    return f"{value / (1 << 20):.2f} MB" if name.endswith("_bytes") else f"{value:.2f}"
