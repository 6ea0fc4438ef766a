"""Calls with OVER, as `cases/over.cases` has them: as Python computes them for pull queries, and as Spark does."""

from __future__ import annotations

import importlib.util
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.spark.engine.java import find_java
from odradek.sql.language import parse_one
from odradek.sql.language.queries import SelectExpression
from odradek.sql.language.statements import SelectStatement
from odradek.sql.queries.expressions import LocalScope
from odradek.sql.queries.frames import check_visits
from odradek.sql.queries.over import overs_in, scope_with
from odradek.values.errors import SqlError
from odradek.values.types import parse_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {
    "K": "INT",
    "G": "STRING",
    "V": "BIGINT",
    "D": "DOUBLE",
    "C": "DECIMAL(6, 2)",
    "S": "STRING",
}
ROWS: list[tuple[Any, ...]] = [
    (1, "x", 10, 1.5, Decimal("1.25"), "b"),
    (2, "x", 20, -2.0, Decimal("2.50"), "c"),
    (3, "x", 20, 4.0, None, "b"),
    (4, "y", None, None, Decimal("7.00"), "d"),
    (5, "y", 30, 0.5, None, "b"),
    (6, None, 10, 2.0, None, "a"),
]
has_spark = importlib.util.find_spec("pyspark") is not None and find_java().problem is None


def _read(line: str) -> tuple[str, str, list[Any]]:
    written, _, expected = line.partition(" ==> ")
    kind, _, values = expected.partition(" [")
    values_read = json.loads(f"[{values}")
    if kind.startswith("DECIMAL"):
        values_read = [None if value is None else Decimal(value) for value in values_read]
    return written, kind, values_read


CASES = [
    _read(line)
    for line in (Path(__file__).parent / "cases" / "over.cases").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
SCOPE = LocalScope({name: parse_type(kind) for name, kind in COLUMNS.items()})


def computed(written: str) -> tuple[str, list[Any]]:
    """The type, and the values in the order of K."""
    statement = parse_one(f"SELECT {written} AS X FROM T;")
    assert isinstance(statement, SelectStatement)
    (selected,) = statement.query.select
    assert isinstance(selected, SelectExpression)
    tree, calls = overs_in(selected.expression, SCOPE, 0)
    value = scope_with(SCOPE, calls).compiled(tree)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in reversed(ROWS)]
    for call in calls:
        call.fill(rows)
    return str(value.type), [value.of(row) for row in sorted(rows, key=lambda row: row["K"])]


@pytest.mark.parametrize(("written", "kind", "values"), CASES, ids=[written for written, _, _ in CASES])
def test_a_call_with_over(written: str, kind: str, values: list[Any]) -> None:
    made, of_rows = computed(written)
    assert made.replace(" ", "") == kind
    assert of_rows == values


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("ROW_NUMBER() OVER ()", "ROW_NUMBER needs an order"),
        ("UCASE(S) OVER (ORDER BY K)", "UCASE has no OVER"),
        ("LAG(V, K) OVER (ORDER BY K)", "the second argument is a whole number"),
        ("LAG(V, 1, 'x') OVER (ORDER BY K)", "the third argument must be a BIGINT"),
        ("SUM(S) OVER ()", "SUM OVER takes no STRING"),
        ("SUM(V, K) OVER ()", "SUM takes 1 to 1 arguments"),
        ("ROW_NUMBER() OVER (ORDER BY K ROWS 1 PRECEDING)", "ROW_NUMBER has no frame"),
        ("LAG(V) OVER (ORDER BY K RANGE CURRENT ROW)", "LAG has no frame"),
        ("SUM(V) OVER (ROWS 1 PRECEDING)", "a frame needs an order"),
        ("SUM(V) OVER (ORDER BY K ROWS BETWEEN CURRENT ROW AND 1 PRECEDING)", "ends before it begins"),
        ("SUM(V) OVER (ORDER BY K ROWS UNBOUNDED FOLLOWING)", "ends before it begins"),
        (
            "SUM(V) OVER (ORDER BY K ROWS BETWEEN 1 PRECEDING AND UNBOUNDED PRECEDING)",
            "ends before it begins",
        ),
        ("SUM(V) OVER (ORDER BY K ROWS 1.5 PRECEDING)", "the distance 1.5 of a frame is a whole number here"),
        (
            "SUM(V) OVER (ORDER BY V RANGE 1.5 PRECEDING)",
            "the distance 1.5 of a frame is a whole number here",
        ),
        ("SUM(V) OVER (ORDER BY S RANGE 1 PRECEDING)", "RANGE with a distance needs ORDER BY of one number"),
        (
            "SUM(V) OVER (ORDER BY K, V RANGE 1 PRECEDING)",
            "RANGE with a distance needs ORDER BY of one number",
        ),
        ("SUM(V) OVER (ORDER BY K ROWS V PRECEDING)", "a bound is CURRENT ROW"),
        ("SUM(V) OVER (ORDER BY K ROWS 1)", "needs PRECEDING or FOLLOWING"),
        ("SUM(V) OVER (ORDER BY K ROWS BETWEEN 1 PRECEDING)", "BETWEEN of a frame needs AND"),
        ("SUM(V) OVER (ORDER BY K GROUPS 1 PRECEDING)", "a frame of ROWS or RANGE"),
        ("SUM(V) OVER (ORDER BY K NULLS)", "NULLS needs FIRST or LAST"),
        ("SUM(ABSENT) OVER ()", "ABSENT"),
    ],
)
def test_a_wrong_call_with_over_is_refused(written: str, says: str) -> None:
    with pytest.raises(SqlError) as refused:
        computed(written)
    assert says in refused.value.text(written)


