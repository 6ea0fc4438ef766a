"""A record that fails changes nothing of the state, and handling one costs what it changes, not what there is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from odradek.streams import Processor, StreamRecord, Timers
from odradek.streams.plan.windows import SessionWindows, SlidingWindows, TimeWindows, WindowKind
from odradek.streams.processors.aggregate import (
    AggregateProcessor,
    CalledFunction,
    Fold,
    PythonFold,
    SqlFold,
)
from odradek.streams.processors.custom import CustomProcessor
from odradek.streams.processors.failures import FailedRows, Letters, RecordFailedError
from odradek.streams.processors.foreign_keys import ForeignKeyProcessor
from odradek.streams.processors.ports import Fields, InputRow, KeyedProcessor
from odradek.streams.processors.state.state_bytes import state_value
from odradek.streams.processors.stream_joins import StreamStreamProcessor
from odradek.streams.processors.task import MemoryStore, run_batch
from odradek.streams.processors.windows import WindowProcessor, open_windows

BAD = -1


class Checking(SqlFold):
    """Refuses BAD after its functions have taken it in."""

    def __init__(self, *, removable: bool = False) -> None:
        names = ("collect_list", "count_distinct", "max")
        super().__init__(
            tuple(
                CalledFunction(function=name, arguments=("x",), constants=(), out=name, removable=removable)
                for name in names
            )
        )

    def add(self, key: Fields, aggregate: Any, values: Fields) -> Any:
        added = super().add(key, aggregate, values)
        refuse(values["x"])
        return added


def refuse(value: Any) -> None:
    if value == BAD:
        raise ValueError("bad")


def appended(key: Any, value: Any, total: list[Any]) -> list[Any]:
    total.append(value["x"])
    refuse(value["x"])
    return total


def python_fold() -> PythonFold:
    return PythonFold(
        start=list,
        add=appended,
        subtract=None,
        merge=lambda key, left, right: left.extend(right) or left,
        bare_key=None,
        bare_value=None,
        bare_result="v",
    )


class Everything(Processor):
    """Changes state of each kind, in place and not, before it refuses."""

    def process(self, record: StreamRecord, state: Any, timers: Timers) -> Iterable[Any]:
        state.setdefault("seen", []).append(record.value)
        numbers = state.map("by value")
        lists = numbers.get(record.timestamp % 3, [])
        lists.append(record.value)
        numbers[record.timestamp % 3] = lists
        state.list("all").append([record.value])
        state.list("all")[0].append("in place, which is not kept")
        if len(state["seen"]) % 5 == 0:
            numbers.clear()
        timers.at(record.timestamp + 7)
        timers.cancel(record.timestamp + 6)
        refuse(record.value)
        yield f"{state['seen']} {sorted(numbers.items())}"

    def on_timer(self, key: Any, time: int, state: Any, timers: Timers) -> Iterable[Any]:
        yield f"{key} at {time}"


def windowed(kind: WindowKind, fold: Fold, *, final: bool) -> WindowProcessor:
    return WindowProcessor(open_windows(kind, fold), fold, final=final)


TUMBLING = TimeWindows(size_ms=10, every_ms=10, grace_ms=5)
HOPPING = TimeWindows(size_ms=10, every_ms=3, grace_ms=5)
SESSION = SessionWindows(gap_ms=5, grace_ms=2)
SLIDING = SlidingWindows(size_ms=10, grace_ms=5)
PROCESSORS: dict[str, KeyedProcessor] = {
    "aggregate": AggregateProcessor(Checking()),
    "aggregate of a table": AggregateProcessor(Checking(removable=True)),
    "aggregate in Python": AggregateProcessor(python_fold()),
    "processor": CustomProcessor(Everything(), bare_key="key", bare_value="value", outputs={"": "value"}),
}
for kind_name, window_kind in (
    ("tumbling", TUMBLING),
    ("hopping", HOPPING),
    ("sessions", SESSION),
    ("sliding", SLIDING),
):
    for fold_name, made_fold in (("SQL", Checking()), ("Python", python_fold())):
        for is_final in (False, True):
            PROCESSORS[f"{kind_name} {fold_name} {is_final}"] = windowed(
                window_kind, made_fold, final=is_final
            )


def failures() -> FailedRows:
    return FailedRows(operator="it", letters=Letters(topic="dead"), topics={0: "t"})


def unpickled(store: MemoryStore) -> dict[bytes, Any]:
    return {name: data if name == b"clock" else state_value(data) for name, data in store.data.items()}


def mixed_rows(name: str) -> list[InputRow]:
    """Two good ones of each three; the others fail. Some come late."""
    given = []
    for place in range(60):
        value = BAD if place % 3 == 2 else place % 7
        payload = (
            {"value": value}
            if name == "processor"
            else {"new": {"x": value}, "old": {"x": (place - 14) % 7} if "table" in name else None}
        )
        when = 2 * place - (place % 4) * 3
        given.append(InputRow(0, {"key": "ab"[place % 5 % 2]}, payload, when, None, [place, 0, 0, place]))
    return given


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_record_that_fails_leaves_the_state_as_it_was(name: str) -> None:
    """In one batch, in batches of one record each, and by the bytes that are written."""
    processor, rows = PROCESSORS[name], mixed_rows(name)
    at_once, one_by_one = MemoryStore(), MemoryStore()
    letters = failures()
    said = list(run_batch(processor, at_once, rows, failures=letters))
    assert said
    assert len(letters.packed) >= 15
    said_one_by_one = []
    for row in rows:
        before, of_row = dict(one_by_one.data), failures()
        said_one_by_one += run_batch(processor, one_by_one, [row], failures=of_row)
        if of_row.packed:
            assert {**before, b"clock": b""} == {**one_by_one.data, b"clock": b""}
    assert said == said_one_by_one
    assert unpickled(at_once) == unpickled(one_by_one)


class WithoutResult(Checking):
    def result(self, aggregate: Any) -> Fields | None:
        raise ValueError("no result")


def test_a_window_whose_result_cannot_be_said_stays_due() -> None:
    """What closing has taken off the calendar, and out of the state, is there again."""

    store, letters = MemoryStore(), failures()

    def row(value: int, at: int) -> InputRow:
        return InputRow(0, {"key": "a"}, {"new": {"x": value}, "old": None}, at, None, [at, 0, 0, at])

    good = PROCESSORS["tumbling SQL True"]
    list(run_batch(good, store, [row(3, 1), row(4, 2)]))
    before = unpickled(store)
    fold_that_fails = windowed(TUMBLING, WithoutResult(), final=True)
    assert list(run_batch(fold_that_fails, store, [row(5, 40)], failures=letters)) == []
    assert len(letters.packed) == 1
    assert {**unpickled(store), b"clock": b""} == {**before, b"clock": b""}
    ((_, update),) = run_batch(good, store, [row(6, 41)])
    assert update.values[0] == {"collect_list": [3, 4], "count_distinct": 2, "max": 4}


class Counted:
    """A value that counts how often it is copied."""

    copies = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __deepcopy__(self, memo: Any) -> Counted:
        Counted.copies += 1
        return self

    __copy__ = __deepcopy__  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.number}"


COUNT = SqlFold((CalledFunction(function="count", arguments=("x",), constants=(), out="n", removable=False),))


@pytest.mark.parametrize(
    ("processor", "row"),
    [
        (windowed(SessionWindows(gap_ms=9_999, grace_ms=0), COUNT, final=False), "added"),
        (
            windowed(TimeWindows(size_ms=9_999, every_ms=9_999, grace_ms=0), COUNT, final=True),
            "added",
        ),
        (StreamStreamProcessor("outer", before_ms=9_999, after_ms=9_999, grace_ms=0), "joined"),
        (ForeignKeyProcessor("inner"), "refers"),
    ],
)
def test_a_record_copies_nothing_of_others(processor: KeyedProcessor, row: str) -> None:
    payloads: dict[str, Any] = {"added": lambda value: {"new": {"x": value}, "old": None}}
    payloads |= {"joined": lambda value: {"x": value}}
    payloads |= {"refers": lambda value: {"key": {"u": value}, "value": {"v": value}, "instruction": "keep"}}
    given = [
        InputRow(
            place % 2 if row == "joined" else 0,
            {"city": Counted(0 if row == "refers" else place)},
            payloads[row](Counted(place)),
            place,
            None,
            [place, 0, 0, place],
        )
        for place in range(100)
    ]
    Counted.copies = 0
    list(run_batch(processor, MemoryStore(), given, failures=failures()))
    assert Counted.copies == 0


def test_what_an_operator_of_ours_raises_ends_the_query() -> None:
    """Its changes cannot be taken back, so none may be left out."""
    broken = InputRow(
        0, {"city": "c"}, {"key": None, "value": {}, "instruction": "keep"}, 1, None, [1, 0, 0, 7]
    )
    with pytest.raises(RecordFailedError, match="it failed at t-0 offset 7: AttributeError"):
        list(run_batch(ForeignKeyProcessor("inner"), MemoryStore(), [broken], failures=failures()))
