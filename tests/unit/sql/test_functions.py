"""Which function a call means: overloads, widening, lambdas, aggregates, what is refused."""

from __future__ import annotations

import pytest

from odradek.sql.functions import FUNCTIONS
from odradek.values.errors import SqlError
from odradek.values.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    UNIT,
    SqlType,
    array_of,
    decimal_of,
    map_of,
    parse_type,
)

LAMBDA = SqlType(kind="LAMBDA")


@pytest.mark.parametrize(
    ("name", "kinds", "returns"),
    [
        ("abs", [INTEGER], "INTEGER"),
        ("ABS", [decimal_of(4, 2)], "DECIMAL(4, 2)"),
        ("ROUND", [DOUBLE], "BIGINT"),
        ("ROUND", [decimal_of(5, 2)], "DECIMAL(3, 0)"),
        ("ROUND", [decimal_of(5, 2), INTEGER], "DECIMAL(5, 2)"),
        ("SQRT", [INTEGER], "DOUBLE"),
        ("LEN", [BYTES], "INTEGER"),
        ("CONCAT", [STRING, STRING, STRING], "STRING"),
        ("CONCAT", [BYTES], "BYTES"),
        ("COALESCE", [NULL, BIGINT, INTEGER], "BIGINT"),
        ("ARRAY_UNION", [array_of(INTEGER), array_of(BIGINT)], "ARRAY<BIGINT>"),
        ("AS_MAP", [array_of(STRING), array_of(DATE)], "MAP<STRING, DATE>"),
        ("ENTRIES", [map_of(STRING, INTEGER), BOOLEAN], "ARRAY<STRUCT<`K` STRING, `V` INTEGER>>"),
        ("DATEADD", [UNIT, INTEGER, DATE], "DATE"),
        ("UNIX_DATE", [], "INTEGER"),
        ("NULLIF", [STRING, NULL], "STRING"),
    ],
)
def test_the_result_has_the_type_of_the_overload(name: str, kinds: list[SqlType], returns: str) -> None:
    assert str(FUNCTIONS.scalar(name, kinds).returns) == returns


def test_numbers_widen_to_what_the_overload_takes() -> None:
    function = FUNCTIONS.scalar("COALESCE", [INTEGER, BIGINT])
    assert function.spark(["a", "b"]) == "coalesce(cast(a as BIGINT), b)"


@pytest.mark.parametrize(
    ("name", "kinds", "message"),
    [
        ("ABSS", [INTEGER], "Did you mean ABS"),
        ("ABS", [STRING], r"does not accept parameters \(STRING\).*ABS\(INTEGER value\)"),
        ("LPAD", [STRING], "LPAD"),
        ("CONCAT", [STRING, BYTES], "does not accept"),
        ("ARRAY_MAX", [array_of(array_of(INTEGER))], "does not accept"),
        ("DATEADD", [STRING, INTEGER, DATE], "does not accept"),
        ("SUM", [INTEGER], "aggregate function, and a scalar one is needed here"),
    ],
)
def test_a_call_that_fits_nothing_is_refused(name: str, kinds: list[SqlType], message: str) -> None:
    with pytest.raises(SqlError, match=message):
        FUNCTIONS.scalar(name, kinds)


def test_a_lambda_gets_the_types_of_the_collection() -> None:
    pairs = map_of(STRING, BIGINT)
    assert FUNCTIONS.lambda_inputs("TRANSFORM", [pairs, LAMBDA, LAMBDA]) == [
        None,
        (STRING, BIGINT),
        (STRING, BIGINT),
    ]
    assert FUNCTIONS.lambda_inputs("REDUCE", [array_of(INTEGER), DOUBLE, LAMBDA]) == [
        None,
        None,
        (DOUBLE, INTEGER),
    ]


