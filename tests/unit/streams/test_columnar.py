"""Batches as columns say what the rows say, one after another, and leave the same state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.sql.functions import FUNCTIONS as FUNCTIONS_OF_SQL
from odradek.sql.planning.aggregation import SqlAggregation
from odradek.sql.planning.steps import AggregateCall
from odradek.streams.plan.windows import TimeWindows
from odradek.streams.processors.aggregate import (
    AggregateProcessor,
    CalledFunction,
    ColumnFold,
    GroupFold,
    PythonFold,
    SqlFold,
    ValueGroups,
)
from odradek.streams.processors.columnar import columnar
from odradek.streams.processors.columns import OriginColumn, TaskColumns, UpdateColumns, order_of
from odradek.streams.processors.functions import FUNCTIONS
from odradek.streams.processors.joins import StreamTableProcessor, TableTableProcessor
from odradek.streams.processors.ports import InputRow, KeyedProcessor
from odradek.streams.processors.python_values import lists_of_numbers, values_of
from odradek.streams.processors.state.state_bytes import state_value
from odradek.streams.processors.task import CachedState, MemoryStore, in_order, latest_only, run_batch
from odradek.streams.processors.windows import FixedWindows, WindowProcessor
from odradek.values.types import BIGINT

NAMES = [name for name in FUNCTIONS if name not in ("min_by", "max_by", "top_k", "bottom_k")]
CALLS = [
    *((name, ("x",), ()) for name in NAMES),
    ("max_by", ("x", "y"), ()),
    ("top_k", ("x",), (2,)),
    ("sum", ("y",), ()),
]
OUTS = [*NAMES, "max_by", "top_k", "sum_y"]
FOLD = SqlFold(
    tuple(
        CalledFunction(function=name, arguments=arguments, constants=constants, out=out, removable=False)
        for out, (name, arguments, constants) in zip(OUTS, CALLS, strict=True)
    )
)
LISTS = ("collect_list", "collect_set", "top_k")
RESULT = pa.struct(
    [
        (
            name,
            pa.list_(pa.int64())
            if name in LISTS
            else pa.float64()
            if name in ("avg", "mean", "sum_y")
            else pa.int64(),
        )
        for name in OUTS
    ]
)
TEXT = pa.struct([("v", pa.string())])
LISTS = pa.struct([("v", pa.list_(pa.string()))])
"""A type whose rows are read one by one, not as columns."""
KEYS = {
    "one": pa.struct([("k", pa.string())]),
    "two": pa.struct([("k", pa.string()), ("n", pa.int32())]),
}
ARGUMENTS = pa.struct([("x", pa.int64()), ("y", pa.float64())])
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


PYTHON = PythonFold(
    start=lambda: {"x": 0, "of": 0},
    add=lambda key, value, total: {"x": total["x"] + (value["x"] or 0), "of": total["of"] + len(key or "")},
    subtract=None,
    merge=None,
    bare_key="k",
    bare_value=None,
    bare_result=None,
)
REDUCED = PythonFold(
    start=None,
    add=lambda total, value: {"x": max(total["x"] or 0, value["x"] or 0), "y": float(len(total))},
    subtract=None,
    merge=None,
    bare_key=None,
    bare_value=None,
    bare_result=None,
)
LIKE_KSQL = SqlAggregation(
    (
        AggregateCall(name="COUNT", kinds=(), constants=(), arguments=(), result="x", returns=BIGINT),
        AggregateCall(
            name="MAX", kinds=(BIGINT,), constants=(None,), arguments=("x",), result="of", returns=BIGINT
        ),
    ),
    FUNCTIONS_OF_SQL,
)
SMALL = pa.struct([("x", pa.int64()), ("of", pa.int64())])


def windows(
    size_ms: int, every_ms: int, grace_ms: int, fold: ColumnFold | GroupFold = FOLD
) -> WindowProcessor:
    kind = TimeWindows(size_ms=size_ms, every_ms=every_ms, grace_ms=grace_ms)
    return WindowProcessor(FixedWindows(kind, fold), fold, final=False)


CASES: dict[str, tuple[KeyedProcessor, tuple[pa.DataType, ...], tuple[int, ...] | None]] = {
    "aggregate": (AggregateProcessor(FOLD), (RESULT, RESULT), (1,)),
    "tumbling": (windows(10, 10, 0), (RESULT, RESULT), (1,)),
    "with grace": (windows(10, 10, 15), (RESULT, RESULT), (1,)),
    "hopping": (windows(10, 3, 5), (RESULT, RESULT), (1,)),
    "like ksqlDB": (AggregateProcessor(LIKE_KSQL), (SMALL, SMALL), (1,)),
    "in Python": (AggregateProcessor(PYTHON), (SMALL, SMALL), (1,)),
    "in Python, hopping": (windows(10, 3, 5, PYTHON), (SMALL, SMALL), (1,)),
    "reduced": (AggregateProcessor(REDUCED), (ARGUMENTS, ARGUMENTS), (1,)),
    "inner join": (StreamTableProcessor("inner"), (TEXT, TEXT), None),
    "left join": (StreamTableProcessor("left"), (TEXT, TEXT), None),
    "inner tables": (TableTableProcessor("inner"), (TEXT, TEXT, TEXT, TEXT), (2, 3)),
    "left tables": (TableTableProcessor("left"), (TEXT, TEXT, TEXT, TEXT), (2, 3)),
    "outer tables": (TableTableProcessor("outer"), (TEXT, TEXT, TEXT, TEXT), (2, 3)),
    "left join of lists": (StreamTableProcessor("left"), (LISTS, LISTS), None),
    "left tables of lists": (TableTableProcessor("left"), (LISTS, LISTS, LISTS, LISTS), (2, 3)),
}
numbers = st.none() | st.integers(-9, 9)
floats = st.none() | st.floats(-1e3, 1e3)


def payload_kinds(name: str) -> list[pa.DataType]:
    value = LISTS if "lists" in name else TEXT
    if "tables" in name:
        return [value, value]
    if "join" in name:
        return [pa.struct([("key", pa.struct([("of", pa.string())])), ("value", value)]), value]
    return [pa.struct([("new", ARGUMENTS), ("old", pa.int32())])]


def payload(draw: st.DrawFn, name: str, port: int) -> Any:
    if "join" not in name and "tables" not in name:
        return {"new": {"x": draw(numbers), "y": draw(floats)}, "old": None}
    texts = st.sampled_from("xyz")
    value = draw(st.none() | st.fixed_dictionaries({"v": st.lists(texts) if "lists" in name else texts}))
    if port or "tables" in name:
        return value
    return {"key": {"of": draw(st.sampled_from("ab"))}, "value": value}


@st.composite
def rows(draw: st.DrawFn, name: str, key: str, begin: int, clock: int) -> list[InputRow]:
    input_rows = []
    for place in range(draw(st.integers(0, 14))):
        port = draw(st.integers(0, len(payload_kinds(name)) - 1))
        when, partition = clock + draw(st.integers(-3, 25)), draw(st.integers(0, 1))
        fields: dict[str, Any] = {"k": draw(st.none() | st.sampled_from("abc"))}
        if key == "two":
            fields["n"] = draw(st.integers(0, 1))
        headers = draw(st.none() | st.just([{"key": "h", "value": b"%d" % place}]))
        order = [when, port, partition, begin + place, 0]
        input_rows.append(InputRow(port, fields, payload(draw, name, port), when, headers, order))
    return input_rows


def as_columns(given_rows: list[InputRow], name: str, key: str) -> TaskColumns:
    kinds = payload_kinds(name)
    columns = {
        "__port": pa.array([row.port for row in given_rows], pa.int32()),
        "__key": pa.array([row.key for row in given_rows], KEYS[key]),
        "__timestamp": pa.array([row.timestamp for row in given_rows], pa.int64()),
        "__headers": pa.array([row.headers for row in given_rows], HEADERS),
        "__order": pa.array([row.order for row in given_rows], pa.list_(pa.int64())),
        "__origin": pa.array([{"offset": row.order[3]} for row in given_rows]),
    }
    for port, kind in enumerate(kinds):
        values = [row.payload if row.port == port else None for row in given_rows]
        columns[f"__payload{port}"] = pa.array(values, kind)
    return TaskColumns.of(pa.table(columns), len(kinds), "__origin")


def as_updates(said: UpdateColumns) -> list[Any]:
    columns = [values_of(said.keys), *map(values_of, said.values), values_of(said.timestamps)]
    return list(zip(said.orders.tolist(), *columns, values_of(said.headers), strict=True))


def state_of(store: MemoryStore) -> dict[bytes, Any]:
    return {name: data if name == b"clock" else state_value(data) for name, data in store.data.items()}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_columns_say_what_rows_say(name: str, key: str, data: st.DataObject) -> None:
    processor, kinds, old = CASES[name]
    by_row, by_column = MemoryStore(), MemoryStore()
    for batch in range(3):
        batch_rows = data.draw(rows(name, key, 100 * batch, 12 * batch))
        if not batch_rows:
            continue
        made = list(run_batch(processor, by_row, batch_rows))
        expected = [
            (order, update.key, *update.values, update.timestamp, update.headers)
            for order, update in (made if old is None else latest_only(made, old))
        ]
        columns = as_columns(batch_rows, name, key)
        assert columns.rows() == batch_rows
        state = CachedState(by_column)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "odradek.streams.processors.columnar.PAIRS_MAX", data.draw(st.sampled_from([1, 1 << 18]))
            )
            said = columnar(processor, columns, state, old, kinds)
        assert said is not None
        state.flush()
        assert as_updates(said) == expected
        assert said.origins is not None
        assert said.origins.to_pylist() == [{"offset": order[3]} for order, *_ in expected]
        assert state_of(by_column) == state_of(by_row)


def in_windows(
    processor: WindowProcessor, records: list[tuple[str, int]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The keys that are said of records (key, time), by row and in columns."""
    given_rows = [
        InputRow(0, {"k": key}, {"new": {"x": 1, "y": 1.0}, "old": None}, at, None, [at, 0, 0, place])
        for place, (key, at) in enumerate(records)
    ]
    updates = latest_only(run_batch(processor, MemoryStore(), given_rows), (1,))
    columns = as_columns(given_rows, "windows", "one")
    said = columnar(processor, columns, CachedState(MemoryStore()), (1,), (RESULT, RESULT))
    assert said is not None
    return [dict(update.key or {}) for _, update in updates], values_of(said.keys)


