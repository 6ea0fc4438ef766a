"""Stores of state: rows in pages, and what a batch changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.streams.processors.stores import PagedStore, RecordingStore, latest_rows
from odradek.streams.processors.task import MemoryStore

NAMES = [b"name-%d" % number for number in range(600)]
TOPIC = "5e0c"


@given(
    kept=st.dictionaries(st.sampled_from(NAMES), st.binary(min_size=1, max_size=4)),
    writes=st.lists(st.tuples(st.sampled_from(NAMES), st.none() | st.binary(min_size=1, max_size=4))),
)
def test_rows_in_pages_are_written_over_and_deleted(
    kept: dict[bytes, bytes], writes: list[tuple[bytes, bytes | None]]
) -> None:
    below = MemoryStore()
    PagedStore(below).fill(kept, TOPIC)
    expected = dict(kept)
    for name, data in writes:
        store = PagedStore(below)
        if data is None:
            store.delete(name)
            expected.pop(name, None)
        else:
            store.put(name, data)
            expected[name] = data
    store = PagedStore(below)
    read = {name: store.get(name) for name in NAMES}
    assert {name: data for name, data in read.items() if data is not None} == expected
    assert dict(store.items()) == expected


def test_many_rows_are_few_writes() -> None:
    class Counting(MemoryStore):
        writes = 0

        def put(self, name: bytes, data: bytes) -> None:
            super().put(name, data)
            self.writes += 1

    below = Counting()
    PagedStore(below).fill({b"%d" % number: b"x" for number in range(10_000)}, TOPIC)
    assert below.writes < 100


def test_a_changelog_gets_what_it_has_not() -> None:
    below = MemoryStore()
    store = PagedStore(below)
    store.put(b"old", b"1")
    assert dict(store.begin(TOPIC)) == {b"old": b"1"}  # the state is older than the changelog
    assert dict(store.begin(TOPIC)) == {}
    assert dict(store.begin("another")) == {b"old": b"1"}  # the topic was deleted and made again
    assert dict(store.begin(None)) == {}
    assert dict(store.begin("another")) == {b"old": b"1"}  # for a while nothing was written to it


def test_restored_state_is_in_its_changelog_already() -> None:
    below = MemoryStore()
    PagedStore(below).fill({b"a": b"1"}, TOPIC)
    assert dict(PagedStore(below).begin(TOPIC)) == {}


def test_changes_are_the_last_of_each_name() -> None:
    recording = RecordingStore(MemoryStore())
    recording.put(b"a", b"1")
    recording.put(b"a", b"2")
    recording.put(b"b", b"1")
    recording.delete(b"b")
    assert recording.changes == {b"a": b"2", b"b": None}


@pytest.mark.parametrize(
    ("parts", "rows"),
    [
        ([], {}),
        ([([b"a", b"b"], [b"1", b"2"]), ([b"a"], [b"3"])], {b"a": b"3", b"b": b"2"}),
        ([([b"a"], [b"1"]), ([b"a"], [None])], {}),
    ],
)
def test_a_changelog_read_back(
    parts: list[tuple[list[bytes], list[bytes | None]]], rows: dict[bytes, bytes]
) -> None:
    assert latest_rows(parts) == rows
