"""Single measurements, and what they say together: medians, and ratios between contenders with their spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One figure of one contender in one round."""

    measure: str
    """What was measured, e.g. `produce`."""
    condition: str
    """Under which conditions, e.g. `1 KiB values, acks=all`."""
    quantity: str
    """Which of its figures, e.g. `MB/s`; names the unit."""
    better: Better
    contender: str
    round_number: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The middle and both ends of several values."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        listed = list(values)
        return cls(median=statistics.median(listed), lowest=min(listed), highest=max(listed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One figure of one contender over all rounds, and its ratio to the peer, round by round."""

    measure: str
    condition: str
    quantity: str
    better: Better
    contender: str
    values: Spread
    ratio: Spread | None
    """contender / peer, each round's value by the same round's; None for the peer itself or without it."""

    @property
    def verdict(self) -> str:
        """Whether the ratio is on the good side of 1, on the bad side, or its spread reaches across 1."""
        if self.ratio is None:
            return ""
        above, below = self.ratio.lowest > 1, self.ratio.highest < 1
        if not above and not below:
            return "level"
        return "better" if above == (self.better == "higher") else "worse"


def findings(samples: Iterable[Sample], peer: str) -> list[Finding]:
    """All samples put together, in the order in which their kinds first appeared."""
    by_kind: dict[tuple[str, str, str, Better, str], dict[int, float]] = {}
    for sample in samples:
        kind = (sample.measure, sample.condition, sample.quantity, sample.better, sample.contender)
        by_kind.setdefault(kind, {})[sample.round_number] = sample.value
    results = []
    for (measure, condition, quantity, better, contender), values in by_kind.items():
        peers = by_kind.get((measure, condition, quantity, better, peer), {})
        ratios = [value / peers[number] for number, value in values.items() if peers.get(number)]
        results.append(
            Finding(
                measure=measure,
                condition=condition,
                quantity=quantity,
                better=better,
                contender=contender,
                values=Spread.of(values.values()),
                ratio=Spread.of(ratios) if ratios and contender != peer else None,
            )
        )
    return results
