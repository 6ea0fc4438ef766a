"""Text is a number where Java says so, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.model.java_numbers import decimal_number, double_number, whole_number

WRITTEN_FOR_PYTHON = [
    "",
    " ",
    "1_000",
    "١",
    "inf",
    "nan",
    "infinity",
    "1__0",
    "0x10",
    "1,0",
    "+-1",
    "--1",
    "e5",
    ".",
    "1e",
    "x",
]


@pytest.mark.parametrize("read", [whole_number, decimal_number, double_number])
@pytest.mark.parametrize("text", WRITTEN_FOR_PYTHON)
def test_what_only_python_reads_is_refused(read: Callable[[str], Any], text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        read(text)


@pytest.mark.parametrize("read", [whole_number, decimal_number])
@pytest.mark.parametrize("text", [" 7", "7 ", "7\n", "NaN", "Infinity"])
def test_blanks_and_names_are_no_exact_numbers(read: Callable[[str], Any], text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        read(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" 7 ", 7.0),
        ("1.5f", 1.5),
        ("1.D", 1.0),
        (".5e1", 5.0),
        ("-Infinity", -math.inf),
        ("1e999", math.inf),
        ("0x1.8p1", 3.0),
        ("-0x1p99999", -math.inf),
    ],
)
def test_a_double_is_what_parse_double_reads(text: str, value: float) -> None:
    assert double_number(text) == value
    assert math.isnan(double_number("NaN"))


@given(st.integers())
def test_every_whole_number_comes_back(number: int) -> None:
    assert whole_number(str(number)) == number


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_every_decimal_comes_back(number: Decimal) -> None:
    assert decimal_number(str(number)) == number


@given(st.floats(allow_nan=False))
def test_every_double_comes_back(number: float) -> None:
    text = "Infinity" if number == math.inf else "-Infinity" if number == -math.inf else repr(number)
    assert double_number(text) == number
