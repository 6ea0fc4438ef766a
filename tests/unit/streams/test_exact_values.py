"""Values that code of the program's returns are what their type holds, exactly, or their record fails."""

from __future__ import annotations

import math
import pickle
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.model.errors import ConfigError
from odradek.spark.rows.result_types import ResultType
from odradek.streams import Processor, StreamRecord, Streams
from odradek.streams.processors.aggregate import AggregateProcessor, PythonFold
from odradek.streams.processors.columnar import columnar
from odradek.streams.processors.columns import TaskColumns
from odradek.streams.processors.custom import CustomProcessor
from odradek.streams.processors.failures import FailedRows, Letters
from odradek.streams.processors.ports import InputRow
from odradek.streams.processors.task import CachedState, MemoryStore, latest_only, pass_time, run_batch
from odradek.streams.processors.versions import VersionedJoinProcessor

INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
KINDS = (
    *INTEGERS,
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
    pa.time64("ns"),
    pa.duration("us"),
    pa.decimal128(5, 2),
    pa.decimal128(38, 10),
)
zones = st.sampled_from([None, UTC, timezone(timedelta(hours=-7, minutes=-30))])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**66), 2**66)
    | st.floats()
    | st.floats(-1000, 1000).map(round).map(float)
    | st.decimals(allow_nan=True, allow_infinity=True)
    | st.sampled_from([Decimal("1e400"), Decimal("sNaN"), Decimal("0.1"), 2**53 + 1, 1e300, 10**400])
    | st.decimals(-999, 999, places=3)
    | st.text(max_size=4)
    | st.sampled_from(["5", "0.5", "\ud800", "true", "2020-01-01"])
    | st.binary(max_size=4)
    | st.dates()
    | st.datetimes(timezones=zones, allow_imaginary=False)
    | st.times()
    | st.timedeltas()
    | st.integers(-128, 127).map(np.int16)
    | st.floats().map(np.float64)
    | st.floats(width=32).map(np.float32)
    | st.booleans().map(np.bool_)
    | st.just(np.datetime64("2020-01-01T00:00:00.000000001", "ns"))
    | st.just(object())
)


def expected(value: Any, kind: pa.DataType) -> Any:
    """What a column of this type may hold of the value, without the code under test. A KeyError refuses."""
    if value is None:
        return None
    for is_kind, oracle in ORACLES.items():
        if is_kind(kind):
            return oracle(value, kind)
    raise KeyError


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal, np.integer, np.floating)) and not isinstance(value, bool)


def only(condition: bool, value: Any) -> Any:
    if not condition:
        raise KeyError
    return value


def whole(value: Any, kind: pa.DataType) -> Any:
    if is_number(value) and is_finite(value) and int(value) == value:
        bounds = np.iinfo(kind.to_pandas_dtype())
        return only(bounds.min <= int(value) <= bounds.max, int(value))
    raise KeyError


def double(value: Any, kind: pa.DataType) -> Any:
    try:
        made = float(only(is_number(value), value))
    except (OverflowError, ValueError):  # a signalling NaN
        raise KeyError from None
    return only(isinstance(value, (float, np.floating)) or made == value or math.isnan(made), made)


def single(value: Any, kind: pa.DataType) -> Any:
    made = double(value, kind)
    try:
        struct.pack("<f", made)
    except OverflowError:
        raise KeyError from None
    return made


def text(value: Any, kind: pa.DataType) -> Any:
    try:
        return (
            value.decode()
            if isinstance(value, bytes)
            else only(isinstance(value, str), value).encode().decode()
        )
    except UnicodeError:
        raise KeyError from None


def binary(value: Any, kind: pa.DataType) -> Any:
    return value if isinstance(value, bytes) else text(value, kind).encode()


def moment(value: Any, kind: pa.DataType) -> Any:
    if not isinstance(value, datetime) or (kind.tz is None) != (value.tzinfo is None):
        raise KeyError
    try:
        return value if kind.tz is None else value.astimezone(UTC)
    except OverflowError:
        raise KeyError from None


def digits(value: Any, kind: pa.DataType) -> Any:
    if not is_number(value) or isinstance(value, (float, np.floating)):
        raise KeyError
    exact = value if isinstance(value, Decimal) else Decimal(int(value))
    if not exact.is_finite() or abs(exact) >= 10**39:
        raise KeyError
    scaled = exact.scaleb(kind.scale, context=WIDE).to_integral_value(ROUND_HALF_UP)
    return only(abs(scaled) < 10**kind.precision, scaled.scaleb(-kind.scale, context=WIDE))


