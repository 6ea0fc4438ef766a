"""Versioned state of processors, compared with a model of Kafka's versioned store."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.streams import Processor, StreamRecord
from odradek.streams.processors.custom import CustomProcessor
from odradek.streams.processors.failures import FailedRows, Letters
from odradek.streams.processors.keyed_state import KeyedState, Version
from odradek.streams.processors.ports import InputRow
from odradek.streams.processors.task import CachedState, MemoryStore, run_batch

HISTORY = 20


class Model:
    """All versions that were put in time, and none forgotten."""

    def __init__(self) -> None:
        self.versions: dict[str, dict[int, Any]] = {}
        self.seen = -1

    def put(self, entry: str, value: Any, time: int) -> bool:
        self.seen = max(self.seen, time)
        if time < self.seen - HISTORY:
            return False
        self.versions.setdefault(entry, {})[time] = value
        return True

    def get(self, entry: str, as_of: int | None) -> Version | None:
        times = sorted(self.versions.get(entry, {}))
        true = [time for time in times if as_of is None or time <= as_of]
        later = times[len(true) :]
        if not true or (later and as_of is not None and as_of < self.seen - HISTORY):
            return None
        value = self.versions[entry][true[-1]]
        return None if value is None else Version(value, true[-1], later[0] if later else None)


times = st.integers(0, 60)
puts = st.tuples(st.sampled_from("xy"), st.none() | st.integers(0, 9), times)


@settings(max_examples=300, deadline=None)
@given(st.lists(puts, max_size=12), st.sets(st.integers(0, 12)))
def test_versions_are_found_as_in_a_versioned_store(
    steps: list[tuple[str, Any, int]], cuts: set[int]
) -> None:
    store, model = MemoryStore(), Model()
    cached = CachedState(store)
    for number, (entry, value, time) in enumerate(steps):
        if number in cuts:  # a batch ends: state is written, and read again
            cached.flush()
            cached = CachedState(store)
        state = KeyedState(cached, {"k": "a"}, {}, ())
        versions = state.versioned("prices", history=HISTORY)
        assert versions.put(entry, value, time) == model.put(entry, value, time)
        for as_of in (None, *range(0, 61, 5), time - 1, time, time + 1):
            assert versions.get(entry, as_of) == model.get(entry, as_of), (entry, as_of)
        assert versions.get("z") is None


def test_versions_between_two_times() -> None:
    versions = KeyedState(CachedState(MemoryStore()), {"k": "a"}, {}, ()).versioned("prices", history="1 day")
    for value, time in ((1, 10), (3, 30), (2, 20), (None, 40)):
        assert versions.put("x", value, time)
    assert list(versions.between("x", 15, 30)) == [Version(1, 10, 20), Version(2, 20, 30), Version(3, 30, 40)]
    assert versions.delete("x", 25) == Version(2, 20, 30)
    assert [version.value for version in versions.between("x", 0, 99)] == [1, 2, 3]
    assert versions.get("x", as_of=26) is None


class Rating(Processor):
    """Keeps a rate from the record's time on; a negative one fails after it was put."""

    def process(self, record: StreamRecord, state: Any, timers: Any) -> Any:
        versions = state.versioned("rates", history="1 minute")
        versions.put("eur", record.value, record.timestamp)
        if record.value < 0:
            raise ValueError("negative")
        yield [version.value for version in versions.between("eur", 0, 1_000)]
        if record.value == 0:
            state.clear()


def test_a_record_that_fails_takes_its_version_back_and_clear_forgets_all() -> None:
    processor = CustomProcessor(Rating(), bare_key="k", bare_value="v", outputs={"": None})
    store, failures = MemoryStore(), FailedRows(operator="rates", letters=Letters(topic=None), topics={})
    rows = [
        InputRow(0, {"k": "a"}, {"v": value}, 10 * number, None, [10 * number, 0, 0, number])
        for number, value in enumerate((1, -1, 2, 0, 5))
    ]
    made = run_batch(processor, store, rows, failures=failures)
    assert [update.values[0] for _, update in made] == [[1], [1, 2], [1, 2, 0], [5]]


def test_a_version_needs_a_time() -> None:
    versions = KeyedState(CachedState(MemoryStore()), {"k": "a"}, {}, ()).versioned("prices", history=1)
    for wrong in (None, 1.5, "now"):
        with pytest.raises(ValueError, match=r"timestamp|does not fit"):
            versions.put("x", 1, wrong)  # type: ignore[arg-type]
