"""What expressions of `cases/expressions.cases` compute: all of them in one query of Spark, each judged by itself."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.spark.engine.java import find_java
from odradek.sql.analysis.expressions import ExpressionCompiler
from odradek.sql.analysis.scope import NameScope, ScopedColumn
from odradek.sql.language import parse_one
from odradek.sql.language.queries import SelectExpression
from odradek.sql.language.statements import SelectStatement
from odradek.sql.metastore.catalog import SqlCatalog
from odradek.values.types import parse_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {
    "I": ("INT", "7"),
    "L": ("BIGINT", "9000000000L"),
    "D": ("DOUBLE", "cast(2.5 as double)"),
    "C": ("DECIMAL(4, 2)", "cast(1.25 as decimal(4,2))"),
    "S": ("STRING", "'abc'"),
    "N": ("STRING", "cast(null as string)"),
    "NI": ("INT", "cast(null as int)"),
    "B": ("BOOLEAN", "true"),
    "XS": ("ARRAY<INT>", "array(1, 2, 3)"),
    "M": ("MAP<STRING, INT>", "map('a', 1)"),
    "ST": ("STRUCT<X INT, Y STRING>", "named_struct('X', 4, 'Y', 'q')"),
    "T": ("TIMESTAMP", "timestamp_millis(1000)"),
    "ROWTIME": ("BIGINT", "1577836800000L"),
}


def _read(line: str) -> tuple[str, str, Any]:
    """The type ends where the value begins: at the first place from which all is JSON."""
    written, _, expected = line.partition(" ==> ")
    for place in (match.start() for match in re.finditer(" ", expected)):
        kind, text = expected[:place], expected[place + 1 :]
        with suppress(ValueError):
            value = json.loads(text)
            is_decimal = kind.startswith("DECIMAL") and value is not None
            return written, kind, Decimal(value) if is_decimal else value
    raise ValueError(f"{line}: write expression ==> TYPE value")


RESULTS: list[tuple[str, str, Any]] = [
    _read(line)
    for line in (Path(__file__).parent / "cases" / "expressions.cases")
    .read_text(encoding="utf-8")
    .splitlines()
    if line.strip() and not line.startswith("#")
]
has_spark = importlib.util.find_spec("pyspark") is not None and find_java().problem is None


def compiler() -> ExpressionCompiler:
    columns = tuple(
        ScopedColumn(source="R", name=name, type=parse_type(kind), text=f"C_{name}")
        for name, (kind, _) in COLUMNS.items()
    )
    return ExpressionCompiler(scope=NameScope(columns=columns, sources=("R",)), catalog=SqlCatalog())


def compiled(written: str) -> tuple[str, str]:
    statement = parse_one(f"SELECT {written} FROM R")
    assert isinstance(statement, SelectStatement)
    (selected,) = statement.query.select
    assert isinstance(selected, SelectExpression)
    made = compiler().typed(selected.expression)
    return made.text, str(made.type)


@pytest.mark.parametrize(("written", "kind", "value"), RESULTS, ids=[written for written, _, _ in RESULTS])
def test_an_expression_has_its_type(written: str, kind: str, value: Any) -> None:
    assert compiled(written)[1] == kind


@pytest.fixture(scope="module")
def values(odradek_spark: SparkSession) -> Iterator[dict[str, Any]]:
    """What Spark computes for all of them."""
    from odradek.sql.functions.registering import SESSION_SETTINGS, register

    before = {name: odradek_spark.conf.get(name) for name in SESSION_SETTINGS}
    register(odradek_spark)
    given = odradek_spark.sql(
        "select " + ", ".join(f"{text} as C_{name}" for name, (_, text) in COLUMNS.items())
    )
    row = given.selectExpr(
        *(f"{compiled(written)[0]} as r{number}" for number, (written, _, _) in enumerate(RESULTS))
    ).first()
    assert row is not None
    yield {written: row[number] for number, (written, _, _) in enumerate(RESULTS)}
    for name, setting in before.items():
        if setting is not None:
            odradek_spark.conf.set(name, setting)


@pytest.mark.spark
@pytest.mark.skipif(not has_spark, reason="PySpark or Java is absent")
@pytest.mark.parametrize(("written", "value"), [(written, value) for written, _, value in RESULTS])
def test_an_expression_has_its_value(written: str, value: Any, values: dict[str, Any]) -> None:
    assert values[written] == value