def test_many_windows_of_many_records_are_added_to_in_parts() -> None:
    lengths: list[int] = []

    class Measured(SqlFold):
        def add_groups(self, aggregates: list[Any], groups: ValueGroups) -> list[Any]:
            lengths.append(len(groups.values("x")))
            return super().add_groups(aggregates, groups)

    fold = Measured(
        (CalledFunction(function="count", arguments=("x",), constants=(), out="n", removable=False),)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("odradek.streams.processors.columnar.PAIRS_MAX", 1_000)
        by_row, by_column = in_windows(
            windows(500, 1, 0, fold), [("ab"[at % 2], 500 + at) for at in range(40)]
        )
    assert by_column == by_row
    assert 500 < max(lengths) <= 1_000


def test_windows_of_times_far_apart_are_not_taken_for_each_other() -> None:
    """Eight times 2^61 is zero in 64 bits."""
    records = [("a", 8), *((key, 0) for key in "bcdefgh"), ("i", 0), ("z", 1 << 61)]
    by_row, by_column = in_windows(windows(1, 1, 100), records)
    assert by_column == by_row
    assert len(by_row) == len(records)


@given(
    orders=st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 1), st.integers(0, 2), st.integers(0, 1 << 40)),
        min_size=1,
        unique_by=lambda order: order[1:],
    )
)
def test_columns_have_the_order_of_rows(orders: list[tuple[int, ...]]) -> None:
    given_rows = [InputRow(0, None, {"n": place}, 0, None, list(order)) for place, order in enumerate(orders)]
    expected = [(row.payload and row.payload["n"], row.order) for row in in_order(given_rows)]
    matrix = lists_of_numbers(pa.array(orders, pa.list_(pa.int64())))
    assert matrix is not None
    places, ordered = order_of(matrix)
    assert list(zip(places.tolist(), ordered.tolist(), strict=True)) == expected


