"""Figures as pictures of text: a rate over time, and how latencies are spread."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

_BARS: Final = "▁▂▃▄▅▆▇█"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
WIDTH: Final = 40


def rate_line(rates: Sequence[float], width: int = WIDTH) -> str:
    """Returns a bar for each interval, as high as its rate; neighbours are averaged where there are more than `width`."""
    if not rates:
        return ""
    if len(rates) > width:
        edges = [number * len(rates) // width for number in range(width + 1)]
        rates = [sum(rates[a:b]) / (b - a) for a, b in pairwise(edges)]
    highest = max(rates)
    if highest <= 0:
        return _BARS[0] * len(rates)
    return "".join(_BARS[round(max(0.0, rate) / highest * (len(_BARS) - 1))] for rate in rates)


def latency_bars(doublings: Sequence[tuple[float, int]], width: int = WIDTH) -> list[str]:
    """Returns a line for each doubling of the latency: its upper end, a bar for its share of all, the share in percent."""
    total = sum(count for _, count in doublings)
    largest = max((count for _, count in doublings), default=0)
    return [
        f"  ≤ {duration_text(end_s):>9}  {_bar(count / largest, width)} {count / total:6.1%}"
        for end_s, count in doublings
    ]


def duration_text(seconds: float) -> str:
    """Returns a duration with three digits and its unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.0f} µs"


def _bar(share: float, width: int) -> str:
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width)
