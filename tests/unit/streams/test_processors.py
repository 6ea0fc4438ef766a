"""Processors of the user's: timers on the clock, several outputs, maps and lists."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.model.errors import ConfigError
from odradek.streams.plan.windows import SessionWindows
from odradek.streams.processors.aggregate import CalledFunction, SqlFold
from odradek.streams.processors.custom import CustomProcessor, Processor, Timers, To
from odradek.streams.processors.functions import FUNCTIONS, REMOVABLE
from odradek.streams.processors.keyed_state import PART_LENGTH, KeyedState
from odradek.streams.processors.ports import InputRow
from odradek.streams.processors.records import StreamRecord
from odradek.streams.processors.stream_joins import StreamStreamProcessor
from odradek.streams.processors.task import CachedState, MemoryStore, next_wall_clock, run_batch
from odradek.streams.processors.windows import WindowProcessor, open_windows

SESSION = SessionWindows(gap_ms=5, grace_ms=2, idle_ms=200)
COUNT = SqlFold((CalledFunction(function="count", arguments=("x",), constants=(), out="n", removable=False),))


def custom(user: Processor, outputs: Mapping[str, str | None] | None = None) -> CustomProcessor:
    return CustomProcessor(user, bare_key="key", bare_value="value", outputs=outputs or {"": "value"})


def row(key: str, value: Any, at: int, place: int = 0) -> InputRow:
    return InputRow(0, {"key": key}, {"value": value}, at, None, [place, 0, 0, place])


class Reminder(Processor):
    """Reminds a quarter of a second after each record, on the clock; the value `stop` forgets that."""

    def process(self, record: StreamRecord, state: KeyedState, timers: Timers) -> Any:
        if record.value == "stop":
            timers.cancel(state.pop("at", 0), wall_clock=True)
            return
        state["at"] = timers.wall_clock + 250
        timers.at(state["at"], wall_clock=True)

    def on_wall_clock_timer(self, key: Any, time: int, state: KeyedState, timers: Timers) -> Any:
        yield f"{key} since {time - 250}"


def test_timers_on_the_clock_come_without_a_record() -> None:
    store, reminder = MemoryStore(), custom(Reminder())
    assert list(run_batch(reminder, store, [row("a", "x", 5), row("b", "x", 6, 1)], 1_000)) == []
    assert list(run_batch(reminder, store, [row("b", "stop", 7, 2), row("c", "x", 8, 3)], 1_100)) == []
    assert next_wall_clock(reminder, store) == 1_250
    ((order, update),) = run_batch(reminder, store, [], 1_251)
    assert (update.values, update.timestamp, order[:2]) == (({"value": "a since 1000"},), 1_250, [1_251, -1])
    assert next_wall_clock(reminder, store) == 1_350
    ((_, last),) = run_batch(reminder, store, [row("a", "x", 9, 4)], 5_000)
    assert last.key == {"key": "c"}


class WithoutTimerMethods(Processor):
    """Sets a timer; a record's value says whether on the clock."""

    def process(self, record: StreamRecord, state: KeyedState, timers: Timers) -> Any:
        timers.at(5, wall_clock=record.value)