ORACLES: dict[Callable[[Any], bool], Callable[[Any, Any], Any]] = {
    pa.types.is_integer: whole,
    pa.types.is_float64: double,
    pa.types.is_float32: single,
    pa.types.is_boolean: lambda value, _: only(isinstance(value, (bool, np.bool_)), bool(value)),
    pa.types.is_string: text,
    pa.types.is_binary: binary,
    pa.types.is_date: lambda value, _: only(type(value) is date, value),
    pa.types.is_timestamp: moment,
    pa.types.is_time: lambda value, _: only(isinstance(value, time), value),
    pa.types.is_duration: lambda value, _: only(
        isinstance(value, timedelta) and -(2**63) <= value // timedelta(microseconds=1) < 2**63, value
    ),
    pa.types.is_decimal: digits,
}
WIDE = Context(prec=200)


def is_finite(value: Any) -> bool:
    if isinstance(value, int):
        return True
    return value.is_finite() if isinstance(value, Decimal) else bool(math.isfinite(value))


def same(left: Any, other: Any) -> bool:
    if isinstance(left, float) and isinstance(other, float) and math.isnan(left):
        return math.isnan(other)
    return type(left) is type(other) and bool(left == other)


@settings(max_examples=1500, deadline=None)
@given(scalars, st.sampled_from(KINDS))
def test_a_value_is_held_exactly_or_refused(value: Any, kind: pa.DataType) -> None:
    try:
        wanted = expected(value, kind)
    except KeyError:
        with pytest.raises(ValueError, match="does not fit the type"):
            ResultType(kind).fitted(value)
        return
    made = ResultType(kind).fitted(value)
    assert same(made, wanted), (made, wanted)
    (held,) = pa.array([made], kind).to_pylist()
    if kind != pa.float32():
        assert same(held, wanted) or held == wanted


STRUCT = pa.struct(
    [
        ("n", pa.int64()),
        pa.field("sure", pa.string(), nullable=False),
        ("many", pa.list_(pa.struct([("x", pa.float64())]))),
        ("by", pa.map_(pa.string(), pa.int32())),
    ]
)
GOOD = {"n": 1, "sure": "a", "many": [{"x": 0.5}, None], "by": {"k": 2}}


def test_a_nested_value_is_held_as_it_is() -> None:
    assert ResultType(STRUCT).fitted(GOOD) == {**GOOD, "by": [("k", 2)]}
    assert pickle.loads(pickle.dumps(ResultType(STRUCT))).fitted({**GOOD, "by": None, "n": 2.0})["n"] == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"amout": 1}, r"it has amout, which the type does not have$"),
        (
            {"mani": [], "many": ...},
            r"it has mani, which .* have \(did you mean many\?\); it lacks many: write None",
        ),
        ({"by": ...}, "it lacks by"),
        ({"sure": None}, "sure: None is not allowed"),
        ({"n": 0.5}, "n: 0.5 is no whole number"),
        ({"many": [{"x": 1.0}, {"y": 2.0}]}, r"many: \[1\]: the dict has other fields .* it has y"),
        ({"many": {"x": 1.0}}, "many: .* of the type dict, not a list"),
        ({"by": {"k": 1 << 31}}, r"by: \[k\]: 2147483648 is not between"),
        ({"by": {None: 1}}, "a key that is None"),
        ({"by": [("k", 1), ("k", 2)]}, "has a key twice"),
    ],
)
def test_a_struct_that_does_not_fit_says_which_field(changed: dict[str, Any], message: str) -> None:
    value = {name: part for name, part in {**GOOD, **changed}.items() if part is not ...}
    with pytest.raises(ValueError, match=message):
        ResultType(STRUCT).fitted(value)


class Returning(Processor):
    def process(self, record: StreamRecord, state: Any, timers: Any) -> Any:
        return record.value


def rows(*values: Any) -> list[InputRow]:
    return [
        InputRow(0, {"key": "a"}, {"value": value}, 10 * number, None, [10 * number, 4, 2, number])
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([0.5], "0.5 is no whole number"),
        ({"n": 1}, "process gives back one dict: write yield"),
        ("text", "process gives back one str"),
        (7, "process gives back one int"),
        ([StreamRecord(key="a", value=1, timestamp=10.5)], "10.5 is no whole number"),
        ([StreamRecord(key="a", value=1, timestamp=None)], "timestamp .* is None"),  # type: ignore[arg-type]
        ([StreamRecord(key=1, value=1, timestamp=1)], "1 is of the type int, not text"),
        ([StreamRecord(key="a", value=1, timestamp=1, headers=((3, b""),))], "headers|not text"),  # type: ignore[arg-type]
    ],
)
def test_a_processor_whose_result_does_not_fit_fails_with_its_record(returned: Any, message: str) -> None:
    processor = CustomProcessor(
        Returning(),
        bare_key="key",
        bare_value="value",
        outputs={"": "n"},
        key_type=ResultType(pa.struct([("key", pa.string())])),
        output_types={"": ResultType(pa.struct([("n", pa.int64())]))},
    )
    failures = FailedRows(operator="exact", letters=Letters(topic="dead"), topics={})
    made = list(run_batch(processor, MemoryStore(), rows([1], returned, [2.0]), failures=failures))
    assert [update.values[0] for _, update in made] == [{"n": 1}, {"n": 2}]
    assert len(failures.packed) == 1
    ending = FailedRows(operator="exact", letters=None, topics={4: "orders"})
    with pytest.raises(Exception, match=rf"exact failed at orders-2 offset 0: .*({message})"):
        list(run_batch(processor, MemoryStore(), rows(returned), failures=ending))