@pytest.mark.parametrize("rows_of", [{"k": None}, None])
def test_what_does_not_fit_goes_row_by_row(rows_of: Any) -> None:
    """A function of the user's, updates that are all wanted, keys that are null."""
    row = InputRow(0, rows_of, {"new": {"x": 1, "y": 1.0}, "old": None}, 5, None, [5, 0, 0, 0])
    columns = as_columns([row], "aggregate", "one")
    processor, kinds, _ = CASES["aggregate"]
    assert columnar(processor, columns, CachedState(MemoryStore()), None, kinds) is None
    said = columnar(processor, columns, CachedState(MemoryStore()), (1,), kinds)
    assert (said is None) == (rows_of is None)


@pytest.mark.parametrize("x", [-1, 0])
def test_a_value_that_is_refused_or_ends_the_aggregate_sends_the_batch_row_by_row(x: int) -> None:
    def add(total: Any, value: Any) -> Any:
        if value["x"] < 0:
            raise ValueError("below zero")
        return value if value["x"] else None

    fold = PythonFold(
        start=None,
        add=add,
        subtract=None,
        merge=None,
        bare_key=None,
        bare_value=None,
        bare_result=None,
    )
    given_rows = [
        InputRow(0, {"k": "a"}, {"new": {"x": x, "y": 1.0}, "old": None}, 5, None, [5, 0, 0, place])
        for place, x in enumerate([1, 2, x, 3])
    ]
    store = MemoryStore()
    columns = as_columns(given_rows, "aggregate", "one")
    kinds = (ARGUMENTS, ARGUMENTS)
    assert columnar(AggregateProcessor(fold), columns, CachedState(store), (1,), kinds) is None
    assert not store.data