@pytest.mark.parametrize(
    ("name", "kinds", "constants", "rows", "expected"),
    [
        ("COUNT", [], [], [(), ()], 2),
        ("COUNT", [STRING], [None], [("a",), (None,)], 1),
        ("SUM", [INTEGER], [None], [(2**31 - 1,), (1,)], -(2**31)),
        ("SUM", [INTEGER], [None], [(None,)], 0),
        ("AVG", [INTEGER], [None], [(1,), (2,), (None,)], 1.5),
        ("AVG", [INTEGER], [None], [], 0.0),
        ("MIN", [STRING], [None], [("b",), ("a",), (None,)], "a"),
        ("MAX", [INTEGER], [None], [(None,)], None),
        ("COLLECT_LIST", [INTEGER], [None], [(1,), (None,), (1,)], [1, None, 1]),
        ("COLLECT_SET", [INTEGER], [None], [(1,), (None,), (1,)], [1, None]),
        ("COUNT_DISTINCT", [INTEGER], [None], [(1,), (None,), (1,), (2,)], 2),
        ("EARLIEST_BY_OFFSET", [INTEGER], [None], [(None,), (13,), (14,)], 13),
        ("EARLIEST_BY_OFFSET", [INTEGER, BOOLEAN], [None, False], [(None, False), (13, False)], None),
        ("EARLIEST_BY_OFFSET", [INTEGER, INTEGER], [None, 2], [(1, 2), (None, 2), (3, 2), (4, 2)], [1, 3]),
        ("LATEST_BY_OFFSET", [INTEGER], [None], [(13,), (None,)], 13),
        ("LATEST_BY_OFFSET", [INTEGER, BOOLEAN], [None, False], [(13, False), (None, False)], None),
        (
            "LATEST_BY_OFFSET",
            [INTEGER, INTEGER, BOOLEAN],
            [None, 2, False],
            [(1, 2, False), (2, 2, False), (None, 2, False)],
            [2, None],
        ),
        ("HISTOGRAM", [STRING], [None], [("a",), ("b",), ("a",)], {"a": 2, "b": 1}),
        ("TOPK", [INTEGER, INTEGER], [None, 2], [(1, 2), (3, 2), (3, 2), (None, 2)], [3, 3]),
        ("TOPKDISTINCT", [INTEGER, INTEGER], [None, 2], [(1, 2), (3, 2), (3, 2)], [3, 1]),
        (
            "TOPK",
            [INTEGER, STRING, INTEGER],
            [None, None, 1],
            [(1, "a", 1), (3, "b", 1)],
            [{"sort_col": 3, "col0": "b"}],
        ),
        ("STDDEV_SAMPLE", [INTEGER], [None], [(2,), (4,)], 2**0.5),
        ("STDDEV_SAMP", [INTEGER], [None], [(2,)], 0.0),
        ("CORRELATION", [DOUBLE, DOUBLE], [None, None], [(1.0, 2.0), (2.0, 4.0), (None, 1.0)], 1.0),
        ("ATTR", [STRING], [None], [("a",), ("a",)], "a"),
        ("ATTR", [STRING], [None], [("a",), (None,)], None),
        ("SUM_LIST", [array_of(INTEGER)], [None], [([1, None, 2],), (None,)], 3),
    ],
)
def test_an_aggregate_adds_row_by_row(name, kinds, constants, rows, expected) -> None:
    function = FUNCTIONS.aggregate(name, kinds, constants)
    state = function.start()
    for row in rows:
        state = function.add(state, *row)
    value = function.result(state)
    assert value == pytest.approx(expected) if isinstance(expected, float) else value == expected


def test_a_set_is_collected_by_columns_as_by_rows() -> None:
    nan = float("nan")
    for kind, column in (
        (DOUBLE, [1.0, nan, None, float("nan"), 0.0, -0.0, 1.0]),
        (array_of(DOUBLE), [[1.0, nan], [1.0, float("nan")], None, [], [1.0], [None]]),
        (STRING, [f"{number % 3}" for number in range(9)]),
    ):
        function = FUNCTIONS.aggregate("COLLECT_SET", [kind], [None])
        by_row = function.start()
        for value in column:
            by_row = function.add(by_row, value)
        for cut in range(len(column)):
            by_column = function.add_all(function.start(), cut, [column[:cut]])
            by_column = function.add_all(by_column, len(column) - cut, [column[cut:]])
            assert repr(by_column) == repr(by_row)


def test_a_column_of_a_set_compares_each_value_with_its_equal_alone() -> None:
    class Compared(str):
        __slots__ = ()
        count = 0

        def __eq__(self, other: object) -> bool:
            Compared.count += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    function = FUNCTIONS.aggregate("COLLECT_SET", [STRING], [None])
    column = [Compared(number % 500) for number in range(1_000)]
    assert len(function.add_all(function.start(), len(column), [column])) == 500
    assert Compared.count < 1_000


ROWS = [3, 1, None, 3, 2, 5, 1]


