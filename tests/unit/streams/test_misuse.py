"""What people write in place of what is right: the error says what to write, when the program is written."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from odradek.model.errors import ConfigError, KafkaError
from odradek.model.exception_text import class_name
from odradek.streams import Processor, Streams
from odradek.streams.plan.windows import SessionWindows, milliseconds
from odradek.streams.processors.aggregate import CalledFunction, SqlFold
from odradek.streams.processors.custom import CustomProcessor
from odradek.streams.processors.failures import FailedRows, RecordFailedError
from odradek.streams.processors.ports import InputRow
from odradek.streams.processors.task import MemoryStore, run_batch
from odradek.streams.processors.windows import WindowProcessor, open_windows
from odradek.streams.translation.spark_errors import failure


class Silent(Processor):
    def process(self, record: Any, state: Any, timers: Any) -> None: ...


def price(value: Any) -> Any:
    return value


EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "filter": lambda orders, wrong: orders.filter(wrong),
    "filter_not": lambda orders, wrong: orders.filter_not(wrong),
    "select": lambda orders, wrong: orders.select("n", wrong),
    "select_key": lambda orders, wrong: orders.select_key(wrong),
    "map": lambda orders, wrong: orders.map(key="n", value=wrong),
    "with_timestamp": lambda orders, wrong: orders.with_timestamp(wrong),
    "flat_map": lambda orders, wrong: orders.flat_map(wrong),
    "flat_map key": lambda orders, wrong: orders.flat_map("array(n)", key=wrong),
    "split": lambda orders, wrong: orders.split(wrong),
    "group_by": lambda orders, wrong: orders.group_by(wrong),
    "table filter": lambda orders, wrong: orders.to_table().filter(wrong),
    "table select": lambda orders, wrong: orders.to_table().select(wrong),
    "table group_by": lambda orders, wrong: orders.to_table().group_by(wrong),
}


@pytest.mark.parametrize("method", EXPRESSIONS)
@pytest.mark.parametrize("wrong", [lambda record: record, price, str, 5, None, True, {"a": 1}, ""])
def test_what_is_no_expression_is_refused_at_once(method: str, wrong: Any) -> None:
    if method == "flat_map key" and wrong is None:
        return  # the key stays
    orders = Streams("misuse").stream("orders", key="STRING", value="n INT")
    with pytest.raises(
        ConfigError, match=r"takes Spark SQL or a Column, not|is empty text: write Spark SQL"
    ) as refused:
        EXPRESSIONS[method](orders, wrong)
    assert ("belongs into a processor" in str(refused.value)) == (
        callable(wrong) and not isinstance(wrong, type)
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"key": str}, "key= is DDL, not the type str: write key='STRING'"),
        ({"value": float}, "write value='DOUBLE'"),
        ({"value": dict}, "write its fields"),
        ({"value": {"n": "INT"}}, "value= is DDL, not {'n': 'INT'}"),
    ],
)
def test_a_type_of_python_is_no_ddl(given: dict[str, Any], message: str) -> None:
    for declare in (Streams("misuse").stream, Streams("misuse").table, Streams("misuse").global_table):
        with pytest.raises(ConfigError, match=message):
            declare("orders", **given)


def test_a_timedelta_is_a_length_of_time() -> None:
    assert milliseconds(timedelta(hours=1), "window") == 3_600_000
    for wrong in (timedelta(microseconds=1), timedelta(-1), 1.5, None, True, str):
        with pytest.raises(ConfigError, match="length of time"):
            milliseconds(wrong, "window")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Silent, r"write process\(Silent\(\), schema=…\)"),
        (lambda record: record, "an object of a class that inherits"),
        (object(), "object does not inherit odradek.streams.Processor"),
    ],
)
def test_what_is_no_processor_is_refused(wrong: Any, message: str) -> None:
    grouped = Streams("misuse").stream("orders", key="STRING", value="n INT").group_by_key()
    with pytest.raises(ConfigError, match=message):
        grouped.process(wrong, schema="INT")


def test_aggregates_need_functions() -> None:
    grouped = Streams("misuse").stream("orders", key="STRING", value="n INT").group_by_key()
    with pytest.raises(ConfigError, match="start is a function without arguments"):
        grouped.aggregate(0, lambda k, v, a: a, schema="INT")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"add is a function \(aggregate, value\)"):
        grouped.reduce("sum")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="schema= is DDL, not the type int: write schema='BIGINT'"):
        grouped.aggregate(int, lambda k, v, a: a, schema=int)  # type: ignore[arg-type]


class Pricing(Processor):
    def process(self, record: Any, state: Any, timers: Any) -> Any:
        yield self._price(record.value)

    def _price(self, value: Any) -> Any:
        return {"tea": 2}[value]


def test_an_error_names_the_line_of_the_program_and_none_of_ours() -> None:
    processor = CustomProcessor(Pricing(), bare_key="key", bare_value="value", outputs={"": None})
    row = InputRow(0, {"key": "a"}, {"value": "cup"}, 5, None, [5, 4, 2, 7])
    failures = FailedRows(operator="pricing", letters=None, topics={4: "orders"})
    with pytest.raises(RecordFailedError) as raised:
        list(run_batch(processor, MemoryStore(), [row], failures=failures))
    line = Pricing._price.__code__.co_firstlineno + 1
    assert str(raised.value) == (
        "pricing failed at orders-2 offset 7: KeyError: 'cup'"
        f' ({__file__}, line {line}, in _price: return {{"tea": 2}}[value])'
    )
    shown = "".join(traceback.format_exception(raised.value))
    assert "direct cause" not in shown
    assert "During handling" not in shown


def test_what_a_query_died_of_is_one_line() -> None:
    ours = "x\nodradek.streams.processors.failures.RecordFailedError: sums failed at orders-0 offset 1: KeyError: 'a'\n\tat j"
    assert failure(ours) == "sums failed at orders-0 offset 1: KeyError: 'a'"
    assert failure(f"x\n{class_name(ConfigError)}: set it\n\tat j") == "set it"
    assert (
        failure(f"x\n{class_name(KafkaError)}: TIMED_OUT: no answer\n\tat j")
        == "KafkaError: TIMED_OUT: no answer"
    )
    java = (
        "Job aborted due to stage failure\nDriver stacktrace:\n\tat x\nCaused by: org.apache.spark.SparkNumberFormatException:"
        ' [CAST_INVALID_INPUT] The value \'x\' of the type "STRING" cannot be cast to "INT". SQLSTATE: 22018\n\tat y'
    )
    assert failure(java) == 'The value \'x\' of the type "STRING" cannot be cast to "INT".'


def sessions(retention_ms: int | None, *times: int) -> list[tuple[int, int, int]]:
    """What a count by session says last of each, when records of these times come."""
    fold = SqlFold(
        (CalledFunction(function="count", arguments=("v",), constants=(), out="n", removable=False),)
    )
    kind = SessionWindows(gap_ms=10, grace_ms=20, retention_ms=retention_ms)
    processor, store = WindowProcessor(open_windows(kind, fold), fold, final=False), MemoryStore()
    held: dict[tuple[int, int], int] = {}
    for number, time in enumerate(times):
        row = InputRow(0, {"k": "a"}, {"new": {"v": True}, "old": None}, time, None, [time, 0, 0, number])
        for _, update in run_batch(processor, store, [row]):
            assert update.key is not None
            window = (update.key["window_start"], update.key["window_end"])
            held.pop(window, None)
            if update.values[0] is not None:
                held[window] = update.values[0]["n"]
    return [(*window, count) for window, count in sorted(held.items())]


def test_a_record_that_is_not_late_joins_a_closed_session_within_the_retention() -> None:
    """At stream time 132, sessions that end before 102 are closed; a record at 109 is not late and reaches back to 99."""
    apart = [(100, 100, 1), (109, 109, 1), (132, 132, 1)]
    assert sessions(None, 100, 132, 109) == sessions(30, 100, 132, 109) == apart
    assert sessions(60, 100, 132, 109) == [(100, 109, 2), (132, 132, 1)]


def test_a_retention_is_at_least_the_gap_and_the_grace() -> None:
    grouped = Streams("misuse").stream("orders", key="STRING", value="n INT").group_by_key()
    grouped.session("10 minutes", grace="5 minutes", retention="15 minutes")
    with pytest.raises(ConfigError, match="at least the gap and the grace, 15 minutes"):
        grouped.session("10 minutes", grace="5 minutes", retention="14 minutes")


def test_a_session_of_spark_connect_is_refused_wherever_a_program_takes_one() -> None:
    remote: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    app = Streams("misuse", servers="127.0.0.1:1")
    for use in (
        lambda: Streams("misuse", spark=remote),
        lambda: app.test(spark=remote),
        lambda: app.start(checkpoint="c", spark=remote),
    ):
        with pytest.raises(
            ConfigError, match="spark is a session of Spark Connect, which has no JVM in this process"
        ):
            use()