def counts_of(*arguments: str) -> SqlFold:
    """A fold that counts the values of each argument."""
    return SqlFold(
        tuple(
            CalledFunction(
                function="count", arguments=(name,), constants=(), out=f"n_{name}", removable=False
            )
            for name in arguments
        )
    )


COUNTED = pa.struct([("n_y", pa.int64())])


@pytest.mark.parametrize("is_windowed", [False, True])
def test_state_of_more_calls_than_the_program_has_is_refused_in_columns_as_it_is_by_rows(
    is_windowed: bool,
) -> None:
    def processor(fold: SqlFold) -> KeyedProcessor:
        return windows(10, 10, 0, fold) if is_windowed else AggregateProcessor(fold)

    batch = [InputRow(0, {"k": "a"}, {"new": {"x": 1, "y": None}, "old": None}, 5, None, [5, 0, 0, 0])]
    store = MemoryStore()
    list(run_batch(processor(counts_of("x", "y")), store, batch))
    columns, later = as_columns(batch, "aggregate", "one"), processor(counts_of("y"))
    assert columnar(later, columns, CachedState(store), (1,), (COUNTED, COUNTED)) is None
    with pytest.raises(ValueError, match="zip"):
        list(run_batch(later, store, batch))


@pytest.mark.parametrize(("time_us", "is_readable"), [(10**15, True), (10**18, False)])
def test_a_time_that_python_does_not_have_is_not_counted_in_columns(time_us: int, is_readable: bool) -> None:
    """Its record fails row by row, whatever the program does with the time."""
    batch = [InputRow(0, {"k": "a"}, {"new": {"x": 1, "y": None}, "old": None}, 5, None, [5, 0, 0, 0])]
    times = pa.array([time_us], pa.int64()).cast(pa.timestamp("us", "UTC"))
    payload = pa.StructArray.from_arrays(
        [pa.StructArray.from_arrays([times], ["y"]), pa.nulls(1, pa.int32())], ["new", "old"]
    )
    columns = replace(as_columns(batch, "aggregate", "one"), payloads=(payload,))
    processor = AggregateProcessor(counts_of("y"))
    updates = columnar(processor, columns, CachedState(MemoryStore()), (1,), (COUNTED, COUNTED))
    assert (updates is not None) == is_readable


def test_origins_are_found_by_source_partition_and_offset() -> None:
    given_rows = [InputRow(0, {"k": "a"}, None, 5, None, [5, 1, 0, offset]) for offset in (7, 9)]
    columns = as_columns(given_rows, "aggregate", "one")
    origins, kind = OriginColumn(columns), pa.struct([("offset", pa.int64())])
    assert origins.get((1, 0, 9)) == {"offset": 9}
    assert origins.get((1, 0, 8)) is None
    assert origins.take([(1, 0, 9), (0, 0, 9), (1, 0, 7)], kind).to_pylist() == [
        {"offset": 9},
        None,
        {"offset": 7},
    ]
    assert OriginColumn().take([(1, 0, 9)], kind).to_pylist() == [None]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], pa.int64()),
        ([1, None], pa.int64()),
        ([None, None], pa.string()),
        (
            [{"a": 1, "b": "x"}, None, {"a": None, "b": None}],
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
        ),
        (
            [{"a": 1, "b": "x", "c": [1, 2]}],
            pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.list_(pa.int8()))]),
        ),
        ([{"a": None}, {"a": {"b": 2.5}}], pa.struct([("a", pa.struct([("b", pa.float64())]))])),
        ([], pa.int64()),
    ],
)
def test_values_are_those_of_arrow(values: list[Any], kind: pa.DataType) -> None:
    assert values_of(pa.array(values, kind)) == values
    assert values_of(pa.chunked_array([pa.array(values, kind)] * 2)) == values * 2