@pytest.mark.parametrize(
    "name", ["COUNT", "SUM", "AVG", "STDDEV_SAMPLE", "ATTR", "COLLECT_LIST", "HISTOGRAM"]
)
@pytest.mark.parametrize("removed", range(len(ROWS)))
def test_what_is_taken_back_was_never_there(name: str, removed: int) -> None:
    """The sum of a table whose row goes is that of the others. The order of COLLECT_LIST is another matter."""
    rows = [None if row is None else str(row) for row in ROWS] if name == "HISTOGRAM" else ROWS
    function = FUNCTIONS.aggregate(name, [STRING if name == "HISTOGRAM" else INTEGER], [None])
    assert function.undo is not None
    all_of_them, without = function.start(), function.start()
    for place, row in enumerate(rows):
        all_of_them = function.add(all_of_them, row)
        if place != removed:
            without = function.add(without, row)
    left, right = function.result(function.undo(all_of_them, rows[removed])), function.result(without)
    if name == "COLLECT_LIST":
        left, right = sorted(left, key=repr), sorted(right, key=repr)
    assert left == pytest.approx(right)


@pytest.mark.parametrize(
    ("name", "kinds", "constants"),
    [
        ("SUM", [INTEGER], []),
        ("AVG", [DOUBLE], []),
        ("MIN", [INTEGER], []),
        ("COLLECT_LIST", [INTEGER], []),
        ("COLLECT_SET", [INTEGER], []),
        ("COUNT_DISTINCT", [INTEGER], []),
        ("TOPK", [INTEGER, INTEGER], [None, 2]),
        ("TOPKDISTINCT", [INTEGER, INTEGER], [None, 2]),
        ("STDDEV_SAMPLE", [INTEGER], []),
        ("ATTR", [INTEGER], []),
        ("LATEST_BY_OFFSET", [INTEGER], []),
        ("EARLIEST_BY_OFFSET", [INTEGER, INTEGER], [None, 3]),
    ],
)
@pytest.mark.parametrize("cut", range(len(ROWS) + 1))
def test_sessions_that_merge_have_the_rows_of_both(name, kinds, constants, cut: int) -> None:
    function = FUNCTIONS.aggregate(name, kinds, constants)

    def added(rows: list[int | None]):
        state = function.start()
        for row in rows:
            state = function.add(state, row, *constants[1:])
        return state

    merged = function.merge(added(ROWS[:cut]), added(ROWS[cut:]))
    assert function.result(merged) == pytest.approx(function.result(added(ROWS)))


@pytest.mark.parametrize("name", ["MIN", "MAX", "COLLECT_SET", "COUNT_DISTINCT", "LATEST_BY_OFFSET"])
def test_an_aggregate_that_cannot_take_back_is_not_for_tables(name: str) -> None:
    assert FUNCTIONS.aggregate(name, [INTEGER], [None]).undo is None
    with pytest.raises(SqlError, match="cannot be applied to a table source"):
        FUNCTIONS.aggregate(name, [INTEGER], [None], of_table=True)


@pytest.mark.parametrize(
    ("kinds", "constants", "message"),
    [
        ([INTEGER, INTEGER], [None, None], "must be a constant"),
        ([INTEGER, INTEGER], [None, 0], "1 or more"),
        ([array_of(INTEGER), INTEGER], [None, 1], "does not accept"),
    ],
)
def test_the_number_of_topk_is_a_constant(kinds, constants, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        FUNCTIONS.aggregate("TOPK", kinds, constants)


def test_a_table_function_gives_rows_of_the_elements_type() -> None:
    function = FUNCTIONS.table("EXPLODE", [parse_type("ARRAY<STRUCT<A INT>>")])
    assert str(function.returns) == "STRUCT<`A` INTEGER>"
    assert function.spark(["a"]).startswith("coalesce(a, cast(array() as ")


def test_every_function_is_listed_and_described() -> None:
    lines = FUNCTIONS.listed()
    assert len(lines) > 140
    for line in lines:
        described = FUNCTIONS.describe(line.name)
        assert described.description.endswith(".")
        assert described.variations
    assert FUNCTIONS.describe("lpad").variations[0].signature == (
        "LPAD(STRING text, INTEGER length, STRING padding)"
    )


def test_a_mask_is_one_character_that_is_written_down() -> None:
    function = FUNCTIONS.scalar("MASK", [STRING] * 5)
    assert "mask(a, '*', NULL, '1', NULL)" in function.spark(["a", "'*'", "NULL", "'1'", "null"])
    with pytest.raises(SqlError, match="single character"):
        function.spark(["a", "'**'", "'x'", "'n'", "'-'"])
    with pytest.raises(SqlError, match="written"):
        function.spark(["a", "b", "'x'", "'n'", "'-'"])
