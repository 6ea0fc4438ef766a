"""How long nothing was acknowledged, and which fault that was owed to."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

WORTH_NOTING_S: Final = 0.5
_EARLY_S: Final = 0.1
"""A gap begins with the last answer before the fault."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The time between two answers that a client got."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Watch:
    """Measures the gaps of one client: call `answered` with each answer."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.gaps: list[Gap] = []

    def answered(self) -> None:
        now = time.monotonic()
        if now - self._last >= WORTH_NOTING_S:
            self.gaps.append(Gap(self._last, now))
        self._last = now


def by_fault(gaps: Iterable[Gap], faults: Iterable[tuple[float, str]]) -> dict[str, float]:
    """The longest gap in seconds by kind of fault, longest first. `faults`: when each began, in order, and its kind.

    A gap belongs to the last fault that had begun when it did, or a moment later; one before all faults to "the start".
    """
    answers = list(faults)
    longest: dict[str, float] = {}
    for gap in gaps:
        kinds = [kind for began, kind in answers if began <= gap.began + _EARLY_S]
        kind = kinds[-1] if kinds else "the start"
        longest[kind] = max(longest.get(kind, 0.0), gap.seconds)
    return dict(sorted(longest.items(), key=lambda entry: -entry[1]))
