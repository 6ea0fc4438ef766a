"""Aggregates where Python's numbers and lists are not Java's."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from odradek.sql.functions import folds
from odradek.sql.functions.folds import ValueFold
from odradek.values.types import decimal_of


def folded(fold: ValueFold, *values: Any) -> Any:
    state = fold.start()
    for value in values:
        state = fold.add(state, value)
    return fold.result(state)


def test_nan_is_the_largest_double() -> None:
    assert math.isnan(folded(folds.extreme(largest=True), 5.0, math.nan, 1.0))
    assert folded(folds.extreme(largest=False), math.nan, 1.0, 5.0) == 1.0
    nan, nine = folded(folds.top(2, distinct=False), 5.0, math.nan, 9.0, 1.0)
    assert (math.isnan(nan), nine) == (True, 9.0)


def test_nan_equals_nan() -> None:
    nans = [float("nan"), float("nan")]
    assert len(folded(folds.collected_once(9), *nans)) == 1
    assert len(folded(folds.top(3, distinct=True), *nans)) == 1
    lists = folds.collected(9)
    assert lists.undo is not None
    assert lists.undo([1.0, nans[0]], nans[1]) == [1.0]


def test_zeros_with_and_without_a_sign_are_two_values() -> None:
    zeros = [0.0, -0.0, 0.0, -0.0]
    for collected in (
        folded(folds.collected_once(9), *zeros),
        folds.collected_once(9).merge([0.0], [-0.0, 0.0]),
        [part["x"] for part in folded(folds.collected_once(9), *({"x": zero} for zero in zeros))],
        [part[0] for part in folded(folds.collected_once(9), *([zero] for zero in zeros))],
    ):
        assert list(map(repr, collected)) == ["0.0", "-0.0"]
    assert folded(folds.distinct_count(), *zeros) == 2
    assert folded(folds.only_value(), 0.0, -0.0) is None
    assert repr(folded(folds.only_value(), -0.0, -0.0)) == "-0.0"
    lists = folds.collected(9)
    assert lists.undo is not None
    assert list(map(repr, lists.undo([0.0, -0.0], -0.0))) == ["0.0"]


def test_a_sum_of_decimals_keeps_all_digits() -> None:
    large = Decimal("12345678901234567890123456789012.25")
    fold = folds.total(decimal_of(38, 2))
    assert folded(fold, large, Decimal("0.50")) == Decimal("12345678901234567890123456789012.75")
    assert fold.merge(large, Decimal("0.01")) == Decimal("12345678901234567890123456789012.26")
    assert folded(folds.total(decimal_of(3, 1)), Decimal("99.9"), Decimal("0.1")) is None


def test_a_deviation_that_is_too_large_is_infinity() -> None:
    assert folded(folds.deviation(), 1e200, 2e200, 3e200) == math.inf


def test_a_column_of_values_is_as_value_by_value_and_leaves_the_state() -> None:
    for fold in (folds.collected_once(9), folds.collected(9)):
        assert fold.add_column is not None
        odd = [0.0, -0.0, math.nan, None, -0.0, float("nan"), 1.0]
        assert repr(fold.add_column([], odd)) == repr(folded(fold, *odd))
    for fold in (folds.collected(4), folds.collected_once(4)):
        assert fold.add_column is not None
        state = [1]
        by_value: Any = state
        for value in (2, 1, None, 3, 4):
            by_value = fold.add(by_value, value)
        assert fold.add_column(state, [2, 1, None, 3, 4]) == by_value
        assert state == [1]