@pytest.mark.parametrize(
    ("on_clock", "words"),
    [
        (False, r"timers\.at\(…\) needs a method on_timer\(key, time, state, timers\) of the processor"),
        (True, r"wall_clock=True\) needs a method on_wall_clock_timer\("),
    ],
)
def test_a_timer_without_its_method_is_refused_when_it_is_set(on_clock: bool, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        list(run_batch(custom(WithoutTimerMethods()), MemoryStore(), [row("a", on_clock, 1)]))


def test_a_method_for_one_clock_is_none_for_the_other() -> None:
    class OnStreamTime(WithoutTimerMethods):
        def on_timer(self, key: Any, time: int, state: KeyedState, timers: Timers) -> Any:
            yield f"{key} at {time}"

    store = MemoryStore()
    ((_, update),) = run_batch(custom(OnStreamTime()), store, [row("a", False, 6)])
    assert update.values == ({"value": "a at 5"},)
    with pytest.raises(ConfigError, match="on_wall_clock_timer"):
        list(run_batch(custom(OnStreamTime()), store, [row("a", True, 7, 1)]))


class Sorter(Processor):
    def process(self, record: StreamRecord, state: KeyedState, timers: Timers) -> Any:
        yield To("all", record.value)
        if record.value > 2:
            yield To("large", StreamRecord(key="z", value={"n": record.value}, timestamp=99))


def test_each_output_gets_what_is_meant_for_it() -> None:
    processor = custom(Sorter(), {"all": "value", "large": None})
    updates = [
        update for _, update in run_batch(processor, MemoryStore(), [row("a", 1, 5), row("a", 3, 6, 1)])
    ]
    assert [(update.key, update.values, update.timestamp) for update in updates] == [
        ({"key": "a"}, ("all", {"value": 1}, None), 5),
        ({"key": "a"}, ("all", {"value": 3}, None), 6),
        ({"key": "z"}, ("large", None, {"n": 3}), 99),
    ]


def test_an_output_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"To\(name, value\) with one of the names all, not To"):
        list(run_batch(custom(Sorter(), {"all": "value"}), MemoryStore(), [row("a", 3, 5)]))


COMMANDS = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "append", "clear", "end"]), st.integers(0, 300), st.integers()
    ),
    max_size=60,
)


@settings(max_examples=80, deadline=None)
@given(COMMANDS)
def test_maps_and_lists_are_what_dicts_and_lists_are_from_batch_to_batch(commands: list[Any]) -> None:
    store = MemoryStore()
    cached = CachedState(store)
    state = KeyedState(cached, {"key": "a"}, {}, ())
    entries: dict[int, int] = {}
    values: list[int] = []
    for command, key, value in commands:
        match command:
            case "put":
                state.map("m")[key] = entries[key] = value
            case "delete":
                assert state.map("m").pop(key, None) == entries.pop(key, None)
            case "append":
                state.list("l").extend([value] * (key % 3))
                values += [value] * (key % 3)
            case "clear":
                state.clear()
                entries, values = {}, []
            case "end":
                names = state.filled()
                cached.flush()
                cached = CachedState(store)
                state = KeyedState(cached, {"key": "a"}, {}, names)
        assert dict(state.map("m")) == entries
        assert list(state.list("l")) == values
        assert values[-1:] == [state.list("l")[-1]] if values else not state.list("l")
    state.clear()
    cached.flush()
    assert not store.data


def test_a_change_writes_little_of_a_large_map_or_list() -> None:
    store = MemoryStore()
    first = CachedState(store)
    state = KeyedState(first, {"key": "a"}, {}, ())
    state.map("m").update((number, "x" * 100) for number in range(10_000))
    state.list("l").extend("x" * 100 for _ in range(10 * PART_LENGTH))
    first.flush()
    before = dict(store.data)
    second = CachedState(store)
    again = KeyedState(second, {"key": "a"}, {}, ())
    again.map("m")[77] = "y"
    again.list("l").append("y")
    second.flush()
    changed = {name: data for name, data in store.data.items() if before.get(name) != data}
    assert len(changed) == 3  # a part of the map, one of the list, its length
    assert sum(map(len, changed.values())) < sum(map(len, store.data.values())) / 20


def test_a_part_that_was_read_is_not_what_is_kept() -> None:
    """Another name or another key has entries of its own."""
    cached = CachedState(MemoryStore())
    mine, other = (KeyedState(cached, {"key": key}, {}, ()) for key in "ab")
    mine.map("m")[1] = "mine"
    assert (len(mine.map("n")), len(other.map("m")), mine.map("m")[1]) == (0, 0, "mine")


def test_a_column_of_the_key_that_is_called_part_divides_the_state() -> None:
    cached = CachedState(MemoryStore())
    first, second = (KeyedState(cached, {"device": "d", "part": part}, {}, ()) for part in (1, 2))
    first.map("m")["n"] = 1
    first.list("l").append("x")
    assert "n" not in second.map("m")
    second.list("l").append("y")
    assert (list(first.list("l")), list(second.list("l"))) == (["x"], ["y"])


