"""Scalar and table functions of SQL, as Spark computes them: the cases of tests/sql/functions, sixty in a query."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.sql.functions.cases import FunctionCase, cases
from tests.sql.functions.reading import read

from odradek.sql.functions import FUNCTIONS
from odradek.sql.functions.registering import register
from odradek.values.errors import SqlError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
CASES: Final = list(cases())
TOGETHER: Final = 60
Outcome = tuple[str, Any, Any] | str
"""Spark's type, the value and the expected one; or what went wrong."""


def _texts(case: FunctionCase) -> tuple[str, str]:
    wanted = case.type_and_value[1].removeprefix("~")
    value = read(case.expression)[1]
    return value, "true" if wanted == "*" else read(wanted)[1]


def _computed(spark: SparkSession, several: list[FunctionCase]) -> Iterator[tuple[str, Outcome]]:
    """Halves of what fails are computed by themselves, so that each case has its own outcome."""
    columns = [
        f"{text} AS {role}{place}"
        for place, case in enumerate(several)
        for role, text in zip(("value", "wanted"), _texts(case), strict=True)
    ]
    try:
        frame = spark.range(1).selectExpr(*columns)
        (row,) = frame.collect()
    except Exception as error:  # noqa: BLE001 - whatever Spark says is the outcome
        if len(several) == 1:
            yield several[0].where, str(error).splitlines()[0]
            return
        half = len(several) // 2
        yield from _computed(spark, several[:half])
        yield from _computed(spark, several[half:])
        return
    for place, case in enumerate(several):
        kind = frame.schema[f"value{place}"].dataType.simpleString()
        yield case.where, (kind, row[f"value{place}"], row[f"wanted{place}"])


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession) -> dict[str, Outcome]:
    own = spark.newSession()
    register(own)
    readable: list[FunctionCase] = []
    known: dict[str, Outcome] = {}
    for case in CASES:
        try:
            if case.error is None:
                _texts(case)
                readable.append(case)
            else:
                read(case.expression)
        except (SqlError, ValueError, AssertionError) as error:
            known[case.where] = str(error)
    for start in range(0, len(readable), TOGETHER):
        known.update(_computed(own, readable[start : start + TOGETHER]))
    return known


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.where} {case.expression[:60]}")
def test_a_function_gives_what_ksqldb_gives(case: FunctionCase, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes.get(case.where, "nothing was refused")
    if case.error is not None:
        assert isinstance(outcome, str)
        assert case.error in outcome
        return
    assert not isinstance(outcome, str), outcome
    spark_type, value, wanted = outcome
    kind = read(case.expression)[0]
    written, value_text = case.type_and_value
    assert str(kind).replace("`", "").replace(" ", "") == written.replace(" ", "")
    if kind.kind != "NULL":
        assert spark_type.lower().replace(" ", "") == kind.ddl.lower().replace(" ", "").replace("`", "")
    if value_text == "*":
        assert value is not None
    elif value_text.startswith("~"):
        assert value == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    elif isinstance(value, float) and math.isnan(value):
        assert isinstance(wanted, float)
        assert math.isnan(wanted)
    else:
        assert value == wanted
        assert type(value) is type(wanted) or value is None or isinstance(value, int | float | list)


def test_there_are_six_cases_of_every_function_at_least() -> None:
    called = Counter(case.expression.partition("(")[0] for case in CASES)
    names = [line.name for line in FUNCTIONS.listed() if line.kind != "AGGREGATE"]
    assert [name for name in names if called[name] < 6] == []
    assert len(CASES) >= 1000
