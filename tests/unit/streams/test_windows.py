"""Windows and joins of streams: what is said, when, and that cutting the stream changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.model.errors import ConfigError
from odradek.streams.plan.windows import SessionWindows, SlidingWindows, TimeWindows, WindowKind
from odradek.streams.processors.aggregate import (
    AggregateProcessor,
    ByPort,
    CalledFunction,
    CogroupFold,
    PythonFold,
    SqlFold,
)
from odradek.streams.processors.custom import CustomProcessor, Processor, Timers
from odradek.streams.processors.foreign_keys import ForeignKeyProcessor
from odradek.streams.processors.ports import InputRow, KeyedProcessor
from odradek.streams.processors.records import StreamRecord
from odradek.streams.processors.stream_joins import StreamStreamProcessor
from odradek.streams.processors.task import MemoryStore, next_wall_clock, run_batch
from odradek.streams.processors.windows import WindowProcessor, open_windows

LIST = SqlFold(
    (CalledFunction(function="collect_list", arguments=("x",), constants=(), out="v", removable=False),)
)
TUMBLING = TimeWindows(size_ms=10, every_ms=10, grace_ms=0)
HOPPING = TimeWindows(size_ms=10, every_ms=5, grace_ms=3)
SESSION = SessionWindows(gap_ms=5, grace_ms=2)
SLIDING = SlidingWindows(size_ms=10, grace_ms=50)


def windows(kind: WindowKind, *, final: bool = False) -> WindowProcessor:
    return WindowProcessor(open_windows(kind, LIST), LIST, final=final)


def outputs_of(processor: KeyedProcessor, rows: list[tuple[str, int]]) -> list[tuple[Any, ...]]:
    """Rows (key, time); each says (key, start, end, the times that it holds)."""
    given_rows = [
        InputRow(0, {"key": key}, {"new": {"x": at}, "old": None}, at, None, [place, 0, 0, place])
        for place, (key, at) in enumerate(rows)
    ]
    return [
        (*update.key.values(), None if update.values[0] is None else sorted(update.values[0]["v"]))
        for _, update in run_batch(processor, MemoryStore(), given_rows)
        if update.key is not None
    ]


def test_tumbling_windows_drop_what_is_late() -> None:
    assert outputs_of(windows(TUMBLING), [("a", 1), ("a", 9), ("b", 12), ("a", 5), ("a", 13)]) == [
        ("a", 0, 10, [1]),
        ("a", 0, 10, [1, 9]),
        ("b", 10, 20, [12]),
        ("a", 10, 20, [13]),
    ]


def test_hopping_windows_overlap_and_grace_lets_late_records_in() -> None:
    assert outputs_of(windows(HOPPING), [("a", 6), ("b", 12), ("a", 7)]) == [
        ("a", 0, 10, [6]),
        ("a", 5, 15, [6]),
        ("b", 5, 15, [12]),
        ("b", 10, 20, [12]),
        ("a", 0, 10, [6, 7]),
        ("a", 5, 15, [6, 7]),
    ]


def test_a_window_is_final_when_another_key_moves_time_on() -> None:
    assert outputs_of(
        windows(TUMBLING, final=True), [("a", 1), ("b", 3), ("a", 9), ("c", 10), ("c", 11)]
    ) == [
        ("a", 0, 10, [1, 9]),
        ("b", 0, 10, [3]),
    ]


def test_sessions_merge_and_delete_what_they_were() -> None:
    assert outputs_of(windows(SESSION), [("a", 1), ("a", 7), ("a", 4), ("a", 30)]) == [
        ("a", 1, 1, [1]),
        ("a", 7, 7, [7]),
        ("a", 1, 1, None),
        ("a", 7, 7, None),
        ("a", 1, 7, [1, 4, 7]),
        ("a", 30, 30, [30]),
    ]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(10, 50), min_size=1, max_size=8))
def test_sliding_windows_hold_what_lies_in_them(times: list[int]) -> None:
    """In the end there is a window that ends at each record, and it holds what lies in it."""
    last = {
        (start, end): held
        for _, start, end, held in outputs_of(windows(SLIDING), [("a", at) for at in times])
    }
    for at in times:
        assert (at - 10, at) in last
    for (start, end), held in last.items():
        assert held == sorted(at for at in times if start <= at <= end), (start, end)


def joined(kind: Any, rows: list[tuple[int, str | None, Any, int]]) -> list[tuple[Any, ...]]:
    processor = StreamStreamProcessor(kind, before_ms=5, after_ms=5, grace_ms=0)
    given_rows = [
        InputRow(port, None if key is None else {"key": key}, value, at, None, [place, 0, 0, place])
        for place, (port, key, value, at) in enumerate(rows)
    ]
    return [
        (*update.values, update.timestamp) for _, update in run_batch(processor, MemoryStore(), given_rows)
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("inner", [("l1", "r1", 4), ("l2", "r1", 4)]),
        ("left", [("l1", "r1", 4), ("l2", "r1", 4), ("l5", None, 50), ("l3", None, 20)]),
        ("outer", [("l1", "r1", 4), ("l2", "r1", 4), (None, "r2", 14), ("l5", None, 50), ("l3", None, 20)]),
    ],
)
def test_streams_join_within_a_time(kind: Any, expected: list[Any]) -> None:
    rows: list[Any] = [
        (0, "a", "l1", 1),
        (1, "a", "r1", 4),
        (0, "a", "l2", 0),
        (1, "b", "r2", 14),
        (0, "a", "l3", 20),
        (0, None, "l5", 50),
        (0, "c", None, 60),
        (0, "c", "l4", 60),
    ]
    assert joined(kind, rows) == expected


def test_a_left_row_is_deleted_at_its_own_time() -> None:
    def row(port: int, payload: Any, at: int) -> InputRow:
        return InputRow(port, {"key": "x"}, payload, at, None, [at, 0, 0, at])

    said = {"key": {"key": "a"}, "value": {"v": 1}, "instruction": "keep"}
    rows = [row(0, said, 1), row(1, {"w": 2}, 5), row(0, {**said, "value": None, "instruction": "delete"}, 3)]
    for kind, at in (("left", 3), ("inner", 5)):
        ordered = [given._replace(order=[place, 0, 0, place]) for place, given in enumerate(rows)]
        updates = [update for _, update in run_batch(ForeignKeyProcessor(kind), MemoryStore(), ordered)]
        assert (updates[-1].values, updates[-1].timestamp) == ((None, None), at)


def test_foreign_keys_follow_both_sides() -> None:
    def left(key: str, value: str | None, to: str | None, said: str) -> InputRow:
        payload: Any = {"key": {"key": key}, "value": value, "instruction": said}
        return InputRow(0, None if to is None else {"key": to}, payload, 1, None, [])

    def right(key: str, value: Any) -> InputRow:
        return InputRow(1, {"key": key}, value, 2, None, [])

    rows = [
        left("a", "a1", "x", "keep"),
        right("x", "x1"),
        left("b", "b1", "x", "keep"),
        right("x", "x2"),
        left("a", "a2", "x", "leave"),
        left("a", "a2", "y", "move"),
        right("y", "y1"),
        right("x", None),
        left("a", None, "y", "delete"),
    ]
    ordered = [row._replace(order=[place, 0, 0, place]) for place, row in enumerate(rows)]
    said = [
        (update.key["key"], *update.values)
        for _, update in run_batch(ForeignKeyProcessor("inner"), MemoryStore(), ordered)
        if update.key is not None
    ]
    assert said == [
        ("a", "a1", "x1"),
        ("b", "b1", "x1"),
        ("a", "a1", "x2"),
        ("b", "b1", "x2"),
        ("a", None, None),
        ("a", "a2", "y1"),
        ("b", None, None),
        ("a", None, None),
    ]


PROCESSORS: dict[str, Any] = {
    "tumbling": lambda: windows(TUMBLING),
    "hopping, final": lambda: windows(HOPPING, final=True),
    "sessions": lambda: windows(SESSION),
    "sessions, final": lambda: windows(SESSION, final=True),
    "sliding": lambda: windows(SlidingWindows(size_ms=6, grace_ms=3)),
    "custom": lambda: custom(Alarm()),
    "outer join": lambda: StreamStreamProcessor("outer", before_ms=3, after_ms=5, grace_ms=1),
}


@pytest.mark.parametrize("name", PROCESSORS)
@settings(max_examples=60, deadline=None)
@given(
    drawn=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40), st.integers(0, 1)), max_size=14),
    cuts=st.sets(st.integers(0, 14)),
)
def test_a_stream_cut_anywhere_says_what_the_batch_says(name: str, drawn: list[Any], cuts: set[int]) -> None:
    """Each batch begins with what the one before it has written, and nothing else: a restart."""
    ports = 2 if "join" in name else 1
    rows = [
        InputRow(
            port % ports,
            {"key": key},
            {"value": "now"} if name == "custom" else {"new": {"x": at}, "old": None},
            at,
            None,
            [place, 0, 0, place],
        )
        for place, (key, at, port) in enumerate(drawn)
    ]
    whole = list(run_batch(PROCESSORS[name](), MemoryStore(), rows))
    store, cut, begin = MemoryStore(), [], 0
    for end in sorted({*(place for place in cuts if place < len(rows)), len(rows)}):
        kept = MemoryStore()
        kept.data = dict(store.data)
        cut += list(run_batch(PROCESSORS[name](), kept, rows[begin:end]))
        store, begin = kept, end
    assert cut == whole


class Alarm(Processor):
    """Says how many records a key had when none came for 10 ms; two at once are said at once."""

    def process(self, record: StreamRecord, state: dict[str, Any], timers: Timers) -> Any:
        timers.cancel(state.get("due", 0))
        state["n"] = state.get("n", 0) + 1
        state["due"] = record.timestamp + 10
        timers.at(state["due"])
        if record.value == "now":
            yield f"{record.key} now"

    def on_timer(self, key: Any, time: int, state: dict[str, Any], timers: Timers) -> Any:
        yield f"{key} {state['n']}"
        state.clear()


class Remembers(Processor):
    """Counts, and forgets keys without records for 20 ms."""

    time_to_live_ms = 20

    def process(self, record: StreamRecord, state: dict[str, Any], timers: Timers) -> Any:
        state["n"] = state.get("n", 0) + 1
        return [state["n"]]


def custom(user: Processor) -> CustomProcessor:
    return CustomProcessor(user, bare_key="key", bare_value="value", outputs={"": "value"})


def said_by(user: Processor, rows: list[tuple[str, str, int]]) -> list[tuple[Any, int]]:
    given_rows = [
        InputRow(0, {"key": key}, {"value": value}, at, None, [place, 0, 0, place])
        for place, (key, value, at) in enumerate(rows)
    ]
    return [
        (update.values[0]["value"], update.timestamp)
        for _, update in run_batch(custom(user), MemoryStore(), given_rows)
    ]


def test_a_processor_has_state_and_timers_that_any_key_moves_on() -> None:
    rows = [("a", "", 1), ("a", "now", 5), ("b", "", 14), ("b", "", 15), ("c", "", 40)]
    assert said_by(Alarm(), rows) == [("a now", 5), ("a 2", 15), ("b 2", 25)]


def test_state_lives_as_long_as_it_is_touched() -> None:
    rows = [("a", "", 0), ("a", "", 15), ("a", "", 34), ("b", "", 54), ("a", "", 55)]
    assert [value for value, _ in said_by(Remembers(), rows)] == [1, 2, 3, 1, 1]


def test_a_cogroup_adds_with_the_function_of_each_stream() -> None:
    fold = CogroupFold(
        start=list,
        adders=(
            lambda key, value, so_far: [*so_far, value],
            lambda key, value, so_far: [*so_far, -value["x"]],
        ),
        merge=None,
        bare_key="key",
        bare_values=("value", None),
        bare_result="value",
    )
    rows = [
        InputRow(0, {"key": "a"}, {"value": 1}, 5, None, [0, 0, 0, 0]),
        InputRow(1, {"key": "a"}, {"x": 2}, 3, None, [1, 0, 0, 1]),
    ]
    said = [
        (update.values, update.timestamp)
        for _, update in run_batch(ByPort(AggregateProcessor(fold)), MemoryStore(), rows)
    ]
    assert said == [(({"value": [1]}, None), 5), (({"value": [1, -2]}, {"value": [1]}), 5)]


def test_a_processor_without_its_method_is_refused_before_it_runs() -> None:
    class Empty(Processor):
        pass

    with pytest.raises(ConfigError, match=r"Empty needs a method process\(record, state, timers\)"):
        custom(Empty())


def test_a_sliding_window_is_final_when_no_record_can_lie_in_it_any_more() -> None:
    kind = SlidingWindows(size_ms=5, grace_ms=0)
    rows = [("a", 10), ("a", 15), ("a", 15), ("b", 16)]
    assert outputs_of(windows(kind, final=True), rows) == [("a", 5, 10, [10]), ("a", 10, 15, [10, 15, 15])]


def test_an_aggregate_that_is_null_is_no_session() -> None:
    fold = PythonFold(
        start=None,
        add=lambda total, value: value if total is None else total + (value or 0),
        subtract=None,
        merge=None,
        bare_key="key",
        bare_value="x",
        bare_result="v",
    )
    processor = WindowProcessor(open_windows(SESSION, fold), fold, final=False)
    rows = [
        InputRow(0, {"key": "a"}, {"new": {"x": value}, "old": None}, at, None, [place, 0, 0, place])
        for place, (value, at) in enumerate([(None, 1), (None, 3), (2, 4), (3, 6)])
    ]
    assert [
        (update.key["window_start"], update.key["window_end"], update.values[0] and update.values[0]["v"])
        for _, update in run_batch(processor, MemoryStore(), rows)
        if update.key is not None
    ] == [(1, 1, None), (3, 3, None), (4, 4, 2), (4, 4, None), (4, 6, 5)]


def test_windows_close_when_a_task_gets_nothing_for_long_enough() -> None:
    def row(key: str, at: int, place: int) -> InputRow:
        return InputRow(0, {"key": key}, {"new": {"x": at}, "old": None}, at, None, [place, 0, 0, place])

    def said(rows: list[InputRow], clock: int) -> list[Any]:
        return [
            (*update.key.values(), sorted(update.values[0]["v"]))
            for _, update in run_batch(processor, store, rows, clock)
            if update.key is not None
        ]

    processor = WindowProcessor(open_windows(TUMBLING, LIST), LIST, final=True, idle_ms=100)
    store = MemoryStore()
    assert said([row("a", 1, 0), row("b", 12, 1)], 1_000) == [("a", 0, 10, [1])]
    assert said([row("b", 13, 2)], 1_050) == []
    assert next_wall_clock(processor, store) == 1_150
    assert said([], 1_149) == []
    assert said([], 1_150) == [("b", 10, 20, [12, 13])]
    assert next_wall_clock(processor, store) is None
    assert said([row("b", 19, 3), row("b", 20, 4), row("b", 30, 5)], 2_000) == [("b", 20, 30, [20])]
