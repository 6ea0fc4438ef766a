"""Rows of tables have the same bytes and values, whether they are written and read at once or one after another."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.streams.processors.columns import KeyCodes, key_codes
from odradek.streams.processors.state.state_bytes import state_bytes, state_value
from odradek.streams.processors.state.table_rows import TableRows
from odradek.streams.processors.task import CachedState, MemoryStore

INTS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): TEXTS,
    pa.binary(): st.binary(max_size=6),
    pa.int8(): st.integers(-128, 127),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): INTS,
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.StructType, list[Any], list[int], bool]:
    """Draws a type of values, values of it, their times, and whether these are kept."""
    names = draw(st.lists(TEXTS, min_size=1, max_size=5, unique=True))
    fields = [(name, draw(st.sampled_from(list(KINDS)))) for name in names]
    rows = st.tuples(*(st.none() | KINDS[kind] for _, kind in fields)).map(
        lambda parts: dict(zip(names, parts, strict=True))
    )
    values = draw(st.lists(st.none() | rows, max_size=6))
    times = draw(st.lists(INTS, min_size=len(values), max_size=len(values)))
    return pa.struct(fields), values, times, draw(st.booleans())


def row_bytes(value: Any, when: int, *, has_time: bool) -> bytes | None:
    return None if value is None else state_bytes((value, when) if has_time else value)


@given(tables(), st.integers(0, 3))
def test_rows_have_the_bytes_of_values_one_by_one_and_come_back(
    table: tuple[pa.StructType, list[Any], list[int], bool], begin: int
) -> None:
    kind, values, times, has_time = table
    rows = TableRows.of(kind, has_time=has_time)
    assert rows is not None
    values, times = values[begin:], times[begin:]
    column = pa.array([*([None] * begin), *values], kind).slice(begin)
    written = rows.written(column, np.array(times, np.int64))
    assert written == [
        row_bytes(value, when, has_time=has_time) for value, when in zip(values, times, strict=True)
    ]
    known = rows.read(written)
    assert known is not None
    assert repr(known[0].to_pylist()) == repr(values)  # NaN is NaN, and 1 is not True
    if has_time:
        is_there = [value is not None for value in values]
        assert known[1].tolist() == [
            when if there else 0 for there, when in zip(is_there, times, strict=True)
        ]


KIND = pa.struct([("name", pa.string()), ("age", pa.int32())])
ROWS = TableRows(KIND, has_time=True)
ROW = state_bytes(({"name": "ann", "age": 3}, 5))


@given(st.integers(0, len(ROW) - 1), st.binary(max_size=2))
def test_bytes_that_were_changed_are_read_as_one_by_one_or_not_at_all(at: int, other: bytes) -> None:
    data = ROW[:at] + other + ROW[at + len(other) + 1 :]
    known = ROWS.read([ROW, data, None, ROW])
    if known is None:
        return
    value, when = state_value(data)
    assert known[0].to_pylist()[1] == value
    assert known[1].tolist() == [5, when, 0, 5]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        ROW[:-1],
        ROW + b"N",
        state_bytes(({"name": "ann"}, 5)),
        state_bytes(({"name": "ann", "age": "3"}, 5)),
        state_bytes(({"name": "ann", "age": 2**31}, 5)),
        state_bytes(({"name": "ann", "age": 2**63}, 5)),
        state_bytes(({"name": "\ud800", "age": 3}, 5)),
        state_bytes(({"name": "ann", "age": 3}, None)),
        state_bytes({"name": "ann", "age": 3}),
        ROW[: ROW.index(b"s\0\0\0\3ann")] + b"s\xff\xff\xff\xffann",
    ],
)
def test_other_rows_are_left_to_state_value(data: bytes) -> None:
    assert ROWS.read([ROW, data]) is None


def test_rows_that_there_are_none_of() -> None:
    assert ROWS.read([]) is not None
    known = ROWS.read([None, None])
    assert known is not None
    assert (known[0].to_pylist(), known[1].tolist()) == ([None, None], [0, 0])


def test_long_texts_come_back_and_take_no_more_memory_than_a_few_times_their_size() -> None:
    kind = pa.struct([("name", pa.string()), ("age", pa.int32()), ("data", pa.binary())])
    rows = TableRows(kind, has_time=True)
    values: list[Any] = [
        {
            "name": None if number % 7 == 0 else f"{number}é" * (number % 900),
            "age": number,
            "data": None if number % 5 == 0 else b"%d" % number * (number % 800),
        }
        for number in range(2_000)
    ]
    written = rows.written(pa.array(values, kind), np.arange(2_000))
    byte_count = sum(map(len, filter(None, written)))
    tracemalloc.start()
    try:
        known = rows.read(written)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert known is not None
    assert known[0].to_pylist() == values
    assert peak_bytes < 6 * byte_count


@pytest.mark.parametrize(
    "kind", [pa.struct([("at", pa.timestamp("us"))]), pa.struct([("of", KIND)]), pa.struct([]), pa.int64()]
)
def test_values_of_other_types_go_one_by_one(kind: pa.DataType) -> None:
    assert TableRows.of(kind, has_time=True) is None


@given(
    st.one_of(
        st.lists(st.text(max_size=5), min_size=1, max_size=5),
        st.lists(st.text("a'\"\\ \x7f\n~", max_size=3), min_size=1, max_size=5),
        st.lists(INTS, min_size=1, max_size=5),
        st.lists(st.none() | st.sampled_from("ab"), min_size=1, max_size=5),
    )
)
def test_entries_have_the_names_that_they_have_one_by_one(keys: list[Any]) -> None:
    kind = pa.int64() if isinstance(keys[0], int) else pa.string()
    try:
        column = pa.array([{"key": key} for key in keys], pa.struct([("key", kind)]))
    except UnicodeEncodeError:
        return
    codes = key_codes(column)
    assert isinstance(codes, KeyCodes)
    state = CachedState(MemoryStore())
    assert codes.entry_names("left") == [state.entry_name("left", key) for key in codes.keys]
    assert [codes.keys[number]["key"] for number in codes.codes.tolist()] == keys


def test_floats_are_kept_to_the_bit() -> None:
    rows = TableRows(pa.struct([("x", pa.float64())]), has_time=False)
    values = [-0.0, math.inf, 5e-324]
    written = rows.written(pa.array([{"x": x} for x in values], rows.kind), np.zeros(3, np.int64))
    known = rows.read(written)
    assert known is not None
    assert [row["x"].hex() for row in known[0].to_pylist()] == [x.hex() for x in values]
