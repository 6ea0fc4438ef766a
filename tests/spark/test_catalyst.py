"""Which columns cannot raise, and plans that are simplified before a query starts: Spark itself is the judge of both."""

from __future__ import annotations

import io
import random
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from odradek.spark.engine.catalyst import cannot_raise, simplified

_ANSI: Final = "spark.sql.ansi.enabled"
_COLUMNS: Final = (
    "l BIGINT, m BIGINT, i INT, t TINYINT, d DOUBLE, s STRING, x BINARY, b BOOLEAN, r STRUCT<v: BIGINT>"
)
_LARGEST: Final = (1 << 63) - 1
_ROWS: Final[list[tuple[Any, ...]]] = [
    (None, None, None, None, None, None, None, None, None),
    (_LARGEST, 1, (1 << 31) - 1, 127, float("inf"), "", b"", True, (None,)),
    (-_LARGEST - 1, -1, -(1 << 31), -128, float("nan"), "é" * 50, b"\xff", False, (_LARGEST,)),
    (0, 0, 0, 0, -0.0, "not a number", b"{", None, (0,)),
]
_NUMBERS: Final = ("l", "m", "i", "t", "d", "r.v", "3", "9223372036854775807")
_VALUES: Final = (*_NUMBERS, "s", "x", "b", "r", "'a'", "null")
_RAISING: Final = (
    "raise_error(s)",
    "if(b, raise_error('no'), l)",
    "coalesce(l, 1 / cast(assert_true(b) as int))",
    "l + cast(s as bigint)",
    "make_date(i, 1, 1)",
    "to_number(s, '999')",
    "element_at(array(l), 0)",
    "from_json(s, 'v bigint', map('mode', 'FAILFAST')).v",
    "make_dt_interval(0) + make_dt_interval(l)",
)


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(_ROWS, _COLUMNS)


@pytest.fixture(params=["true", "false"])
def ansi(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    before = spark.conf.get(_ANSI) or ""
    spark.conf.set(_ANSI, request.param)
    yield request.param
    spark.conf.set(_ANSI, before)


def _expression(chance: random.Random, depth: int) -> str:
    """An expression of any type: of what is harmless, and of what raises for some rows."""
    if depth == 0:
        return chance.choice(_VALUES)
    first, second = (_expression(chance, depth - 1) for _ in range(2))
    number, other = chance.choices(_NUMBERS, k=2)
    return chance.choice(
        (
            f"if({first} <=> {second}, {number}, {other})",
            f"coalesce({number}, {other})",
            f"({number} {chance.choice('+-*')} {other})",
            f"({first} is null or not {second} is null)",
            f"case when {number} < {other} then {first} end",
            f"({number} in ({other}, 7))",
            f"struct({first} as v).v",
            f"cast({number} as string)",
            f"cast({first} as double)",
            f"({number} / {other})",
        )
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_column_that_is_said_not_to_raise_raises_for_no_row(seed: int, ansi: str, rows: DataFrame) -> None:
    chance = random.Random(seed)
    harmless: list[Any] = []
    checked = 0
    while len(harmless) < 40:
        column = sf.expr(_expression(chance, chance.choice((1, 2))))
        try:
            rows.select(column)
        except PySparkException:
            continue  # its types do not fit
        checked += 1
        if cannot_raise([column], rows):
            harmless.append(column.alias(f"c{len(harmless)}"))
    assert len(harmless) < checked
    assert len(rows.select(*harmless).collect()) == len(_ROWS)


@pytest.mark.parametrize("text", _RAISING)
def test_a_column_that_may_raise_is_not_said_to_be_harmless(text: str, ansi: str, rows: DataFrame) -> None:
    assert not cannot_raise([sf.lit(1), sf.expr(text)], rows)


def test_sums_raise_in_ansi_mode_alone(ansi: str, rows: DataFrame) -> None:
    assert cannot_raise([sf.expr("l + m")], rows) == (ansi == "false")


def test_a_function_in_python_may_raise(rows: DataFrame) -> None:
    twice = sf.udf(lambda value: value * 2, "bigint")
    assert not cannot_raise([twice("l")], rows)


def _chain(rows: DataFrame, chance: random.Random) -> DataFrame:
    """Projections and filters, as those of a program."""
    for number in range(chance.randrange(3, 9)):
        name = chance.choice(("l", "m"))
        match chance.randrange(4):
            case 0:
                rows = rows.withColumn(name, sf.expr(f"if({name} is null, {number}, {name} % 7)"))
            case 1:
                rows = rows.where(f"{name} is null or not {name} = {number}")
            case 2:
                rows = rows.withColumn("r", sf.expr(f"if(b, struct({name} as v), r)"))
            case _:
                barred = sf.when(sf.spark_partition_id() >= 0, sf.col("r.v"))
                rows = rows.select("*", barred.alias("n")).withColumn("m", sf.col("n")).drop("n")
    return rows.select("l", "m", sf.col("r.v").alias("v"), sf.lit(None).cast("string").alias("nothing"))


def _analysed_nodes(rows: DataFrame) -> int:
    explained = io.StringIO()
    with redirect_stdout(explained):
        rows.explain("extended")
    analysed = explained.getvalue().partition("== Analyzed Logical Plan ==")[2]
    return analysed.partition("== Optimized Logical Plan ==")[0].count("+- ")


@pytest.mark.parametrize("seed", range(8))
def test_a_plan_that_is_simplified_has_the_same_rows_and_fewer_nodes(seed: int, rows: DataFrame) -> None:
    plan = _chain(rows, random.Random(seed))
    simple = simplified(plan)
    assert simple.schema == plan.schema
    assert simple.collect() == plan.collect()
    assert _analysed_nodes(simple) < _analysed_nodes(plan)


def test_a_plan_that_is_simplified_has_the_time_of_each_run(rows: DataFrame) -> None:
    plan = simplified(rows.select(sf.current_timestamp().alias("now")).limit(1))
    (before,) = plan.select("now").collect()
    time.sleep(0.01)
    (after,) = plan.select("now").collect()
    assert after.now > before.now


def test_a_constant_that_raises_fails_when_the_plan_runs(spark: SparkSession, rows: DataFrame) -> None:
    plan = simplified(rows.select(sf.raise_error(sf.lit("at run time"))))
    with pytest.raises(PySparkException, match="at run time"):
        plan.collect()
