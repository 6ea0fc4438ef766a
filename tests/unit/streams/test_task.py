"""A task: the order of its rows, and that cutting them into batches changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.streams.processors.aggregate import AggregateProcessor, CalledFunction, SqlFold
from odradek.streams.processors.joins import (
    LatestProcessor,
    StreamTableProcessor,
    TableTableProcessor,
)
from odradek.streams.processors.ports import InputRow, KeyedProcessor, UpdateRow
from odradek.streams.processors.task import MemoryStore, in_order, latest_only, run_batch

SUM = SqlFold(
    (
        CalledFunction(function="count", arguments=("x",), constants=(), out="n", removable=False),
        CalledFunction(function="sum", arguments=("x",), constants=(), out="s", removable=False),
    )
)


def record(
    key: str | None, payload: Any, *, at: int, offset: int, port: int = 0, partition: int = 0
) -> InputRow:
    return InputRow(
        port, None if key is None else {"key": key}, payload, at, None, [at, port, partition, offset]
    )


def test_a_partition_is_handled_by_offset_whatever_the_time() -> None:
    rows = [record("a", None, at=at, offset=offset) for offset, at in enumerate((5, 1, 7))]
    assert [row.timestamp for row in in_order(reversed(rows))] == [5, 1, 7]


def test_among_partitions_the_oldest_next_record_goes_first() -> None:
    left = [record("a", None, at=at, offset=offset) for offset, at in enumerate((5, 1, 7))]
    right = [record("a", None, at=at, offset=offset, partition=1) for offset, at in enumerate((3, 6))]
    assert [row.timestamp for row in in_order([*left, *right])] == [3, 5, 1, 6, 7]


def test_latest_keeps_the_last_update_and_the_first_old_value() -> None:
    updates = [([n], UpdateRow({"key": key}, (n, n - 1), n)) for n, key in enumerate("aba", start=1)]
    kept = list(latest_only(updates, (1,)))
    assert [(order, update.key, update.values) for order, update in kept] == [
        ([2], {"key": "b"}, (2, 1)),
        ([3], {"key": "a"}, (3, 0)),
    ]


def test_an_aggregate_has_the_largest_timestamp_of_its_records() -> None:
    rows = [record("a", {"new": {"x": x}, "old": None}, at=at, offset=x) for x, at in enumerate((5, 2, 9))]
    made = [update for _, update in run_batch(AggregateProcessor(SUM), MemoryStore(), rows)]
    assert [update.timestamp for update in made] == [5, 5, 9]
    assert [update.values for update in made] == [
        ({"n": 1, "s": 0}, None),
        ({"n": 2, "s": 1}, {"n": 1, "s": 0}),
        ({"n": 3, "s": 3}, {"n": 2, "s": 1}),
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("inner", [("l1", "r1"), (None, "r1")]),
        ("left", [("l1", None), ("l1", "r1"), (None, "r1")]),
        ("outer", [("l1", None), ("l1", "r1"), (None, "r1"), (None, None)]),
    ],
)
def test_tables_join_as_kafka_streams_does(kind: Any, expected: list[Any]) -> None:
    rows = [
        record("a", {"v": "l1"}, at=1, offset=0, port=0),
        record("a", {"v": "r1"}, at=2, offset=0, port=1),
        record("a", None, at=3, offset=1, port=0),
        record("a", None, at=4, offset=1, port=1),
    ]
    made = [update.values[:2] for _, update in run_batch(TableTableProcessor(kind), MemoryStore(), rows)]
    assert [tuple(None if side is None else side["v"] for side in sides) for sides in made] == expected


PAYLOADS: dict[str, Any] = {
    "latest": st.one_of(st.none(), st.fixed_dictionaries({"v": st.integers(0, 9)})),
    "aggregate": st.fixed_dictionaries(
        {"new": st.fixed_dictionaries({"x": st.one_of(st.none(), st.integers(-9, 9))}), "old": st.none()}
    ),
}
PROCESSORS: dict[str, tuple[KeyedProcessor, int, Any]] = {
    "latest": (LatestProcessor(), 1, PAYLOADS["latest"]),
    "aggregate": (AggregateProcessor(SUM), 1, PAYLOADS["aggregate"]),
    "table-table": (TableTableProcessor("outer"), 2, PAYLOADS["latest"]),
    "stream-table": (
        StreamTableProcessor("left"),
        2,
        st.fixed_dictionaries({"key": st.none(), "value": PAYLOADS["latest"]}),
    ),
}


@pytest.mark.parametrize("name", PROCESSORS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_stream_cut_anywhere_says_what_the_batch_says(name: str, data: st.DataObject) -> None:
    """Each batch begins with what the one before it has written, and nothing else: a restart."""
    processor, ports, payload = PROCESSORS[name]
    drawn = data.draw(
        st.lists(
            st.tuples(st.sampled_from("abc"), payload, st.integers(0, 20), st.integers(0, ports - 1)),
            max_size=12,
        )
    )
    rows = [
        InputRow(port, {"key": key}, value, at, None, [place, 0, 0, place])
        for place, (key, value, at, port) in enumerate(drawn)
    ]
    whole = list(run_batch(processor, MemoryStore(), rows))
    store, cut, begin = MemoryStore(), [], 0
    for end in [*sorted(data.draw(st.sets(st.integers(0, len(rows))))), len(rows)]:
        kept = MemoryStore()
        kept.data = dict(store.data)
        cut += list(run_batch(processor, kept, rows[begin:end]))
        store, begin = kept, end
    assert cut == whole
