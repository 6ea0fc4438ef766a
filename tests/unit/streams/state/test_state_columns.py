"""Dictionaries of state that are written as columns: they come back equal, and bytes that others wrote are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.model.errors import KafkaError
from odradek.streams.processors.state import state_columns
from odradek.streams.processors.state.state_bytes import state_bytes, state_value

INTS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(), max_size=6)  # with surrogates
WINDOWS = st.one_of(
    *(
        st.dictionaries(st.tuples(INTS, INTS), st.tuples(aggregates, INTS), min_size=4, max_size=9)
        for aggregates in (INTS, *(st.lists(INTS, min_size=width, max_size=width) for width in (1, 3)))
    )
)
NAMES = ("key", "number", "é")
RECORDS = st.dictionaries(
    TEXTS,
    st.tuples(TEXTS, INTS, TEXTS).map(lambda parts: dict(zip(NAMES, parts, strict=True))),
    min_size=4,
    max_size=9,
)
ONE_OF_A_KIND: list[dict[Any, Any]] = [
    {(start, 1): ([True], 2) for start in range(4)},
    {(start, 1): ([2**63], 2) for start in range(4)},
    {(start, 1): ([1] * start, 2) for start in range(4)},
    {(start, 1): ([], 2) for start in range(4)},
    {(start, 1): (None, 2) for start in range(4)},
    {(start, 1): True for start in range(4)},
    {(start,): ([1], 2) for start in range(4)},
    {(float(start), 1): ([1], 2) for start in range(4)},
    {str(number): {"a": number} if number else {"b": number} for number in range(4)},
    {str(number): {"a": None} for number in range(4)},
    {str(number): {"a": bool(number)} for number in range(4)},
    {str(number): {} for number in range(4)},
    {str(number): number for number in range(4)},
    {"a": {"x": 1}, 1: {"x": 1}, "b": {"x": 1}, "c": {"x": 1}},
    {str(number): {"a": 1} for number in range(state_columns.ENTRIES_MIN - 1)},
]


def _same(value: Any, other: Any) -> bool:
    """Equal, in the same order, and of the same types: 1 and True are not the same."""
    return repr(value) == repr(other)


@given(st.one_of(WINDOWS, RECORDS))
def test_what_is_written_as_columns_comes_back(value: dict[Any, Any]) -> None:
    data = state_bytes(value)
    assert data[1:2] in (state_columns.WINDOWS, state_columns.RECORDS)
    assert _same(state_value(data), value)
    nested = (value, [value])
    assert _same(state_value(state_bytes(nested)), nested)


@pytest.mark.parametrize("value", ONE_OF_A_KIND, ids=str)
def test_other_shapes_are_written_value_by_value(value: dict[Any, Any]) -> None:
    data = state_bytes(value)
    assert data[1:2] == b"d"
    assert _same(state_value(data), value)


def test_columns_take_fewer_bytes_than_values() -> None:
    windows = {(start, start + 60_000): ([start], start) for start in range(16)}
    records = {f"('user{number}',)": {"key": f"user{number}"} for number in range(1_000)}
    assert len(state_bytes(windows)) < 16 * 33 + 16
    assert len(state_bytes(records)) < 1_000 * 30 + 64


@settings(max_examples=300)
@given(st.one_of(WINDOWS, RECORDS), st.data())
def test_bytes_that_are_cut_or_changed_are_refused_or_read(
    value: dict[Any, Any], data: st.DataObject
) -> None:
    whole = state_bytes(value)
    with pytest.raises(KafkaError, match="a row of state is unreadable"):
        state_value(whole[: data.draw(st.integers(1, len(whole) - 1))])
    changed = bytearray(whole)
    changed[data.draw(st.integers(1, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        state_value(bytes(changed))
    except KafkaError:
        pass