class Forgetful(Processor):
    time_to_live_ms = 10

    def process(self, record: StreamRecord, state: KeyedState, timers: Timers) -> Any:
        state.list("seen").append(record.value)
        yield len(state.list("seen"))


def test_maps_and_lists_live_as_long_as_their_key() -> None:
    rows = [row("a", 1, 0, 0), row("a", 1, 9, 1), row("b", 1, 30, 2), row("a", 1, 31, 3)]
    said = [update.values[0] for _, update in run_batch(custom(Forgetful()), MemoryStore(), rows)]
    assert [value["value"] for value in said] == [1, 2, 1, 1]


TIMED: dict[str, Any] = {
    "timers on the clock": lambda: custom(Reminder()),
    "idle windows": lambda: WindowProcessor(
        open_windows(SESSION, COUNT), COUNT, final=True, idle_ms=SESSION.idle_ms
    ),
}


@pytest.mark.parametrize("name", TIMED)
@settings(max_examples=60, deadline=None)
@given(
    clocks=st.lists(
        st.tuples(
            st.integers(0, 400),
            st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.booleans()), max_size=4),
        ),
        max_size=8,
    )
)
def test_batches_of_one_time_of_day_may_be_cut_anywhere(name: str, clocks: list[Any]) -> None:
    """`clocks`: how much later, and which rows come then: (key, timestamp, cut after it and restart)."""
    answers = []
    for cuts in (False, True):
        store, clock, place, said = MemoryStore(), 1_000, 0, []
        for later, drawn in clocks:
            clock += later
            batches: list[list[InputRow]] = [[]]
            for key, at, cut in drawn:
                value: Any = {"value": "x"} if name.startswith("timers") else {"new": {"x": at}, "old": None}
                batches[-1].append(InputRow(0, {"key": key}, value, at, None, [place, 0, 0, place]))
                place += 1
                if cut and cuts:
                    batches.append([])
            for batch in batches:
                again = MemoryStore()
                again.data = dict(store.data)
                said += [update for _, update in run_batch(TIMED[name](), again, batch, clock)]
                store = again
        answers.append(said)
    assert answers[0] == answers[1]


def test_what_is_cleared_does_not_come_back() -> None:
    numbers = KeyedState(CachedState(MemoryStore()), {"device": "d", "part": 1}, {}, ()).map("m")
    for number in range(200):
        numbers[number] = number
    numbers.clear()
    for number in range(100):
        numbers[-number - 1] = number
    assert sorted(numbers) == list(range(-100, 0))


def test_a_timer_is_noted_once_and_a_map_is_cleared_part_by_part() -> None:
    """However many wait, and however much the map holds."""

    class Counting(CachedState):
        puts = 0

        def put(self, name: str, key: Any, value: Any) -> None:
            Counting.puts += 1
            super().put(name, key, value)

    class Waiting(Processor):
        def process(self, record: StreamRecord, state: KeyedState, timers: Timers) -> Any:
            timers.at(record.timestamp + 100_000)

        def on_timer(self, key: Any, time: int, state: KeyedState, timers: Timers) -> Any:
            yield time

    state, processor = Counting(MemoryStore()), custom(Waiting())
    puts = []
    for at in range(50):
        Counting.puts = 0
        state.stream_time = at
        assert list(processor.process(row("a", "x", at), state)) == []
        puts.append(Counting.puts)
    assert set(puts[1:]) == {2}
    keyed = KeyedState(state, {"key": "b"}, {}, ())
    numbers = keyed.map("numbers")
    numbers.update((number, number) for number in range(1_000))
    Counting.puts = 0
    numbers.clear()
    assert len(numbers) == 0
    assert Counting.puts <= 65


NAN = float("nan")
STRUCTS = [{"x": 1, "y": None}, {"x": 1, "y": NAN}, {"x": 1, "y": 2.0}, {"x": None, "y": 9.0}]


