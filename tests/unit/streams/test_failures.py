"""Records that code of the program's cannot handle: how they are handled, and that they change no state."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from odradek.dead_letters.headers import PREFIX
from odradek.model.errors import ConfigError
from odradek.spark.dead_letters.letters import NO_BATCH
from odradek.spark.dead_letters.passing import passing_rows
from odradek.spark.rows.result_types import ResultType
from odradek.streams import Processor, StreamRecord, Streams, Timers
from odradek.streams.plan.windows import TimeWindows
from odradek.streams.processors.aggregate import AggregateProcessor, CalledFunction, SqlFold
from odradek.streams.processors.custom import CustomProcessor
from odradek.streams.processors.failures import FailedRows, Letters, RecordFailedError
from odradek.streams.processors.ports import InputRow
from odradek.streams.processors.task import MemoryStore, pass_time, run_batch
from odradek.streams.processors.windows import WindowProcessor, open_windows

ORIGIN = {
    "topic": "orders",
    "partition": 2,
    "offset": 1,
    "timestamp": 10,
    "key": b"a",
    "value": b"bad",
    "headers": [{"key": "trace", "value": b"7"}],
}


class Adding(Processor):
    """The sum of a key's numbers. A number below zero fails when half of the work is done; zero sets a timer that fails."""

    def process(self, record: StreamRecord, state: dict[str, Any], timers: Timers) -> Iterable[Any]:
        state.setdefault("seen", []).append(record.value)
        if record.value < 0:
            raise ValueError(f"{record.value} is below zero")
        if record.value == 0:
            timers.at(record.timestamp + 5)
        yield sum(state["seen"])

    def on_timer(self, key: Any, time: int, state: dict[str, Any], timers: Timers) -> None:
        raise RuntimeError("the timer failed")


def rows(*values: Any) -> list[InputRow]:
    return [
        InputRow(0, {"key": "a"}, {"value": value}, 10 * number, None, [10 * number, 4, 2, number])
        for number, value in enumerate(values)
    ]


