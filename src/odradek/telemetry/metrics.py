"""Metrics as plain values: families of samples, histograms that cost little to fill, and the bound of how many series leave.

Theory. The part that changes a figure owns it: a counter is an `int` in an object of the event loop, a gauge is read where it
is. A scrape makes families of them on the loop, in turns; another thread writes the text (`exposition.py`). So a sample on a
request's path is an addition, and no lock is taken.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Final

LATENCY_BOUNDS_S: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""Upper bounds of latencies, in seconds."""

_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_UNESCAPING: Final = re.compile(r"\\(.)")


class MetricKind(Enum):
    """The type of a family's samples."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Histogram:
    """Counts of values by upper bound. Only the thread that owns it calls `add`; a scrape takes a `copy`."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        self.bounds: Final = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """Counts by bound, not cumulative; the last one counts larger values."""
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def copy(self) -> Histogram:
        copied = Histogram(self.bounds)
        copied.counts, copied.total = list(self.counts), self.total
        return copied


Value = float | Histogram


Row = tuple[Any, ...]
"""Labels, as `labels` makes them, and a value for each of some families."""


class Family:
    """Samples of one name. A counter's name is without `_total`.

    Families with a sample for each of many things share rows: one tuple for each thing is what the event loop pays for, and
    the samples are made of it where they are read, on another thread.
    """

    __slots__ = ("_columns", "_samples", "kind", "meaning", "name")

    def __init__(
        self,
        *,
        name: str,
        kind: MetricKind,
        meaning: str,
        samples: list[tuple[str, Value]] | None = None,
        columns: Iterable[tuple[list[Row], int]] = (),
    ) -> None:
        """`columns`: rows, and the position of the value in each of them."""
        self.name: Final = name
        self.kind: Final = kind
        self.meaning: Final = meaning
        self._samples = samples if samples is not None else []
        self._columns = list(columns)

    @property
    def samples(self) -> list[tuple[str, Value]]:
        """Labels, as `labels` makes them, and the value."""
        columns, self._columns = self._columns, []
        for rows, position in columns:
            self._samples += [(row[0], row[position]) for row in rows]
        return self._samples

    def add(self, value: Value, label_text: str = "") -> None:
        self._samples.append((label_text, value))

    @property
    def series_count(self) -> int:
        """A histogram is a series for each bound, and three more."""
        if self.kind is not MetricKind.HISTOGRAM:
            return len(self._samples) + sum(len(rows) for rows, _ in self._columns)
        return sum(_series_of(value) for _, value in self.samples)


def counter(name: str, meaning: str) -> Family:
    return Family(name=name, kind=MetricKind.COUNTER, meaning=meaning)


def gauge(name: str, meaning: str) -> Family:
    return Family(name=name, kind=MetricKind.GAUGE, meaning=meaning)


def histogram(name: str, meaning: str) -> Family:
    return Family(name=name, kind=MetricKind.HISTOGRAM, meaning=meaning)


def labels(**values: object) -> str:
    """Returns the text of labels: `topic="t",partition="0"`. Any value is fit for it: it is escaped."""
    return ",".join([f'{name}="{escaped(str(value))}"' for name, value in values.items()])


def escaped(text: str) -> str:
    """Returns a label's value as the formats want it. Lone surrogates, which UTF-8 cannot write, become question marks."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    if "\\" in text or '"' in text or "\n" in text:
        text = text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return text


def label_pairs(text: str) -> dict[str, str]:
    """Returns the labels in a text that `labels` made."""
    return {name: _UNESCAPING.sub(_unescaped, value) for name, value in _LABEL.findall(text)}


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def bounded(families: Iterable[Family], series_max: int) -> list[Family]:
    """Returns the families with at most `series_max` series in all, and a last one that counts by family what was left out.

    The first families come first; what is left out of a family are its last samples. The last family is beyond the bound.
    """
    kept: list[Family] = []
    left_out = gauge("odradek_metrics_series_left_out", "Series that odradek.metrics.series.max left out.")
    room = series_max
    total = 0
    for family in families:
        samples = family.samples
        count = family.series_count
        if count > room:
            samples = _first(family, room)
        fitting = Family(name=family.name, kind=family.kind, meaning=family.meaning, samples=samples)
        missing = count - fitting.series_count if count > room else 0
        room -= count - missing
        if missing:
            total += missing
            left_out.add(missing, labels(family=family.name))
        kept.append(fitting)
    left_out.samples.insert(0, ("", total))
    return [*kept, left_out]


def _first(family: Family, room: int) -> list[tuple[str, Value]]:
    if family.kind is not MetricKind.HISTOGRAM:
        return family.samples[:room]
    taken = []
    for sample in family.samples:
        room -= _series_of(sample[1])
        if room < 0:
            break
        taken.append(sample)
    return taken


def _series_of(value: Value) -> int:
    return len(value.bounds) + 3 if isinstance(value, Histogram) else 1
