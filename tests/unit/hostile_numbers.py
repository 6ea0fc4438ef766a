"""Texts that Python's `int`, `float` or `str.isdigit` take for numbers, and Java does not."""

from __future__ import annotations

from typing import Final

NO_WHOLE: Final = (
    "",
    "1_000",
    "_1",
    "1_",
    "1,000",
    "1 000",
    "\u0661\u0662",  # Arabic-Indic digits
    "\uff11\uff12",  # digits of full width
    "\u00b2",  # a superscript: `isdigit` says yes, `int` says no
    "\u00bd",
    "12\u00a0",  # a blank that Python strips and Java does not
    "\u200312",
    "inf",
    "-inf",
    "nan",
    "NaN",
    "Infinity",
    "1.5",
    "1e3",
    "0x10",
    "0b1",
    "--1",
    "+-1",
    "1L",
    "9" * 5_000,  # `int` of a longer text raises an error of its own
)
"""No reader of whole numbers accepts any of these."""

_REAL: Final = ("1.5", "1e3")
NO_REAL: Final = (*(text for text in NO_WHOLE if text not in _REAL), "1e999", "1.2.3", "1e", ".", "1_0.5")
"""No reader of real numbers accepts any of these."""
