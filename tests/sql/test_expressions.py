"""What expressions compute: all of them in one query of Spark, each judged by itself."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from odradek.spark.java import find_java
from odradek.sql.analysis.expressions import ExpressionCompiler
from odradek.sql.analysis.scope import NameScope, ScopedColumn
from odradek.sql.catalog import SqlCatalog
from odradek.sql.language import parse_one
from odradek.sql.language.queries import SelectExpression
from odradek.sql.language.statements import SelectStatement
from odradek.sql.types import parse_type

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
RESULTS: list[tuple[str, str, Any]] = [
    ("I + 1", "INTEGER", 8),
    ("2147483647 + 1", "INTEGER", -2147483648),
    ("I + L", "BIGINT", 9000000007),
    ("I / 2", "INTEGER", 3),
    ("-I / 2", "INTEGER", -3),
    ("I / 0", "INTEGER", None),
    ("I % 4", "INTEGER", 3),
    ("I % 0", "INTEGER", None),
    ("I / 2.5e0", "DOUBLE", 2.8),
    ("D / 0", "DOUBLE", float("inf")),
    ("D * 2", "DOUBLE", 5.0),
    ("C + C", "DECIMAL(5, 2)", Decimal("2.50")),
    ("C * C", "DECIMAL(9, 4)", Decimal("1.5625")),
    ("C + 1", "DECIMAL(13, 2)", Decimal("2.25")),
    ("1.5", "DECIMAL(2, 1)", Decimal("1.5")),
    ("1.5E0", "DOUBLE", 1.5),
    ("3000000000", "BIGINT", 3000000000),
    ("NI + 1", "INTEGER", None),
    ("S + 'd'", "STRING", "abcd"),
    ("N + 'd'", "STRING", "nulld"),
    ("S || 'd'", "STRING", "abcd"),
    ("'it''s'", "STRING", "it's"),
    ("I = 7", "BOOLEAN", True),
    ("I = 7.0", "BOOLEAN", True),
    ("NI = 7", "BOOLEAN", False),
    ("NI != 7", "BOOLEAN", False),
    ("NOT NI = 7", "BOOLEAN", True),
    ("N IS NULL", "BOOLEAN", True),
    ("S IS NOT NULL", "BOOLEAN", True),
    ("NI IS DISTINCT FROM 7", "BOOLEAN", True),
    ("NI IS NOT DISTINCT FROM NULL", "BOOLEAN", True),
    ("I BETWEEN 7 AND 9", "BOOLEAN", True),
    ("I NOT BETWEEN 7 AND 9", "BOOLEAN", False),
    ("NI BETWEEN 7 AND 9", "BOOLEAN", False),
    ("I IN (1, 7)", "BOOLEAN", True),
    ("NI IN (1, 7)", "BOOLEAN", False),
    ("I NOT IN (1, 7)", "BOOLEAN", False),
    ("S LIKE 'a%'", "BOOLEAN", True),
    ("S LIKE '_b_'", "BOOLEAN", True),
    ("S LIKE 'b%'", "BOOLEAN", False),
    ("N LIKE '%'", "BOOLEAN", False),
    ("'a%c' LIKE 'a!%c' ESCAPE '!'", "BOOLEAN", True),
    ("S LIKE 'a.c'", "BOOLEAN", False),
    ("B AND I > 3", "BOOLEAN", True),
    ("B AND NOT (I > 3 OR B)", "BOOLEAN", False),
    ("CASE WHEN I > 3 THEN 'x' ELSE 'y' END", "STRING", "x"),
    ("CASE WHEN NI > 3 THEN 'x' END", "STRING", None),
    ("CASE I WHEN 7 THEN 1 ELSE 2.5 END", "DECIMAL(11, 1)", Decimal("1.0")),
    ("XS[1]", "INTEGER", 1),
    ("XS[-1]", "INTEGER", 3),
    ("XS[4]", "INTEGER", None),
    ("XS[0]", "INTEGER", None),
    ("M['a']", "INTEGER", 1),
    ("M['b']", "INTEGER", None),
    ("ST->Y", "STRING", "q"),
    ("STRUCT(A := I, `b` := S)->`b`", "STRING", "abc"),
    ("MAP('x' := 1, 'y' := L)['y']", "BIGINT", 9000000000),
    ("ARRAY[1, L][2]", "BIGINT", 9000000000),
    ("TRANSFORM(XS, x => x * 2)", "ARRAY<INTEGER>", [2, 4, 6]),
    ("FILTER(XS, x => x > I - 6)", "ARRAY<INTEGER>", [2, 3]),
    ("REDUCE(XS, 0, (s, x) => s + x)", "INTEGER", 6),
    ("CAST('12' AS INT)", "INTEGER", 12),
    ("CAST('1x' AS INT)", "INTEGER", None),
    ("CAST(D AS INT)", "INTEGER", 2),
    ("CAST(I AS STRING)", "STRING", "7"),
    ("CAST(1E10 AS STRING)", "STRING", "1.0E10"),
    ("CAST('yes' AS BOOLEAN)", "BOOLEAN", True),
    ("CAST('no' AS BOOLEAN)", "BOOLEAN", False),
    ("CAST(D AS DECIMAL(3, 1))", "DECIMAL(3, 1)", Decimal("2.5")),
    ("CAST(ARRAY['1', 'x'] AS ARRAY<INT>)", "ARRAY<INTEGER>", [1, None]),
    ("CAST(T AS STRING)", "STRING", "1970-01-01T00:00:01.000"),
    ("T = '1970-01-01T00:00:01.000'", "BOOLEAN", True),
    ("T < '1970-01-01T00:00:01.000'", "BOOLEAN", False),
    ("ROWTIME >= '2020-01-01'", "BOOLEAN", True),
    ("ROWTIME < '2020-01-01T00:00:00+0100'", "BOOLEAN", False),
    ("UCASE(S)", "STRING", "ABC"),
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
