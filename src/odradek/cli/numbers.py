"""Numbers that a person types. Python's own functions also read "1_000", " 5 ", "inf" and digits of other scripts."""

from __future__ import annotations

from typing import Any

import click

from odradek.model.java_numbers import finite_number, whole_number


class Whole(click.IntRange):
    """A whole number within bounds, written with the digits 0 to 9 and perhaps a sign.

    `bits`: what the protocol has room for, without the sign: 31 for partitions and brokers, 63 for offsets and times.
    """

    def __init__(self, min: int | None = None, max: int | None = None, *, bits: int = 63) -> None:  # noqa: A002
        super().__init__(min, max)
        self._bits = bits

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if isinstance(value, str):
            try:
                number = whole_number(value)
            except ValueError:
                self.fail(
                    f"{value!r:.80} is not a whole number: write digits only, such as 1000",
                    parameter,
                    context,
                )
            if not -(1 << self._bits) <= number < 1 << self._bits:
                self.fail(f"{value!r:.80} is too large: at most {(1 << self._bits) - 1}", parameter, context)
            value = number
        return super().convert(value, parameter, context)


class Real(click.FloatRange):
    """A finite number within bounds, perhaps with a point or an exponent."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if isinstance(value, str):
            try:
                value = finite_number(value)
            except ValueError:
                self.fail(f"{value!r:.80} is not a number: write it as 10 or 2.5", parameter, context)
        return super().convert(value, parameter, context)
