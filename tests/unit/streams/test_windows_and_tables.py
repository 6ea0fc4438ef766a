"""Windows that join a table by a part of their key."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.model.errors import ConfigError
from odradek.streams import Streams
from odradek.streams.plan.keyed import WindowTableJoin
from odradek.streams.plan.operators import JoinKind
from odradek.streams.processors.ports import InputRow
from odradek.streams.processors.task import MemoryStore, run_batch
from odradek.streams.processors.window_tables import WindowTableProcessor

SIZE_MS = 10
Given = tuple[Any, ...]
"""("w", key, start, value, time) or ("u", key, value, time); a value that is None deletes."""


def row_of(record: Given, place: int) -> InputRow:
    side, key, *window, value, at = record
    by = None if key is None else {"id": key}
    if side == "u":
        return InputRow(1, by, value, at, None, [place, 0, 0, place])
    left_key = {"id": key, "window_start": window[0], "window_end": window[0] + SIZE_MS}
    return InputRow(0, by, {"key": left_key, "value": value}, at, None, [place, 0, 0, place])


def rows_of(records: list[Given]) -> list[InputRow]:
    return [row_of(record, place) for place, record in enumerate(records)]


def joined(kind: JoinKind, records: list[Given], held_ms: int | None = None) -> list[Given]:
    """(key, start, the window's value, the table's value, time)."""
    processor = WindowTableProcessor(kind, held_ms=held_ms)
    return [
        (update.key["id"], update.key["window_start"], *update.values, update.timestamp)
        for _, update in run_batch(processor, MemoryStore(), rows_of(records))
        if update.key is not None
    ]


@pytest.mark.parametrize(
    ("kind", "alone", "after"),
    [
        ("inner", [], [("a", 0, None, None, 6)]),
        ("left", [("a", 0, "n1", None, 1)], [("a", 0, "n2", None, 6)]),
    ],
)
def test_windows_follow_their_table(kind: JoinKind, alone: list[Given], after: list[Given]) -> None:
    records = [
        ("w", "a", 0, "n1", 1),
        ("u", "a", "ann", 2),
        ("w", "b", 0, "n9", 3),
        ("w", "a", 0, "n2", 4),
        ("u", "a", None, 6),
    ]
    others = [("b", 0, "n9", None, 3)] if kind == "left" else []
    said = joined(kind, records)
    assert said == [*alone, ("a", 0, "n1", "ann", 2), *others, ("a", 0, "n2", "ann", 4), *after]


@pytest.mark.parametrize("kind", ["inner", "left"])
def test_a_tombstone_of_what_is_not_there_says_nothing(kind: JoinKind) -> None:
    records = [("u", "a", "ann", 1), ("w", "a", 0, None, 2), ("w", "a", 10, "n1", 3), ("w", "a", 10, None, 4)]
    assert joined(kind, [*records, ("w", "a", 10, None, 5)]) == [
        ("a", 10, "n1", "ann", 3),
        ("a", 10, None, None, 4),
    ]


def test_windows_without_the_part_of_the_key_have_no_row() -> None:
    records = [("w", None, 0, "n1", 1), ("w", None, 0, None, 2), ("u", None, "nobody", 3)]
    assert joined("inner", records) == []
    assert joined("left", records) == [(None, 0, "n1", None, 1), (None, 0, None, None, 2)]


def test_windows_are_said_in_the_order_of_their_time() -> None:
    starts = [100, 95, 5, 1000]
    records = [("w", "a", start, f"n{start}", 1) for start in starts]
    assert [start for _, start, *_ in joined("inner", [*records, ("u", "a", "ann", 2)])] == sorted(starts)


def test_a_window_is_held_for_a_time_after_its_end() -> None:
    records = [
        ("w", "a", 0, "n1", 1),
        ("w", "a", 20, "n2", 21),
        ("u", "a", "ann", 15),
        ("u", "a", "bob", 25),
        ("u", "a", "eve", 26),
        ("w", "a", 0, "late", 27),
        ("u", "a", "joe", 45),
        ("u", "a", "sue", 46),
        ("w", "a", 20, None, 46),
    ]
    assert joined("inner", records, held_ms=15) == [
        ("a", 0, "n1", "ann", 15),
        ("a", 20, "n2", "ann", 15),
        ("a", 0, "n1", "bob", 25),
        ("a", 20, "n2", "bob", 25),
        ("a", 20, "n2", "eve", 26),
        ("a", 0, "late", "eve", 27),
        ("a", 20, "n2", "joe", 45),
        ("a", 20, None, None, 46),
    ]


def test_nothing_is_kept_of_windows_that_are_no_longer_held() -> None:
    def size_after(windows: int) -> int:
        store = MemoryStore()
        records: list[Given] = [("w", "a", start * SIZE_MS, "n", start * SIZE_MS) for start in range(windows)]
        list(run_batch(WindowTableProcessor("inner", held_ms=30), store, rows_of(records)))
        return sum(len(data) for data in store.data.values())

    # Digits grow, and pages of the calendar end.
    assert size_after(3000) < size_after(300) * 1.5


def test_an_update_writes_its_own_window_only() -> None:
    def written_by_one_more(windows: int) -> int:
        store, processor = MemoryStore(), WindowTableProcessor("inner", held_ms=None)
        records: list[Given] = [("w", "a", start * SIZE_MS, "n", 1) for start in range(windows)]
        list(run_batch(processor, store, rows_of(records)))
        before = dict(store.data)
        list(run_batch(processor, store, [row_of(("w", "a", 0, "m", 1), windows)]))
        return sum(len(data) for name, data in store.data.items() if before.get(name) is not data)

    assert written_by_one_more(1000) == written_by_one_more(2)


RECORDS = st.one_of(
    st.tuples(
        st.just("w"),
        st.sampled_from("ab"),
        st.sampled_from([0, 10, 20]),
        st.sampled_from([None, "n1", "n2"]),
        st.integers(0, 60),
    ),
    st.tuples(st.just("u"), st.sampled_from("ab"), st.sampled_from([None, "ann", "bob"]), st.integers(0, 60)),
)


@pytest.mark.parametrize("kind", ["inner", "left"])
@settings(max_examples=200, deadline=None)
@given(records=st.lists(RECORDS, max_size=16))
def test_in_the_end_each_window_has_what_both_tables_hold(kind: JoinKind, records: list[Given]) -> None:
    windows, table, last = {}, {}, {}
    for side, key, *window, value, _ in records:
        if side == "w":
            windows[key, window[0]] = value
        else:
            table[key] = value
    for key, start, left, right, _ in joined(kind, records):
        last[key, start] = (left, right)
    for (key, start), value in windows.items():
        right = table.get(key)
        is_there = value is not None and (right is not None or kind == "left")
        assert last.get((key, start), (None, None)) == ((value, right) if is_there else (None, None))


@settings(max_examples=100, deadline=None)
@given(
    records=st.lists(RECORDS, max_size=16), cuts=st.sets(st.integers(0, 16)), held_ms=st.none() | st.just(5)
)
def test_a_stream_cut_anywhere_says_what_the_batch_says(
    records: list[Given], cuts: set[int], held_ms: int | None
) -> None:
    def processor() -> WindowTableProcessor:
        return WindowTableProcessor("left", held_ms=held_ms)

    rows, store = rows_of(records), MemoryStore()
    bounds = sorted({0, *(cut for cut in cuts if cut < len(rows)), len(rows)})
    parts = [
        said for begin, end in pairwise(bounds) for said in run_batch(processor(), store, rows[begin:end])
    ]
    assert parts == list(run_batch(processor(), MemoryStore(), rows))


def test_a_program_says_how_long_windows_are_held() -> None:
    app = Streams("windows")
    counts = app.stream("clicks", key="STRING", value="n INT").group_by_key().window("1 minute").count()
    users = app.table("users", key="STRING", value="name STRING")
    operator = counts.join_windows(users, "key", how="left", held="1 hour").operator
    assert isinstance(operator, WindowTableJoin)
    assert operator.held_ms == 3_600_000
    assert operator.details() == "left, on key, windows held 1 hour"
    with pytest.raises(ConfigError, match="a right row without a window has no key"):
        counts.join_windows(users, "key", how="outer")
