"""Expressions of programs do not tell the JVM where in Python they are made: those would be most calls of a program's start."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.spark.engine.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

has_spark = importlib.util.find_spec("pyspark") is not None and find_java().problem is None
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not has_spark, reason="PySpark or Java is absent"),
]


def test_an_error_of_an_expression_names_no_line_of_python(odradek_spark: SparkSession) -> None:
    from pyspark.errors import ArithmeticException
    from pyspark.sql import functions

    quotient = functions.lit(1) / functions.lit(0)
    with pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO") as refused:
        odradek_spark.range(1).select(quotient).collect()
    assert Path(__file__).name not in str(refused.value)
