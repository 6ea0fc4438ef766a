"""Lag over time as a line: points of an SVG polyline, and the labels of its axes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.console.model.lag_history import LagSample

WIDTH: Final = 600.0
HEIGHT: Final = 120.0


class LagLine(NamedTuple):
    """A line, and the area below it."""

    points: str
    area: str
    lag_max: int
    span_ms: int


def lag_line(samples: Sequence[LagSample]) -> LagLine | None:
    """Returns the line of these samples, the oldest first; None for fewer than two moments."""
    if len(samples) < 2 or samples[-1].at_ms <= samples[0].at_ms:
        return None
    first_ms, span_ms = samples[0].at_ms, samples[-1].at_ms - samples[0].at_ms
    highest = max(sample.lag for sample in samples)
    points = [
        (
            round(WIDTH * (sample.at_ms - first_ms) / span_ms, 1),
            round(HEIGHT * (1 - sample.lag / highest), 1) if highest else HEIGHT,
        )
        for sample in samples
    ]
    line = " ".join(f"{x},{y}" for x, y in points)
    return LagLine(line, f"0,{HEIGHT} {line} {points[-1][0]},{HEIGHT}", highest, span_ms)