WIDE_COLUMNS = {
    "K": "INT",
    "D": "DOUBLE",
    "W": "DECIMAL(38, 4)",
    "L": "ARRAY<DOUBLE>",
    "M": "MAP<STRING, INT>",
}
LONG, LONGER = "12345678901234567890123456789012.3456", "12345678901234567890123456789012.3457"


def filled(written: str, rows: list[tuple[Any, ...]]) -> list[Any]:
    """The values of a call in the order of K, over rows with the WIDE_COLUMNS."""
    statement = parse_one(f"SELECT {written} AS X FROM T;")
    assert isinstance(statement, SelectStatement)
    (selected,) = statement.query.select
    assert isinstance(selected, SelectExpression)
    scope = LocalScope({name: parse_type(kind) for name, kind in WIDE_COLUMNS.items()})
    tree, calls = overs_in(selected.expression, scope, 0)
    value = scope_with(scope, calls).compiled(tree)
    held = [dict(zip(WIDE_COLUMNS, row, strict=True)) for row in rows]
    for call in calls:
        call.fill(held)
    return [value.of(row) for row in sorted(held, key=lambda row: int(row["K"]))]


def _with(column: str, *values: Any) -> list[tuple[Any, ...]]:
    at = list(WIDE_COLUMNS).index(column)
    return [
        tuple(number if place == 0 else value if place == at else None for place in range(len(WIDE_COLUMNS)))
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("written", "rows", "expected"),
    [
        ("MIN(D) OVER ()", _with("D", float("nan"), 1.0), [1.0, 1.0]),
        ("COUNT(*) OVER (PARTITION BY D)", _with("D", float("nan"), float("nan"), -0.0, 0.0), [2, 2, 2, 2]),
        (
            "RANK() OVER (ORDER BY L)",
            _with("L", [1.0, None], [1.0], None, [float("nan")], []),
            [4, 3, 1, 5, 2],
        ),
        (
            "COUNT(*) OVER (PARTITION BY L)",
            _with("L", [0.0], [-0.0], [float("nan")], [float("nan")]),
            [2] * 4,
        ),
        (
            "SUM(W) OVER (ORDER BY K)",
            _with("W", Decimal(LONG), Decimal("0.0001"), Decimal("9" * 34)),
            [Decimal(LONG), Decimal(LONGER), None],
        ),
        (
            "COUNT(*) OVER (ORDER BY W DESC RANGE 0.0001 PRECEDING)",
            _with("W", Decimal(LONG), Decimal(LONGER), Decimal("12345678901234567890123456789012.3459")),
            [2, 1, 1],
        ),
    ],
)
def test_values_at_the_limits_of_their_types(
    written: str, rows: list[tuple[Any, ...]], expected: list[Any]
) -> None:
    assert filled(written, rows) == expected


@pytest.mark.parametrize("clause", ["PARTITION BY M", "ORDER BY M"])
def test_a_map_has_no_order(clause: str) -> None:
    with pytest.raises(SqlError, match=r"takes no .* BY of MAP<STRING, INTEGER>"):
        filled(f"COUNT(*) OVER ({clause})", [])


def test_frames_that_are_too_many_rows_together_are_refused() -> None:
    places = range(20_000)
    check_visits([(0, place + 1) for place in places], None)
    check_visits([(max(0, place - 99), place + 1) for place in places], None)
    with pytest.raises(SqlError, match="199990000 rows together"):
        check_visits([(place, 20_000) for place in places], None)


@pytest.mark.spark
@pytest.mark.skipif(not has_spark, reason="PySpark or Java is absent")
def test_spark_says_the_same(odradek_spark: SparkSession) -> None:
    ddl = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    frame = odradek_spark.createDataFrame(ROWS, ddl)
    columns = [f"{written} AS r{number}" for number, (written, _, _) in enumerate(CASES)]
    rows = frame.selectExpr("K", *columns).orderBy("K").collect()
    said = {written: [row[number + 1] for row in rows] for number, (written, _, _) in enumerate(CASES)}
    for written, kind, _ in CASES:
        if kind == "BOOLEAN":  # a comparison with null is false for ksqlDB, and unknown for Spark
            said[written] = [value is True for value in said[written]]
    assert said == {written: values for written, _, values in CASES}
