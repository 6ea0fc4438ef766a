"""Rows of a query as a chart: bars, each with its label and its value as text, or a line. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

WIDTH: Final = 600.0
HEIGHT: Final = 160.0
BARS_MAX: Final = 40
SEEN_MIN: Final = 1.0
KINDS: Final = ("bars", "line")
_NUMBERS: Final = ("INTEGER", "INT", "BIGINT", "DOUBLE", "DECIMAL")
Columns = Sequence[tuple[str, str]]


class ChartBar(NamedTuple):
    """One bar: where it begins and how long it is, of `WIDTH`."""

    label: object
    value: float
    x: float
    width: float


class ResultChart(NamedTuple):
    """A chart of one column. `bars` or `points` is filled; `zero` is where the axis crosses, on the side of the values."""

    kind: str
    label_name: str
    value_name: str
    bars: tuple[ChartBar, ...]
    points: str
    zero: float
    drawn: int
    left: int
    """The rows that are not drawn: older ones, and rows without a number."""
    lowest: float
    highest: float


def is_number_column(kind: str) -> bool:
    """Tells whether a column of this type holds numbers."""
    return kind.upper().startswith(_NUMBERS)


def chart_choice(columns: Columns, label: str, value: str) -> tuple[int, int] | None:
    """Returns the columns of labels and of values: the named ones, or else the first text and the last number.

    None where no column holds numbers.
    """
    names = [name for name, _ in columns]
    numbers = [index for index, (_, kind) in enumerate(columns) if is_number_column(kind)]
    if not numbers:
        return None
    others = [index for index in range(len(columns)) if index not in numbers]
    chosen = names.index(value) if value in names else -1
    values = chosen if chosen in numbers else numbers[-1]
    labels = names.index(label) if label in names else (others or [0])[0]
    return labels, values


def result_chart(
    kind: str, columns: Columns, rows: Iterable[Sequence[object]], choice: tuple[int, int]
) -> ResultChart | None:
    """Returns the chart of these rows, in their order; None where none has a number."""
    labels, values = choice
    listed = list(rows)
    pairs = [
        (row[labels], number)
        for row in listed
        if len(row) == len(columns) and (number := _number(row[values])) is not None
    ]
    if kind == "bars":
        pairs = pairs[-BARS_MAX:]
    if not pairs:
        return None
    numbers = [number for _, number in pairs]
    lowest, highest = min(numbers), max(numbers)
    low, high = min(0.0, lowest), max(0.0, highest)
    # halves and shares, since the span of the largest floats is infinite
    span = high / 2 - low / 2 or 0.5
    names = columns[labels][0], columns[values][0]
    left = len(listed) - len(pairs)
    if kind == "bars":
        zero = WIDTH * (-low / 2 / span)
        bars = tuple(_bar(label, number, zero, span) for label, number in pairs)
        return ResultChart(kind, *names, bars, "", round(zero, 1), len(pairs), left, lowest, highest)
    step = WIDTH / max(1, len(numbers) - 1)
    points = " ".join(
        f"{index * step:.1f},{HEIGHT * ((high / 2 - number / 2) / span):.1f}"
        for index, number in enumerate(numbers)
    )
    zero = round(HEIGHT * (high / 2 / span), 1)
    return ResultChart(kind, *names, (), points, zero, len(pairs), left, lowest, highest)


def _bar(label: object, number: float, zero: float, span: float) -> ChartBar:
    length = max(SEEN_MIN, WIDTH * (abs(number / 2) / span)) if number else 0.0
    x = zero if number >= 0 else zero - length
    return ChartBar(label, number, round(max(0.0, x), 1), round(length, 1))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