def added(function: Any, values: Any) -> Any:
    state = function.start()
    for value in values:
        state = function.add(state, value)
    return state


@pytest.mark.parametrize(
    ("values", "least", "largest"),
    [
        ([5.0, NAN, 3.0], 3.0, NAN),
        ([NAN, 5.0, -math.inf], -math.inf, NAN),
        ([NAN, math.inf], math.inf, NAN),
        (STRUCTS, STRUCTS[3], STRUCTS[1]),
        ([[1, NAN], [1, 2.0, 3.0], [1], [None, 4.0]], [None, 4.0], [1, NAN]),
        ([b"a", None, b"b"], b"a", b"b"),
    ],
)
def test_least_and_largest_are_as_spark_has_them(values: list[Any], least: Any, largest: Any) -> None:
    for functions in (FUNCTIONS, REMOVABLE):
        for order in (values, values[::-1]):
            assert repr(functions["min"].result(added(functions["min"], order))) == repr(least)
            assert repr(functions["max"].result(added(functions["max"], order))) == repr(largest)


def test_a_nan_is_taken_back_and_leaves_the_order_as_it_is() -> None:
    values = [3.0, NAN, 1.0, 9.0, NAN, 2.0]
    for name, wanted in (
        ("max", 9.0),
        ("min", 1.0),
        ("top_k", [9.0, 3.0]),
        ("collect_list", [3.0, 1.0, 9.0, 2.0]),
    ):
        function = REMOVABLE[name]
        assert function.remove is not None
        state = pickle.loads(pickle.dumps(added(function, values)))
        for _ in range(3):  # one more than there are
            state = function.remove(state, float("nan"))
        assert function.result(state, *[2][: function.constants]) == wanted
    by_rank = FUNCTIONS["max_by"]
    state = by_rank.start()
    for value, rank in (("a", 1.0), ("b", NAN), ("c", 7.0)):
        state = by_rank.add(state, value, rank)
    assert by_rank.result(state) == "b"


def test_distinct_values_are_counted_and_those_of_an_earlier_state_too() -> None:
    function = REMOVABLE["count_distinct"]
    assert function.remove is not None
    state = ["a", "b", "a"]
    for value, count in (("c", 3), (None, 3)):
        state = function.add(state, value)
        assert function.result(state) == count
    for value, count in (("a", 3), ("a", 2), ("d", 2), ("b", 1)):
        state = function.remove(state, value)
        assert function.result(state) == count
    assert function.result(function.merge(["c", "e"], state)) == 2
    assert function.result(["a", "b", "a"]) == 2


def test_counting_distinct_values_looks_at_each_once() -> None:
    class Shown(str):
        __slots__ = ()
        count = 0

        def __repr__(self) -> str:
            Shown.count += 1
            return super().__repr__()

    function = REMOVABLE["count_distinct"]
    state = function.start()
    for number in range(100):
        state = function.add(state, Shown(number % 10))
        assert function.result(state) == min(number + 1, 10)
    assert Shown.count == 100


def test_a_record_is_joined_by_the_time_of_what_is_kept_and_not_by_looking_at_all_of_it() -> None:
    class When(int):
        compared = 0

        def __lt__(self, other: int) -> bool:
            When.compared += 1
            return int(self) < int(other)

        def __gt__(self, other: int) -> bool:
            When.compared += 1
            return int(self) > int(other)

    processor = StreamStreamProcessor("inner", before_ms=1, after_ms=1, grace_ms=10**6)
    state = CachedState(MemoryStore())
    kept = [(When(at * 10), {"v": at}) for at in range(1_000)]
    state.put("kept", {"key": "a"}, (kept, []))
    state.stream_time = 9_990
    record = InputRow(1, {"key": "a"}, {"v": "r"}, 5_001, None, [9_990, 0, 0, 0])
    ((left, _),) = [update.values for update in processor.process(record, state)]
    assert left == {"v": 500}
    assert When.compared < 50