RESULTS = pa.struct([("n", pa.int64()), ("text", pa.string())])
ARGUMENTS = pa.struct([("x", pa.float64())])
returned = st.sampled_from(
    [
        {"n": 1, "text": "a"},
        {"n": 2.0, "text": b"b"},
        {"n": 0.5, "text": "a"},
        {"n": True, "text": "a"},
        {"n": math.nan, "text": None},
        {"n": 1, "txt": "a"},
        {"n": 1},
        {"n": None, "text": None},
        {"n": Decimal("3"), "text": 4},
        {"n": 1 << 63, "text": ""},
        ["n", "text"],
        "n",
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), returned), min_size=1, max_size=6))
def test_a_batch_as_columns_refuses_what_its_rows_refuse(calls: list[tuple[str, Any]]) -> None:
    """Each record carries the number of the value that the function returns for it."""
    fold = PythonFold(
        start=lambda: "none",
        add=lambda key, value, _: calls[int(value["x"])][1],
        subtract=None,
        merge=None,
        bare_key="k",
        bare_value=None,
        bare_result=None,
    )
    processor = AggregateProcessor(fold, ResultType(RESULTS))
    given_rows = [
        InputRow(0, {"k": key}, {"new": {"x": float(n)}, "old": None}, n, None, [n, 0, 0, n])
        for n, (key, _) in enumerate(calls)
    ]
    failures = FailedRows(operator="sum", letters=Letters(topic=None), topics={})
    made = run_batch(processor, MemoryStore(), given_rows, failures=failures)
    by_row = [(order, update.key, update.values) for order, update in latest_only(list(made), (1,))]
    said = columnar(processor, columns_of(given_rows), CachedState(MemoryStore()), (1,), (RESULTS, RESULTS))
    if said is None:  # then the batch goes row by row
        assert any(not fits(value) for _, value in calls)
        return
    keys, after, before = said.keys.to_pylist(), *(values.to_pylist() for values in said.values)
    orders = said.orders.tolist()
    assert [
        (order, key, (now, was)) for order, key, now, was in zip(orders, keys, after, before, strict=True)
    ] == by_row


def fits(value: Any) -> bool:
    try:
        ResultType(RESULTS).fitted(value)
    except ValueError:
        return False
    return True


def columns_of(given_rows: list[InputRow]) -> TaskColumns:
    payload = pa.struct([("new", ARGUMENTS), ("old", pa.int32())])
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "__port": pa.array([row.port for row in given_rows], pa.int32()),
            "__key": pa.array([row.key for row in given_rows], pa.struct([("k", pa.string())])),
            "__payload0": pa.array([row.payload for row in given_rows], payload),
            "__timestamp": pa.array([row.timestamp for row in given_rows], pa.int64()),
            "__headers": pa.array([None] * len(given_rows), headers),
            "__order": pa.array([row.order for row in given_rows], pa.list_(pa.int64())),
        }
    )
    return TaskColumns.of(table, 1)


def test_time_that_passes_releases_records_that_wait_for_versions() -> None:
    processor, store = VersionedJoinProcessor("left", history_ms=100, grace_ms=10), MemoryStore()
    payload = {"key": {"key": "a"}, "value": {"value": 1}}
    waiting = InputRow(0, {"key": "a"}, payload, 50, None, [50, 0, 0, 0, 0])
    version = InputRow(1, {"key": "a"}, {"rate": 2}, 45, None, [50, 1, 0, 1, 0])
    assert list(run_batch(processor, store, [waiting])) == []
    assert list(run_batch(processor, store, [version])) == []
    assert list(pass_time(processor, store, 59, [2, 0, 0, 2])) == []
    ((_, update),) = pass_time(processor, store, 60, [3, 0, 0, 3])
    assert (update.values, update.timestamp) == (({"value": 1}, {"rate": 2}), 50)


def test_sessions_without_merge_are_refused_when_they_are_written() -> None:
    app = Streams("sessions")
    sessions = app.stream("orders", key="STRING", value="n INT").group_by_key().session("1 hour")
    with pytest.raises(ConfigError, match="sessions need merge="):
        sessions.aggregate(int, lambda key, value, total: total + value["n"], schema="BIGINT")
    cogrouped = app.stream("other", key="STRING", value="n INT").group_by_key().cogroup(lambda k, v, a: a)
    with pytest.raises(ConfigError, match="sessions need merge="):
        cogrouped.windowed(lambda grouped: grouped.session(5)).aggregate(int, schema="BIGINT")
    sessions.reduce(lambda total, value: value)
    sessions.aggregate(int, lambda key, value, total: total, merge=lambda k, a, b: a, schema="BIGINT")
