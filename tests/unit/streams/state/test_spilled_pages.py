"""Batches that touch more pages of state than memory holds: each page is loaded twice at most, and results stay the same."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Final
from zlib import crc32

import pytest
from tests.unit.streams.test_columnar import CASES, as_columns, as_updates, payload_kinds

from odradek.streams.plan.windows import TimeLimit, TimeWindows
from odradek.streams.processors import stores
from odradek.streams.processors.aggregate import (
    AggregateProcessor,
    ByPort,
    CalledFunction,
    CogroupFold,
    SqlFold,
)
from odradek.streams.processors.columnar import columnar
from odradek.streams.processors.custom import CustomProcessor, Processor
from odradek.streams.processors.foreign_keys import ForeignKeyProcessor
from odradek.streams.processors.joins import LatestProcessor, StreamTableProcessor, TableTableProcessor
from odradek.streams.processors.ports import InputRow, KeyedProcessor
from odradek.streams.processors.stores import PagedStore, RecordingStore
from odradek.streams.processors.stream_joins import StreamStreamProcessor
from odradek.streams.processors.suppress import SuppressProcessor
from odradek.streams.processors.task import CachedState, MemoryStore, run_batch
from odradek.streams.processors.versions import VersionedJoinProcessor, VersionedProcessor
from odradek.streams.processors.window_tables import WindowTableProcessor
from odradek.streams.processors.windows import FixedWindows, WindowProcessor

KEYS: Final = 300
PAGES: Final = 64
"""The pages that a store of so many keys has, four rows or more in each."""
OTHER_LOADS_MAX: Final = 20
"""Loads of pages for what a task keeps once: its clock, calendars, sizes."""
COUNT: Final = SqlFold(
    (CalledFunction(function="count", arguments=("x",), constants=(), out="n", removable=False),)
)
COGROUP: Final = CogroupFold(
    start=lambda: 0,
    adders=(lambda key, value, total: total + value,) * 2,
    merge=None,
    bare_key="k",
    bare_values=("x", "x"),
    bare_result="n",
)
HOUR: Final = TimeWindows(size_ms=3_600_000, every_ms=3_600_000, grace_ms=0)


class Counting(Processor):
    time_to_live_ms: int | None = 10_000

    def process(self, record: Any, state: Any, timers: Any) -> Any:
        state["n"] = state.get("n", 0) + 1
        yield state["n"]


class CountingStore(MemoryStore):
    """Counts the pages that are loaded."""

    load_count = 0

    def get(self, name: bytes) -> bytes | None:
        self.load_count += name.startswith(b"\0rows/")
        return super().get(name)


ADDED: Final = {"new": {"x": 1}, "old": None}
VALUE: Final = {"v": "x"}
STREAM: Final = {"key": {"k": "a"}, "value": VALUE}
PROCESSORS: Final[dict[str, tuple[KeyedProcessor, tuple[Any, ...]]]] = {
    "aggregate": (AggregateProcessor(COUNT), (ADDED,)),
    "aggregate by port": (ByPort(AggregateProcessor(COGROUP)), ({"x": 1}, {"x": 2})),
    "windows": (WindowProcessor(FixedWindows(HOUR, COUNT), COUNT, final=False), (ADDED,)),
    "final windows": (WindowProcessor(FixedWindows(HOUR, COUNT), COUNT, final=True), (ADDED,)),
    "table": (LatestProcessor(), (VALUE,)),
    "stream and table": (StreamTableProcessor("left"), (STREAM, VALUE)),
    "tables": (TableTableProcessor("outer"), (VALUE, VALUE)),
    "streams": (StreamStreamProcessor("outer", before_ms=9, after_ms=9, grace_ms=9), (VALUE, VALUE)),
    "versions": (VersionedProcessor(1_000), (VALUE,)),
    "stream and versions": (
        VersionedJoinProcessor("left", history_ms=1_000, grace_ms=9),
        (STREAM, VALUE),
    ),
    "foreign keys": (ForeignKeyProcessor("left"), ({**STREAM, "instruction": "keep"}, VALUE)),
    "windows and table": (WindowTableProcessor("left"), (None, VALUE)),
    "suppress": (
        SuppressProcessor(TimeLimit(wait_ms=10_000, records_max=None, bytes_max=None, when_full="emit")),
        ({"value": VALUE, "old": None},),
    ),
    "custom": (
        CustomProcessor(Counting(), bare_key="k", bare_value=None, outputs={"": "v"}),
        (VALUE,),
    ),
}


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "ROWS_PER_PAGE", 4)
    monkeypatch.setattr(stores, "HELD_BYTES_MAX", 512)


def shuffled_rows(payloads: tuple[Any, ...], when: int, seed: int) -> list[InputRow]:
    """A row for each key and port, in no order of keys."""
    names = [(port, f"key-{number}") for number in range(KEYS) for port in range(len(payloads))]
    random.Random(seed).shuffle(names)
    return [
        InputRow(port, {"k": name}, payloads[port], when, None, [when, port, 0, place, 0])
        for place, (port, name) in enumerate(names)
        if payloads[port] is not None
    ]


def page_count(below: MemoryStore) -> int:
    """The number of pages that the store has, those without rows among them."""
    return int(below.data.get(b"\0directory", b"0").split()[0])


def rows_of(store: PagedStore | MemoryStore) -> dict[bytes, bytes]:
    return dict(store.items())


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_batch_of_rows_loads_a_page_twice_at_most(name: str) -> None:
    processor, payloads = PROCESSORS[name]
    below, memory = CountingStore(), MemoryStore()
    for batch in range(3):
        batch_rows = shuffled_rows(payloads, when=10 + batch, seed=batch)
        before, below.load_count = page_count(below), 0
        paged = PagedStore(below)
        recording = RecordingStore(paged)
        updates = list(run_batch(processor, recording, batch_rows))
        loads = below.load_count
        paged.flush()
        assert updates == list(run_batch(processor, memory, batch_rows))
        assert rows_of(PagedStore(below)) == rows_of(memory)
        if batch:
            assert before >= PAGES
            assert loads <= 2 * before + OTHER_LOADS_MAX


@pytest.mark.parametrize("name", PROCESSORS)
def test_time_that_passes_for_all_keys_loads_a_page_three_times_at_most(name: str) -> None:
    """One record closes all windows and fires all timers: two entries of each key are read, and written together."""
    processor, payloads = PROCESSORS[name]
    below, memory = CountingStore(), MemoryStore()
    for batch in range(2):
        paged = PagedStore(below)
        batch_rows = shuffled_rows(payloads, when=10 + batch, seed=batch)
        assert list(run_batch(processor, paged, batch_rows)) == list(run_batch(processor, memory, batch_rows))
        paged.flush()
    before, below.load_count = page_count(below), 0
    paged = PagedStore(below)
    later = shuffled_rows(payloads, when=50_000_000, seed=2)[:1]
    assert list(run_batch(processor, paged, later)) == list(run_batch(processor, memory, later))
    assert below.load_count <= 3 * before + OTHER_LOADS_MAX
    paged.flush()
    assert rows_of(PagedStore(below)) == rows_of(memory)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_of_columns_loads_a_page_twice_at_most(name: str) -> None:
    processor, kinds, old = CASES[name]
    below, memory = CountingStore(), MemoryStore()
    for batch in range(3):
        batch_rows = shuffled_rows(column_payloads(name), when=10 + batch, seed=batch)
        columns = as_columns(batch_rows, name, "one")
        before, below.load_count = page_count(below), 0
        paged = PagedStore(below)
        emitted = []
        for store in (RecordingStore(paged), memory):
            state = CachedState(store)
            updates = columnar(processor, columns, state, old, kinds)
            assert updates is not None
            state.flush()
            emitted.append(as_updates(updates))
        loads = below.load_count
        paged.flush()
        assert emitted[0] == emitted[1]
        assert rows_of(PagedStore(below)) == rows_of(memory)
        if batch:
            assert before >= PAGES
            assert loads <= 2 * before + OTHER_LOADS_MAX


def column_payloads(name: str) -> tuple[Any, ...]:
    text = {"v": ["x"] if "lists" in name else "x"}
    if len(payload_kinds(name)) == 1:
        return ({"new": {"x": 1, "y": 1.0}, "old": None},)
    return (text, text) if "tables" in name else ({"key": {"of": "a"}, "value": text}, text)


def test_names_of_pages_in_memory_come_first_and_each_page_once() -> None:
    names = [b"name-%d" % number for number in range(4 * PAGES)]
    below = MemoryStore()
    PagedStore(below).fill(dict.fromkeys(names, b"x"), "topic")
    store = PagedStore(below)
    assert store.exceeds_memory
    held = names[200:203]
    for name in held:
        store.get(name)
    ordered = store.in_page_order(names)
    assert sorted(ordered) == sorted(names)
    numbers = [crc32(name) & (PAGES - 1) for name in ordered]
    assert len(runs(numbers)) == len(set(numbers))
    in_memory = {crc32(name) & (PAGES - 1) for name in held}
    assert set(runs(numbers)[: len(in_memory)]) == in_memory


def runs(numbers: Iterable[int]) -> list[int]:
    """Numbers, without those that are as the one before."""
    ends: list[int] = []
    for number in numbers:
        if ends[-1:] != [number]:
            ends.append(number)
    return ends
