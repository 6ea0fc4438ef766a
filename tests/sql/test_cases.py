"""Every case in `cases/`: what queries write, byte for byte, and what is refused."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.sql.case_files import Case, all_cases
from tests.sql.case_runner import planned, run

from odradek.spark.engine.java import find_java
from odradek.values.errors import SqlError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = all_cases()
REFUSED = {name: case for name, case in CASES.items() if case.error is not None}
WRITTEN = {name: case for name, case in CASES.items() if case.error is None}
has_spark = importlib.util.find_spec("pyspark") is not None and find_java().problem is None


@pytest.fixture(scope="module")
def sql_spark(odradek_spark: SparkSession) -> Iterator[SparkSession]:
    from odradek.sql.functions.registering import SESSION_SETTINGS, register

    before = {name: odradek_spark.conf.get(name) for name in SESSION_SETTINGS}
    register(odradek_spark)
    yield odradek_spark
    for name, value in before.items():
        if value is not None:
            odradek_spark.conf.set(name, value)


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_statement_is_refused(case: Case) -> None:
    with pytest.raises(SqlError) as refused:
        planned(case)
    assert case.error is not None
    assert case.error in refused.value.text(case.statements)
    assert ".. " not in str(refused.value), "a message and its hint are two sentences"


@pytest.mark.spark
@pytest.mark.skipif(not has_spark, reason="PySpark or Java is absent")
@pytest.mark.parametrize("case", WRITTEN.values(), ids=WRITTEN)
def test_a_query_writes(case: Case, sql_spark: SparkSession) -> None:
    wanted, written = run(case, sql_spark)
    assert written == wanted
