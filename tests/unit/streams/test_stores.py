"""Stores of state: rows in pages, and what a batch changes."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.streams.processors import stores
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
        store.flush()
    store = PagedStore(below)
    read = {name: store.get(name) for name in NAMES}
    assert {name: data for name, data in read.items() if data is not None} == expected
    assert dict(store.items()) == expected


@given(
    batches=st.lists(
        st.dictionaries(st.sampled_from(NAMES[:20]), st.none() | st.sampled_from([b"x", b"large" * 1_000])),
        max_size=4,
    )
)
def test_many_rows_are_put_and_read_as_one_after_another(batches: list[dict[bytes, bytes | None]]) -> None:
    """Rows that are too large for a page replace small ones, small ones replace them, and both are deleted."""
    together, by_row = MemoryStore(), MemoryStore()
    for rows in batches:
        pages, paged = PagedStore(together), PagedStore(by_row)
        recording = RecordingStore(pages)
        recording.put_all(rows)
        assert recording.changes == rows
        for name, data in rows.items():
            if data is None:
                paged.delete(name)
            else:
                paged.put(name, data)
        assert recording.get_all(NAMES[:20]) == [paged.get(name) for name in NAMES[:20]]
        pages.flush()
        paged.flush()
        assert together.data == by_row.data


def test_many_rows_are_few_writes() -> None:
    class Counting(MemoryStore):
        writes = 0

        def put(self, name: bytes, data: bytes) -> None:
            super().put(name, data)
            self.writes += 1

    below = Counting()
    PagedStore(below).fill({b"%d" % number: b"x" for number in range(10_000)}, TOPIC)
    assert below.writes < 200


@pytest.mark.parametrize("held_bytes", [0, 4_096, 32 << 20])
def test_a_store_grows_and_holds_few_pages(held_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "HELD_BYTES_MAX", held_bytes)
    below = MemoryStore()
    expected: dict[bytes, bytes] = {}
    for batch in range(4):
        store = PagedStore(below)
        for number in range(batch * 150, 700 * batch + 400):
            name = b"%d" % number
            if number % 7 == batch:
                store.delete(name)
                expected.pop(name, None)
            else:
                large = number % 50 == 3 and batch % 2 == 0
                expected[name] = b"%d" % batch * (5_000 if large else 1)
                store.put(name, expected[name])
        store.flush()
    store = PagedStore(below)
    assert dict(store.items()) == expected
    assert {name: store.get(name) for name in expected} == expected
    pages = [data for name, data in below.data.items() if name.startswith(b"\0rows/")]
    assert len(pages) > 4
    assert max(map(len, pages)) < 4 * stores.PAGE_BYTES
    assert sum(name.startswith(b"\0apart/") for name in below.data) == sum(
        len(data) > stores.ROW_BYTES_MAX for data in expected.values()
    )


@pytest.mark.parametrize("held_bytes", [0, 1_000, 32 << 20])
def test_pages_of_a_large_store_grow_until_a_batch_touches_few_of_them(
    held_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "HELD_BYTES_MAX", held_bytes)
    monkeypatch.setattr(stores, "ROWS_PER_PAGE", 4)
    monkeypatch.setattr(stores, "SMALL_PAGES_MAX", 16)

    def pages() -> int:
        return sum(name.startswith(b"\0rows/") for name in below.data)

    below = MemoryStore()
    expected: dict[bytes, bytes] = {}
    for batch in range(4):
        store = PagedStore(below)
        for name in NAMES[batch * 50 : 100 * (batch + 1)]:
            expected[name] = b"%d" % batch
            store.put(name, expected[name])
        store.flush()
        assert pages() == 16
    store = PagedStore(below)
    store.delete(NAMES[7])
    store.flush()
    del expected[NAMES[7]]
    assert 32 < pages() <= 64
    assert dict(PagedStore(below).items()) == expected
    restored = MemoryStore()
    PagedStore(restored).fill(expected, TOPIC)
    assert sum(name.startswith(b"\0rows/") for name in restored.data) == 16
    assert dict(PagedStore(restored).items()) == expected


def test_a_store_of_an_earlier_version_is_put_into_pages() -> None:
    below = MemoryStore()
    below.data = {
        b"\0changelog": TOPIC.encode(),
        b"\0pages": b"2",
        b"\0page/0": pickle.dumps({b"a": b"1", b"b": b"2"}),
        b"\0page/1": pickle.dumps({b"c": b"3"}),
        b"a": b"newer",
        b"b": b"",
        b"owner": b"2 users",
    }
    store = PagedStore(below)
    assert dict(store.items()) == {b"a": b"newer", b"c": b"3", b"owner": b"2 users"}
    assert list(store.begin(TOPIC)) == []
    assert dict(PagedStore(below).items()) == dict(store.items())
    assert not [name for name in below.data if name.startswith(b"\0page") or not name.startswith(b"\0")]


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
