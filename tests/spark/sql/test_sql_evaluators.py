"""A condition means the same in Spark and in Python, row by row: generated conditions over generated rows, in one select."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import pytest
from sqlglot import exp

from odradek.sql.analysis.expressions import ExpressionCompiler
from odradek.sql.analysis.scope import NameScope, ScopedColumn
from odradek.sql.catalog import Catalog
from odradek.sql.functions.registering import register
from odradek.sql.language.parsing import parse_one
from odradek.sql.language.statements import SelectStatement
from odradek.sql.queries.expressions import LocalScope, NeedsSpark
from odradek.values.errors import SqlError
from odradek.values.types import SqlType, parse_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
VALUES: Final[dict[str, tuple[str, list[Any]]]] = {
    "A": ("INT", [1, 2, -(1 << 31), (1 << 31) - 1]),
    "B": ("BIGINT", [1, -(1 << 63), (1 << 63) - 1]),
    "C": ("DOUBLE", [1.0, math.nan, math.inf, -math.inf, -0.0, 1e300]),
    "E": ("DOUBLE", [math.nan, 0.0, 1.0]),
    "D": ("DECIMAL(5,2)", [Decimal("1.10"), Decimal("2.00"), Decimal("0.00"), Decimal("-999.99")]),
    "S": ("STRING", ["x", "X", "", "\u00e9", "\U0001f600"]),
    "F": ("BOOLEAN", [True, False]),
    "T": ("DATE", [18263, 0, -1]),
    "U": ("TIMESTAMP", [1577934245000, 0]),
    "V": ("TIME", [36_672_000, 0]),
    "ROWTIME": ("BIGINT", [1577934245000, 0]),
}
KINDS: Final = {name: parse_type(kind) for name, (kind, _) in VALUES.items()}
COMPARED: Final = (
    *product("ABCDE", ("1", "0", "-1", "1.0", "1.10", "1e0", "NULL", "2147483648", "-2147483648", *"ABCDE")),
    *product("S", ("'x'", "''", "NULL", "S")),
    *product("F", ("true", "false", "NULL", "(A = 1)")),
    *product("T", ("'2020-01-02'", "'2020-1-2'", "'x'", "NULL", "T")),
    *product("U", ("'2020-01-02'", "'2020-01-02T03:04:05'", "'2020-01-02T03:04:05.000+01:00'", "U")),
    *product("V", ("'10:11:12'", "'10:11'", "'25:00'", "V")),
    ("ROWTIME", "'2020-01-02T03:04:05Z'"),
    ("ROWTIME", "'2020'"),
    *(("-" + name, "0") for name in "ABCDE"),
    *((f"A {sign} {other}", "B") for sign in "+-*" for other in ("A", "B", "2147483647")),
)
SIMPLE: Final = [
    f"{left} {sign} {right}" for left, right in COMPARED for sign in ("=", "<>", "<", "<=", ">", ">=")
]
LISTED: Final = [
    f"{value} {word} {members}"
    for value, members in (
        *product("ABCDE", ("(1, 2)", "(1, NULL)", "(1.0, -0.5, 1e0)", "(A, 1)", "(0)")),
        *product("S", ("('x', 'y')", "('x', NULL)", "(S)")),
        *product("T", ("('2020-01-02', '1970-01-01')",)),
        *product("F", ("(true, NULL)", "('Yes', 'f')", "(false, 'x')", "(1)")),
        *product("ABCDE", ("('1', 2)", "(1, '2.0', '-999.99')", "('x')", "('1e300', 0)", "(true)")),
        *product("S", ("(1, 'x')", "('x', true, -1.50, 1e300)", "(A)")),
    )
    for word in ("IN", "NOT IN")
] + [
    f"{value} {word} {low} AND {high}"
    for value, low, high in (*product("ABCDE", ("0", "NULL", "A"), ("1", "C")), ("S", "''", "'x'"))
    for word in ("BETWEEN", "NOT BETWEEN")
]
JOINED: Final = [
    *(f"NOT ({text})" for text in SIMPLE[::5]),
    *(
        f"{first} {word} NOT ({second})"
        for first, second in zip(SIMPLE[::7], SIMPLE[3::7], strict=False)
        for word in ("AND", "OR")
    ),
    *(f"({first}) = ({second})" for first, second in zip(SIMPLE[::11], LISTED, strict=False)),
    *(
        "F",
        "NOT F",
        "F AND A = 1",
        "F OR A = 1",
        "NOT (F AND A = 1)",
        "A IS NULL",
        "C IS NOT NULL",
        "NOT (A IS NULL)",
    ),
]


def _rows() -> list[dict[str, Any]]:
    """Every value of every column beside others, and null in every column."""
    longest = max(len(values) for _, values in VALUES.values())
    rows = [
        {name: values[(place + shift) % len(values)] for name, (_, values) in VALUES.items()}
        for place, shift in product(range(longest), (0, 1))
    ]
    rows += [dict.fromkeys(VALUES, None)]
    return rows + [{**rows[0], name: None} for name in VALUES]


def _for_spark(value: Any, kind: SqlType) -> Any:
    if value is None:
        return None
    match kind.kind:
        case "DATE":
            return date(1970, 1, 1) + timedelta(days=value)
        case "TIMESTAMP":
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
    return value


def _tree(text: str) -> exp.Expr:
    statement = parse_one(f"SELECT * FROM t WHERE {text} EMIT CHANGES")
    assert isinstance(statement, SelectStatement)
    assert statement.query.where is not None
    return statement.query.where


def _spark_text(text: str) -> str | None:
    columns = tuple(ScopedColumn(source="T", name=name, type=kind, text=name) for name, kind in KINDS.items())
    try:
        return (
            ExpressionCompiler(scope=NameScope(columns=columns, sources=("T",)), catalog=Catalog())
            .typed(_tree(text))
            .text
        )
    except SqlError:
        return None


def test_conditions_mean_the_same(spark: SparkSession) -> None:
    own = spark.newSession()
    register(own)
    rows = _rows()
    schema = ", ".join(f"{name} {kind.ddl}" for name, kind in KINDS.items())
    frame = own.createDataFrame(
        [tuple(_for_spark(row[name], kind) for name, kind in KINDS.items()) for row in rows], schema
    ).coalesce(1)
    both, different = [], []
    for text in (*SIMPLE, *LISTED, *JOINED):
        spark_text = _spark_text(text)
        try:
            local = LocalScope(KINDS).compiled(_tree(text))
        except NeedsSpark:
            continue
        except SqlError:
            if spark_text is not None:
                different.append((text, "only Spark accepts it"))
            continue
        if spark_text is None:
            different.append((text, "only Python accepts it"))
            continue
        both.append((text, spark_text, local))
    assert len(both) > 300
    computed = frame.selectExpr(f"array({', '.join(spark_text for _, spark_text, _ in both)}) AS c").collect()
    for row, (values,) in zip(rows, computed, strict=True):
        different += [
            (text, row, local.of(row), value)
            for (text, _, local), value in zip(both, values, strict=True)
            if local.of(row) is not value
        ]
    assert different == []
