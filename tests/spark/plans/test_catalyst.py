"""Which columns cannot raise, and plans that are simplified before a query starts: Spark itself is the judge of both."""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any, Final

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from odradek.spark.engine.catalyst import cannot_raise, simplified

_ANSI: Final = "spark.sql.ansi.enabled"
_ZONE: Final = "spark.sql.session.timeZone"
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
_AT_LIMITS: Final = (
    "date_add(date'1970-01-01', i) as day",
    "timestamp_micros(l) as at",
    "if(b, timestamp_ntz'+294247-01-10 04:00:54.775807', timestamp_ntz'-290308-12-21 19:59:05.224192') as wall",
    "cast(if(b, 99999999999999999999.999999999999999999, -1) as decimal(38, 18)) as p",
)
"""Dates, timestamps and decimals as far as their types go, which is farther than Python's."""
_ZONES: Final = ("UTC", "Asia/Tokyo", "America/New_York")
_NUMBERS: Final = ("l", "m", "i", "t", "d", "r.v", "3", "9223372036854775807", "p")
_TIMES: Final = ("day", "at", "wall")
_VALUES: Final = (*_NUMBERS, *_TIMES, "s", "x", "b", "r", "'a'", "null")
_TYPES: Final = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double"),
    *("decimal(38, 18)", "decimal(20, 0)", "decimal(38, 20)", "decimal(10, 2)", "decimal(38, 0)"),
    *("string", "binary", "date", "timestamp", "timestamp_ntz"),
)
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
_RAISING_CASTS: Final = (
    ("cast(day as timestamp)", "UTC"),
    ("cast(day as timestamp_ntz)", "UTC"),
    ("cast(at as timestamp_ntz)", "Asia/Tokyo"),
    ("cast(at as timestamp_ntz)", "America/New_York"),
    ("cast(wall as timestamp)", "Asia/Tokyo"),
    ("cast(wall as timestamp)", "America/New_York"),
    ("cast(array(day) as array<timestamp>)", "UTC"),
    ("cast(struct(day) as struct<v: timestamp>)", "UTC"),
    ("cast(map(1, day) as map<int, timestamp>)", "UTC"),
    ("cast(array(map(1, struct(at))) as array<map<bigint, struct<v: timestamp_ntz>>>)", "Asia/Tokyo"),
    ("day = at", "UTC"),
    ("day < at", "UTC"),
    ("day in (at)", "UTC"),
    ("day <=> wall", "UTC"),
    ("at > wall", "Asia/Tokyo"),
    ("coalesce(day, at)", "UTC"),
    ("if(b, day, at)", "UTC"),
    ("case when i = 3 then at else day end", "UTC"),
    ("array(day) = array(at)", "UTC"),
)
"""Casts that Spark counts as upcasts, and a time zone in which some row's raises."""


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(_ROWS, _COLUMNS).selectExpr("*", *_AT_LIMITS)


@pytest.fixture(params=["true", "false"])
def ansi(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    before = spark.conf.get(_ANSI) or ""
    spark.conf.set(_ANSI, request.param)
    yield request.param
    spark.conf.set(_ANSI, before)


@pytest.fixture
def zone(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    """Sets the session's time zone until the test ends."""
    before = spark.conf.get(_ZONE) or ""
    yield lambda name: spark.conf.set(_ZONE, name)
    spark.conf.set(_ZONE, before)


def _compute(rows: DataFrame, *columns: Column) -> None:
    """Computes every column of every row, and collects none: Python has no such dates."""
    rows.select(*columns).write.format("noop").mode("overwrite").save()


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
            f"cast({chance.choice(_TIMES)} as {chance.choice(_TYPES)})",
            f"({first} {chance.choice(('=', '<', '>=', '<=>'))} {second})",
            f"({chance.choice(_TIMES)} in ({chance.choice(_TIMES)}, {first}))",
            f"cast(array({first}) as array<{chance.choice(_TYPES)}>)",
            f"cast(struct({first}) as struct<v: {chance.choice(_TYPES)}>)",
            f"cast(map(1, {first}) as map<bigint, {chance.choice(_TYPES)}>)",
            f"({number} / {other})",
        )
    )


@pytest.mark.parametrize("name", _ZONES)
@pytest.mark.parametrize("seed", range(3))
def test_a_column_that_is_said_not_to_raise_raises_for_no_row(
    seed: int, name: str, ansi: str, rows: DataFrame, zone: Callable[[str], None]
) -> None:
    zone(name)
    chance = random.Random(f"{seed} {name}")
    harmless: list[Column] = []
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
    _compute(rows, *harmless)


@pytest.mark.parametrize("name", _ZONES)
def test_a_cast_that_is_said_not_to_raise_raises_for_no_row(
    name: str, ansi: str, rows: DataFrame, zone: Callable[[str], None]
) -> None:
    zone(name)
    harmless: dict[str, Column] = {}
    for value in ("l", "m", "i", "t", "d", "p", "s", "x", "b", "null", *_TIMES):
        for target in _TYPES:
            text = f"cast({value} as {target})"
            try:
                rows.select(sf.expr(text))
            except PySparkException:
                continue  # there is no such cast
            if cannot_raise([sf.expr(text)], rows):
                harmless[text] = sf.expr(text).alias(text)
    _compute(rows, *harmless.values())
    printed = ("l", "i", "t", "d", "p", "b", *_TIMES)
    assert {f"cast({value} as string)" for value in printed} < set(harmless)
    wider = ("t as int", "i as bigint", "l as double", "l as decimal(20, 0)", "l as decimal(38, 18)")
    assert {f"cast({cast})" for cast in wider} < set(harmless)
    for value in _TIMES:
        own = {"day": "date", "at": "timestamp", "wall": "timestamp_ntz"}[value]
        to_times = {cast for cast in harmless if cast.startswith(f"cast({value} as ")}
        assert to_times == {f"cast({value} as string)", f"cast({value} as {own})"}


@pytest.mark.parametrize(("text", "name"), _RAISING_CASTS)
def test_a_cast_that_raises_at_the_limit_of_its_type_may_raise(
    text: str, name: str, ansi: str, rows: DataFrame, zone: Callable[[str], None]
) -> None:
    zone(name)
    assert not cannot_raise([sf.expr(text)], rows)
    with pytest.raises(Py4JJavaError, match="ArithmeticException"):
        _compute(rows, sf.expr(text))


def test_what_spark_computes_in_another_projection_may_raise(spark: SparkSession, rows: DataFrame) -> None:
    """Its expressions are not those of the columns: the arguments of a function in SQL, a generator, a window."""
    spark.sql("create or replace temporary function same_number(v int) returns int return v")
    try:
        for text in ("same_number(cast(s as int))", "explode(array(cast(s as int)))"):
            assert not cannot_raise([sf.expr(text)], rows), text
        assert not cannot_raise([sf.expr("max(cast(s as int)) over (partition by m)")], rows)
        assert cannot_raise([sf.expr("l")], rows.selectExpr("same_number(i) as l"))
    finally:
        spark.sql("drop temporary function same_number")


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
