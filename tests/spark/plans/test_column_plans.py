"""Projections that a sink computes over packed rows: the same rows as Spark's, and nothing that Arrow computes otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from odradek.spark.engine.catalyst import simplified
from odradek.spark.engine.column_plans import column_plan
from odradek.spark.writing.packed_rows import PackedRows
from odradek.streams.translation.outputs import packed_output
from odradek.streams.translation.packing import PACKED_TYPE, ROWS, RowUnpacker, packed, unpacked_rows

_DDL: Final = (
    "l STRUCT<v: STRING, n: BIGINT>, r STRUCT<v: STRING>, s STRING, x BINARY, b BOOLEAN, t TINYINT, i INT, n BIGINT,"
    " d DOUBLE, at BIGINT, h ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_TEXTS: Final = (None, "", "a", "é", "\U0001f600", "a\x00b", "yes", "ẞ" * 40, '"')
_NUMBERS: Final = (None, 0, 1, -1, 7, 127, -128)
_LONGS: Final = (*_NUMBERS, (1 << 63) - 1, -(1 << 63))
_ROW_COUNT: Final = 400

_COMPUTED: Final = (
    "concat(l.v, ':', r.v)",
    "concat(s, '@', n)",
    "concat(x, cast(s AS BINARY))",
    "concat(s, b, t, i, n)",
    "if(l IS NOT NULL AND r IS NOT NULL, struct(concat(l.v, r.v) AS w), NULL).w",
    "CASE WHEN b THEN 'yes' WHEN n > 1 THEN s WHEN r.v IS NULL THEN concat(s, s) END",
    "CASE WHEN b THEN struct(s AS w) WHEN NOT b THEN struct(l.v AS w) END.w",
    "if(b OR n > 0, 1, 2)",
    "if(b AND t < n, s, l.v)",
    "coalesce(l.v, r.v, s, '')",
    "coalesce(x, cast('' AS BINARY))",
    "b AND (s > 'a' OR n <= t)",
    "NOT (x = cast('a' AS BINARY)) OR b",
    "l.n >= i",
    "s <= l.v",
    "struct(struct(s AS deep, n AS m) AS inner).inner.deep",
    "CASE WHEN b THEN struct(struct(s AS deep) AS inner) END.inner.deep",
    "isnull(CASE WHEN b THEN struct(s AS w) END)",
    "isnull(struct(s))",
    "cast(t AS BIGINT)",
    "cast(NULL AS STRING)",
    "coalesce(h, array())",
    "h",
    "timestamp_millis(at)",
    "'a text that is not ASCII: ж'",
    "-9223372036854775807",
    "true",
)
_LEFT_TO_SPARK: Final = (
    "upper(s)",
    "cast(d AS STRING)",
    "d > 1",
    "n + 1",
    "cast(n AS INT)",
    "cast(x AS STRING)",
    "cast(s AS BIGINT)",
    "s COLLATE UNICODE_CI = 'A'",
    "cast(s AS STRING COLLATE UTF8_LCASE) = cast('A' AS STRING COLLATE UTF8_LCASE)",
    "CASE WHEN b THEN 'x' COLLATE UTF8_LCASE ELSE 'y' COLLATE UTF8_LCASE END = if(b, 'X', 'Y') COLLATE UTF8_LCASE",
    "spark_partition_id() >= 1",
    "spark_partition_id() >= n",
    "CASE WHEN at < 1 THEN timestamp_millis(at) END",
    "if(b, struct(timestamp_millis(at) AS w), struct(timestamp_millis(n) AS w)).w",
    "coalesce(timestamp_millis(at), timestamp_millis(n))",
    "concat(array(n), array(t))",
    "rand() > 0.5",
    "struct(s)",
    "l",
    "to_json(l)",
    "current_timestamp()",
    "l = struct(s AS v, n AS n)",
    "h = array(struct(s AS key, x AS value))",
    "cast(NULL AS ARRAY<INT>)",
    "if(b, cast(NULL AS MAP<STRING, INT>), NULL) IS NULL",
)
"""What Arrow computes otherwise, or not at all: overflow, texts of numbers, collations; whole structs, arrays and maps. A
branch that is not chosen raises no error in Spark, and Arrow computes all branches.
"""


def _schema() -> StructType:
    schema = StructType.fromDDL(_DDL)
    assert isinstance(schema, StructType)
    return schema


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> pa.Table:
    random = Random(4)

    def row() -> dict[str, Any]:
        def any_of(values: Sequence[Any]) -> Any:
            return random.choice(values)

        text, header = any_of(_TEXTS), [{"key": "k", "value": any_of((None, b"", b"\xff"))}]
        return {
            "l": any_of([None, {"v": any_of(_TEXTS), "n": any_of(_LONGS)}]),
            "r": any_of([None, {"v": any_of(_TEXTS)}]),
            "s": any_of(_TEXTS),
            "x": any_of((None, b"", b"a", b"\xff\x00")) if text is None else text.encode(),
            "b": any_of([None, True, False]),
            "t": any_of(_NUMBERS),
            "i": any_of([*_NUMBERS, (1 << 31) - 1, -(1 << 31)]),
            "n": any_of(_LONGS),
            "d": any_of([None, 0.0, float("nan"), 1e300]),
            "at": any_of([0, -1, 1_700_000_000_123]),
            "h": any_of([None, [], header]),
        }

    return pa.Table.from_pylist(
        [row() for _ in range(_ROW_COUNT)], schema=to_arrow_schema(_schema(), timezone="UTC")
    )


def _unpacked(spark: SparkSession, rows: pa.Table) -> DataFrame:
    halves = [[packed(rows.slice(0, 150))], [packed(rows.slice(150))]]
    return unpacked_rows(spark.createDataFrame(halves, PACKED_TYPE).coalesce(1), _schema())


def _computed(plan: DataFrame) -> pa.Table:
    """Returns what a sink makes of the rows of a plan that ends below."""
    below, options = packed_output(plan)
    assert below.columns == [ROWS]
    computed = PackedRows.of(options["packedRows"])
    batches = list(computed.rows(below.toArrow().to_batches()))
    return pa.Table.from_batches(batches, schema=computed.computed)


def test_a_sink_computes_what_spark_does(spark: SparkSession, rows: pa.Table) -> None:
    columns = [sf.expr(text).alias(f"c{number}") for number, text in enumerate(_COMPUTED)]
    plan = _unpacked(spark, rows).select(*columns)
    expected = plan.toArrow()
    for computed in (_computed(plan), _computed(simplified(plan))):
        for number, text in enumerate(_COMPUTED):
            column = computed[f"c{number}"].to_pylist()
            assert column == expected[f"c{number}"].to_pylist(), text


@pytest.mark.parametrize(
    "condition", ["n > 0 OR s = 'a'", "true", "cast(NULL AS BOOLEAN)", "NOT b AND n IS NOT NULL"]
)
def test_filters_and_projections_in_turn_keep_the_same_rows(
    condition: str, spark: SparkSession, rows: pa.Table
) -> None:
    plan = (
        _unpacked(spark, rows)
        .where("t IS NOT NULL")
        .select("*", sf.expr("concat(s, s)").alias("twice"))
        .where(condition)
        .select(sf.expr("concat(twice, n)").alias("o"), "n")
        .where("n IS NULL OR n <> 7")
    )
    assert _computed(plan).to_pylist() == plan.toArrow().to_pylist()


def test_expressions_that_are_put_together_at_random_are_computed_as_spark_does(
    spark: SparkSession, rows: pa.Table
) -> None:
    random = Random(5)

    def text(depth: int) -> str:
        leaves = ["s", "l.v", "r.v", "'x'", "cast(n AS STRING)", "cast(b AS STRING)"]
        if depth == 0:
            return random.choice(leaves)
        inner = [text(depth - 1) for _ in range(3)]
        return random.choice(
            [
                f"concat({inner[0]}, {inner[1]})",
                f"coalesce({inner[0]}, {inner[1]})",
                f"CASE WHEN {flag(depth - 1)} THEN {inner[0]} WHEN {flag(depth - 1)} THEN {inner[1]} END",
                f"if({flag(depth - 1)}, struct({inner[0]} AS w), struct({inner[1]} AS w)).w",
                f"CASE WHEN {flag(depth - 1)} THEN struct({inner[2]} AS w) END.w",
            ]
        )

    def flag(depth: int) -> str:
        if depth <= 0:
            return random.choice(["b", "n > t", "l IS NULL", "true", "cast(NULL AS BOOLEAN)", "s = 'a'"])
        return random.choice(
            [
                f"({flag(depth - 1)} AND {flag(depth - 1)})",
                f"({flag(depth - 1)} OR {flag(depth - 1)})",
                f"NOT {flag(depth - 1)}",
                f"({text(depth - 1)} < {text(depth - 1)})",
                f"isnull({text(depth - 1)})",
            ]
        )

    columns: list[Column] = [sf.expr(text(3)).alias(f"c{number}") for number in range(40)]
    plan = _unpacked(spark, rows).select(*columns)
    assert _computed(simplified(plan)).to_pylist() == plan.toArrow().to_pylist()


def test_what_arrow_computes_otherwise_is_left_to_spark(spark: SparkSession, rows: pa.Table) -> None:
    frame = _unpacked(spark, rows)
    assert column_plan(frame.select("n", "s"), RowUnpacker.__name__) is not None
    for expression in _LEFT_TO_SPARK:
        plan = frame.select("n", sf.expr(expression).alias("o"))
        for same in (plan, simplified(plan)):
            assert column_plan(same, RowUnpacker.__name__) is None, expression
            assert packed_output(same) == (same, {})


def test_columns_that_compare_by_a_collation_are_left_to_spark(spark: SparkSession, rows: pa.Table) -> None:
    for ddl in ("s STRING COLLATE UTF8_LCASE", "l STRUCT<s: STRING COLLATE UTF8_LCASE>"):
        schema = StructType.fromDDL(ddl)
        assert isinstance(schema, StructType)
        frame = unpacked_rows(spark.createDataFrame([[b""]], PACKED_TYPE), schema)
        plan = frame.selectExpr("s = 'A' AS o" if schema.names == ["s"] else "l.s = 'A' AS o")
        assert packed_output(simplified(plan))[1] == {}


def test_a_filter_may_leave_no_row_of_a_pack(spark: SparkSession, rows: pa.Table) -> None:
    none = "cast(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>)"
    plan = _unpacked(spark, rows).where("s = 'none has it'").select(sf.expr(none).alias("o"), "s", "h")
    assert _computed(plan).to_pylist() == plan.toArrow().to_pylist() == []


def test_other_nodes_and_functions_are_left_to_spark(spark: SparkSession, rows: pa.Table) -> None:
    frame = _unpacked(spark, rows)
    for plan in (
        frame.select("n").distinct(),
        frame.select("n").limit(3),
        frame.select(sf.explode("h").alias("o")),
        frame.select("n").mapInArrow(lambda batches: batches, "n BIGINT").select("n"),
        spark.range(3).select("id"),
    ):
        assert packed_output(plan) == (plan, {})


def test_a_program_with_more_expressions_than_people_write_is_left_to_spark(
    spark: SparkSession, rows: pa.Table
) -> None:
    columns = [sf.expr(f"concat(s, '{number}')").alias(f"c{number}") for number in range(3_000)]
    plan = _unpacked(spark, rows).select(*columns)
    assert packed_output(plan) == (plan, {})