def handled(letters: Letters | None, *values: int) -> tuple[list[Any], FailedRows]:
    failures = FailedRows(
        operator="adding", letters=letters, topics={4: "orders"}, origins={(4, 2, 1): ORIGIN}
    )
    processor = CustomProcessor(Adding(), bare_key="key", bare_value="value", outputs={"": "value"})
    made = run_batch(processor, MemoryStore(), rows(*values), failures=failures)
    return [update.values[0]["value"] for _, update in made], failures


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the log, without the place in the program that each ends with."""
    lines = [record.getMessage() for record in caplog.records]
    assert all(__file__ in line for line in lines)
    return [line.partition(" (")[0] for line in lines]


def letters(failures: FailedRows) -> list[dict[str, Any]]:
    given = (("dead", pa.py_buffer(packed)) for packed in failures.packed)
    return [row for _, rows in passing_rows(given, NO_BATCH) for row in rows.to_pylist()]


def test_the_first_failure_ends_the_batch_and_says_where_it_was() -> None:
    with pytest.raises(
        RecordFailedError, match="adding failed at orders-2 offset 1: ValueError: -1 is below zero"
    ):
        handled(None, 1, -1, 2)


def test_what_is_left_out_is_logged_and_changes_no_state(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "odradek.streams"):
        assert handled(Letters(topic=None), 1, -1, 2)[0] == [1, 3]
    assert logged(caplog) == ["left out: adding failed at orders-2 offset 1: ValueError: -1 is below zero"]


def test_a_dead_letter_is_the_record_as_it_was_and_says_what_went_wrong() -> None:
    sums, failures = handled(Letters(topic="dead"), 1, -1, 2)
    assert sums == [1, 3]
    (letter,) = letters(failures)
    headers = {header["key"]: header["value"] for header in letter["headers"]}
    assert (letter["key"], letter["value"], headers["trace"]) == (b"a", b"bad", b"7")
    assert {
        name.removeprefix("__dlq.errors."): value for name, value in headers.items() if "stack" not in name
    } == {
        "trace": b"7",
        "topic": b"orders",
        "partition": b"2",
        "offset": b"1",
        "timestamp": b"10",
        "exception": b"ValueError",
        "message": b"-1 is below zero",
        "stage": b"adding",
    }


LEFT_OUT = Letters(topic=None)


def folded(processor: Any, letters: Letters | None, *values: Any) -> list[Any]:
    failures = FailedRows(operator="adding", letters=letters, topics={4: "orders"})
    given = [row._replace(payload={"new": row.payload, "old": None}) for row in rows(*values)]
    return [
        update.values[0] and update.values[0]["n"]
        for _, update in run_batch(processor, MemoryStore(), given, failures=failures)
    ]


def called(function: str) -> SqlFold:
    call = CalledFunction(function=function, arguments=("value",), constants=(), out="n", removable=False)
    return SqlFold((call,))


def of_type(kind: pa.DataType) -> ResultType:
    return ResultType(pa.struct([("n", kind)]))


def test_a_sum_past_its_type_is_left_out_and_the_sum_stays() -> None:
    processor = AggregateProcessor(called("sum"), of_type(pa.int64()))
    assert folded(processor, LEFT_OUT, 2**63 - 2, 1, 1, -5) == [2**63 - 2, 2**63 - 1, 2**63 - 6]
    with pytest.raises(
        RecordFailedError, match=r"adding failed at orders-2 offset 1: ValueError: .* does not fit"
    ):
        folded(processor, None, 2**63 - 1, 1)


def test_a_final_window_leaves_out_the_record_whose_sum_does_not_fit() -> None:
    fold = called("sum")
    kind = open_windows(TimeWindows(size_ms=25, every_ms=25, grace_ms=0), fold)
    processor = WindowProcessor(kind, fold, final=True, results=of_type(pa.int64()))
    assert folded(processor, LEFT_OUT, 2**63 - 1, 1, -1, 7, 7, 7) == [2**63 - 2, 14]


def test_decimals_are_exact_and_rounded_to_the_scale_of_the_result() -> None:
    mean = AggregateProcessor(called("avg"), of_type(pa.decimal128(14, 6)))
    assert folded(mean, None, *map(Decimal, ("1.00", "1.00", "0.00")))[-1] == Decimal("0.666667")
    total = AggregateProcessor(called("sum"), of_type(pa.decimal128(38, 2)))
    large = Decimal("1234567890123456789012345678901234.25")
    assert folded(total, None, large, Decimal("0.01"))[-1] == Decimal("1234567890123456789012345678901234.26")


class Echo(Processor):
    def process(self, record: StreamRecord, state: dict[str, Any], timers: Timers) -> Iterable[Any]:
        state["n"] = state.get("n", 0) + 1
        yield state["n"]
        yield record.value


def test_what_a_processor_gives_and_its_output_cannot_hold_fails_with_the_record() -> None:
    processor = CustomProcessor(
        Echo(),
        bare_key="key",
        bare_value="value",
        outputs={"": "n"},
        output_types={"": of_type(pa.int32())},
    )
    assert echoed(processor, 7, 2 * 10**10, 8) == [1, 7, 2, 8]
    assert echoed(processor, "x", 8) == [1, 8]


def echoed(processor: CustomProcessor, *values: Any) -> list[Any]:
    failures = FailedRows(operator="adding", letters=LEFT_OUT, topics={})
    made = run_batch(processor, MemoryStore(), rows(*values), failures=failures)
    return [update.values[0]["n"] for _, update in made]


def test_another_query_writes_the_letters_of_what_both_compute() -> None:
    sums, failures = handled(Letters(topic="dead", is_quiet=True), 1, -1, 2)
    assert (sums, failures.packed) == ([1, 3], [])


def test_a_timer_that_fails_is_done_and_its_letter_names_no_record() -> None:
    sums, failures = handled(Letters(topic="dead"), 0, 1, 2, 3)
    assert sums == [0, 1, 3, 6]
    (letter,) = letters(failures)
    headers = {header["key"].removeprefix(PREFIX): header["value"] for header in letter["headers"]}
    assert (letter["key"], letter["value"]) == (None, None)
    assert [headers[name] for name in ("topic", "partition", "offset", "timestamp", "message", "stage")] == [
        b"adding",
        b"-1",
        b"-1",
        b"5",
        b"time 5 of key 'a': the timer failed",
        b"adding",
    ]


def test_a_timer_that_ends_the_query_names_its_key_and_time_and_no_record() -> None:
    with pytest.raises(
        RecordFailedError,
        match=r"^adding failed at time 5 of key 'a': RuntimeError: the timer failed \(.*, in on_timer: raise .*\)$",
    ):
        handled(None, 0, 1)


class Halfway(Processor):
    """Timers on both clocks that change all kinds of state, say something, set and cancel others, and then fail if odd."""

    def process(self, record: StreamRecord, state: Any, timers: Timers) -> Iterable[Any]:
        yield f"{state.get('n', 0)} {sorted(state.map('m'))} {list(state.list('l'))}"
        if isinstance(record.value, tuple):
            for time in record.value:
                timers.at(time)
                timers.at(time, wall_clock=True)

    def on_timer(self, key: Any, time: int, state: Any, timers: Timers) -> Iterable[Any]:
        state["n"] = state.get("n", 0) + 1
        state.map("m")[time] = time
        state.list("l").append(time)
        timers.cancel(time + 2)
        timers.at(time + 1)
        yield f"at {time}"
        if time % 2:
            raise ValueError("odd")
        timers.cancel(time + 1)

    on_wall_clock_timer = on_timer


def test_a_timer_that_fails_says_nothing_and_changes_nothing_on_either_clock(
    caplog: pytest.LogCaptureFixture,
) -> None:
    processor = CustomProcessor(Halfway(), bare_key="key", bare_value="value", outputs={"": None})
    store, failures = MemoryStore(), FailedRows(operator="halfway", letters=LEFT_OUT, topics={4: "orders"})
    begun = rows((6, 9, 11))
    with caplog.at_level(logging.WARNING, "odradek.streams"):
        said = list(run_batch(processor, store, begun, 0, failures))
        said += run_batch(processor, store, [], 9, failures)
        said += run_batch(processor, store, rows(None, None)[1:], 10, failures)
        said += pass_time(processor, store, 20, [9, 0, 0, 9], failures)
        said += run_batch(processor, store, rows(None, None, None, None)[3:], 20, failures)
    assert [update.values[0] for _, update in said] == [
        "0 [] []",
        "at 6",
        "1 [6] [6]",
        "at 6",
        "2 [6] [6, 6]",
    ]
    assert logged(caplog) == [
        f"left out: halfway failed at time {time} of key 'a': ValueError: odd" for time in (9, 9, 11, 11)
    ]


class Unsayable(SqlFold):
    """Its results could be said when they were kept, and cannot be any more."""

    def result(self, aggregate: Any) -> Any:
        if self.is_broken:
            raise ValueError("unsayable")
        return super().result(aggregate)

    is_broken = False


@pytest.mark.parametrize("idle_ms", [None, 5])
def test_a_window_that_cannot_be_said_as_it_closes_is_gone(
    idle_ms: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    fold = Unsayable(
        (CalledFunction(function="sum", arguments=("value",), constants=(), out="n", removable=False),)
    )
    kind = open_windows(TimeWindows(size_ms=15, every_ms=15, grace_ms=0), fold)
    processor = WindowProcessor(kind, fold, final=True, idle_ms=idle_ms)
    store, failures = MemoryStore(), FailedRows(operator="sums", letters=LEFT_OUT, topics={})
    given = [row._replace(payload={"new": row.payload, "old": None}) for row in rows(1, 2, 3, 4)]
    list(run_batch(processor, store, given[:1], 0, failures))
    fold.is_broken = True
    with caplog.at_level(logging.WARNING, "odradek.streams"):
        if idle_ms is None:
            list(pass_time(processor, store, 16, [9, 0, 0, 9], failures))
        else:
            list(run_batch(processor, store, [], 6, failures))
    assert logged(caplog) == ["left out: sums failed at time 14 of key 'a': ValueError: unsayable"]
    fold.is_broken = False
    made = run_batch(processor, store, given[2:], 7, failures)
    assert [update.values[0] for _, update in made] == [{"n": 3}]


def test_the_letter_of_a_record_whose_bytes_are_not_known_says_which_it_was() -> None:
    failures = FailedRows(operator="adding", letters=Letters(topic="dead"), topics={4: "orders"})
    failures.add(InputRow(0, {"key": "a"}, None, 15, None, [15, 4, 2, 1]), RuntimeError("it failed"))
    (letter,) = letters(failures)
    headers = {header["key"].removeprefix(PREFIX): header["value"] for header in letter["headers"]}
    assert (letter["key"], letter["value"]) == (None, None)
    assert [headers[name] for name in ("topic", "partition", "offset", "message")] == [
        b"orders",
        b"2",
        b"1",
        b"it failed",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"on_error": "ignore"}, "on_error is one of fail, skip, dead-letter"),
        ({"on_error": "dead-letter"}, "needs bad="),
    ],
)
def test_a_program_says_where_its_letters_go(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Streams("orders", **given)
