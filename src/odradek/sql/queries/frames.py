"""Frames of OVER: which rows of a partition, around each row, a call is of.

A frame in ROWS counts rows; one in RANGE goes by the value that the rows are ordered by, and has rows of equal values together.
Without one written, it is RANGE from the beginning to this row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any, Final, Literal, TypeAlias

from sqlglot import exp

from odradek.model.java_numbers import is_digits
from odradek.values.errors import Position, SqlError
from odradek.values.exact_numbers import WIDE
from odradek.values.rows import SqlValue
from odradek.values.types import BIGINT, DOUBLE, INTEGER, SqlType

Distance: TypeAlias = int | float | Decimal
Stretch: TypeAlias = tuple[int, int]
"""The first row of a frame, and the row after its last one. Equal for a frame without rows."""
_VISITS_MAX: Final = 3_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFrame:
    """The frame of a window function: which rows around a row it sees.

    `start`, `end`: how far from a row, below zero before it. None: from the first row, or to the last.
    """

    unit: Literal["ROWS", "RANGE"]
    start: Distance | None
    end: Distance | None

    def stretches(
        self, sizes: Sequence[int], values: Sequence[SqlValue], *, descending: bool
    ) -> list[Stretch]:
        """Returns each row's frame in a partition. `sizes`: the sizes of the groups of equal rows; `values`: the sort keys."""
        count = sum(sizes)
        if self.unit == "ROWS":
            firsts = [0 if self.start is None else row + int(self.start) for row in range(count)]
            ends = [count if self.end is None else row + int(self.end) + 1 for row in range(count)]
        else:
            groups = [
                (end - size, end)
                for size, end in zip(sizes, accumulate(sizes), strict=True)
                for _ in range(size)
            ]
            numbers = _Numbers(values, descending=descending) if self.start or self.end else None
            firsts = [
                0
                if self.start is None
                else numbers.first(row, self.start, group)
                if numbers and self.start
                else group[0]
                for row, group in enumerate(groups)
            ]
            ends = [
                count
                if self.end is None
                else numbers.end(row, self.end, group)
                if numbers and self.end
                else group[1]
                for row, group in enumerate(groups)
            ]
        clipped = [
            (min(max(first, 0), count), min(max(end, 0), count))
            for first, end in zip(firsts, ends, strict=True)
        ]
        return [(first, max(first, end)) for first, end in clipped]


TO_THIS_ROW: Final = RowFrame(unit="RANGE", start=None, end=0)


class _Numbers:
    """The sort keys of the rows in a partition. Null and NaN are near nothing but their equals."""

    def __init__(self, values: Sequence[SqlValue], *, descending: bool) -> None:
        self._sign = -1 if descending else 1
        rows = [row for row, value in enumerate(values) if value is not None and value == value]
        self._offset = rows[0] if rows else 0
        self._values = values
        self._numbers = [self._signed(values[row]) for row in rows]

    def first(self, row: int, distance: Distance, group: Stretch) -> int:
        if self._is_apart(row):
            return group[0]
        return self._offset + bisect_left(self._numbers, self._moved(row, distance))

    def end(self, row: int, distance: Distance, group: Stretch) -> int:
        if self._is_apart(row):
            return group[1]
        return self._offset + bisect_right(self._numbers, self._moved(row, distance))

    def _signed(self, value: Any) -> Any:
        """The value, whose sign is turned around in a descending order. A decimal keeps its digits: `-` rounds it to 28."""
        if self._sign > 0:
            return value
        return value.copy_negate() if isinstance(value, Decimal) else -value

    def _moved(self, row: int, distance: Distance) -> Any:
        """The sort key of a row, moved by a distance."""
        value = self._signed(self._values[row])
        return WIDE.add(value, Decimal(distance)) if isinstance(value, Decimal) else value + distance

    def _is_apart(self, row: int) -> bool:
        value = self._values[row]
        return value is None or value != value


def frame_of(
    window: exp.Window, called: str, order: Sequence[SqlType], position: Position | None
) -> RowFrame:
    """Returns the frame of a call: what is written, or what SQL has for none. SqlError."""
    spec = window.args.get("spec")
    if spec is None:
        return TO_THIS_ROW
    unit: Literal["ROWS", "RANGE"] = "ROWS" if spec.args["kind"] == "ROWS" else "RANGE"
    if not order:
        raise SqlError("a frame needs an order", position, f"Write {called}(…) OVER (ORDER BY … {unit} …).")
    start = _distance(spec.args["start"], spec.args["start_side"], unit, order, position)
    end = _distance(spec.args["end"], spec.args["end_side"], unit, order, position)
    begins_late = spec.args["start"] == "UNBOUNDED" and spec.args["start_side"] == "FOLLOWING"
    ends_early = spec.args["end"] == "UNBOUNDED" and spec.args["end_side"] == "PRECEDING"
    if begins_late or ends_early or (start is not None and end is not None and start > end):
        raise SqlError(
            "a frame ends before it begins", position, "Write BETWEEN the earlier bound AND the later one."
        )
    return RowFrame(unit=unit, start=start, end=end)


def _distance(
    written: str | exp.Literal,
    side: str | None,
    unit: str,
    order: Sequence[SqlType],
    position: Position | None,
) -> Distance | None:
    if written == "UNBOUNDED":
        return None
    if not isinstance(written, exp.Literal):
        return 0
    text, kind = written.name, INTEGER
    if unit == "RANGE":
        if len(order) != 1 or not (order[0] in (INTEGER, BIGINT, DOUBLE) or order[0].kind == "DECIMAL"):
            raise SqlError(
                "RANGE with a distance needs ORDER BY of one number", position, "Write ROWS to count rows."
            )
        kind = order[0]
    if kind in (INTEGER, BIGINT) and not is_digits(text):
        raise SqlError(f"the distance {text} of a frame is a whole number here", position)
    distance = float(text) if kind == DOUBLE else Decimal(text) if kind.kind == "DECIMAL" else int(text)
    if side != "PRECEDING":
        return distance
    return distance.copy_negate() if isinstance(distance, Decimal) else -distance


def check_visits(stretches: Sequence[Stretch], position: Position | None) -> None:
    """Raises SqlError when frames that do not begin where the one before did are too many rows together."""
    visits = sum(
        end - first
        for (first, end), (before, _) in zip(stretches[1:], stretches, strict=False)
        if first != before
    )
    if visits > _VISITS_MAX:
        raise SqlError(
            f"these frames have {visits} rows together, more than {_VISITS_MAX}",
            position,
            "Write a shorter frame; one that begins at UNBOUNDED PRECEDING, with the order turned round, is cheap.",
        )
