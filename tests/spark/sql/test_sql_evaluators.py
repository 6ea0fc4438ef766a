"""An expression means the same in Spark and in Python, row by row: generated expressions over generated rows, in few selects.

Every node that Python evaluates is beside operands of every type, and in trees from a seed. `make values` tries more trees.
"""

from __future__ import annotations

import math
import os
import random
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import pytest
from sqlglot import exp
from tests.property.values.sql_types import SQL_KINDS

from odradek.sql.analysis.expressions import ExpressionCompiler
from odradek.sql.analysis.scope import NameScope, ScopedColumn
from odradek.sql.functions.registering import register
from odradek.sql.language.parsing import parse_one
from odradek.sql.language.statements import SelectStatement
from odradek.sql.metastore.catalog import Catalog
from odradek.sql.queries.expressions import EVALUATED, LocalScope, LocalValue, NeedsSpark
from odradek.values.errors import SqlError
from odradek.values.types import SqlType, parse_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
VALUES: Final[dict[str, tuple[str, list[Any]]]] = {
    "A": ("INT", [1, 2, -(1 << 31), (1 << 31) - 1, 0]),
    "B": ("BIGINT", [1, -(1 << 63), (1 << 63) - 1, (1 << 53) + 1, 0]),
    "C": ("DOUBLE", [1.0, math.nan, math.inf, -math.inf, -0.0, 1e300, 5e-324, -sys.float_info.max, 2.0**53, 2.0**63]),
    "E": ("DOUBLE", [math.nan, 0.0, 1.0, -5e-324, -(2.0**63), 0.1]),
    "D": ("DECIMAL(5,2)", [Decimal("1.10"), Decimal("2.00"), Decimal("0.00"), Decimal("-999.99"), Decimal("0.10")]),
    "S": ("STRING", ["x", "X", "", "\u00e9", "\U0001f600", "\uffff", " ", "\0", "1", "1.0", "NaN", "-0", "true", "2020-01-02"]),
    "F": ("BOOLEAN", [True, False]),
    "T": ("DATE", [18263, 0, -1, -719162, 2932896]),
    "U": ("TIMESTAMP", [1577934245000, 0, -1, -62135423999999, 253402300799999]),
    "V": ("TIME", [36_672_000, 0, 86_399_999]),
    "Y": ("BYTES", [b"", b"\0\xff", b"\x7f", b"x", b"\x80", b"\xed\xa0\x80", b"x\0"]),
    "L": ("ARRAY<INT>", [[1, 2], []]),
    "M": ("MAP<STRING, INT>", [{"x": 1}, {}]),
    "R": ("STRUCT<X INT>", [{"X": 1}, {"X": 2}]),
    "ROWTIME": ("BIGINT", [1577934245000, 0]),
}  # fmt: skip
ROUNDS: Final = int(os.environ.get("ODRADEK_ROUNDS", "200"))
TOGETHER: Final = 1000
"""How many expressions one select has."""
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


OPERANDS: Final = (
    *"ABCDSFTUVYLMR",
    *("NULL", "1", "2147483648", "1.10", "1e0", "'x'", "'2020-01-02'", "'10:11'", "true"),
)
EVERY: Final = [
    *(f"{left} {sign} {right}" for left, sign, right in product(OPERANDS, ("=", "<", "+", "AND"), OPERANDS)),
    *(f"{left} {sign} {right}" for left, sign, right in product("AB", "-*", "AB")),
    *(f"{left} IN ({right})" for left, right in product(OPERANDS, OPERANDS)),
    *(f"{left} BETWEEN {right} AND {right}" for left, right in product(OPERANDS, OPERANDS)),
    *(
        text
        for operand in OPERANDS
        for text in (f"{operand} IS NULL", f"NOT {operand}", f"-{operand}", f"({operand})", operand)
    ),
]
"""Every operation beside operands of every type."""


def _trees(seed: int, count: int) -> Iterator[str]:
    """Expressions within expressions."""
    pick = random.Random(seed)

    def number(depth: int) -> str:
        if depth == 0 or pick.random() < 0.3:
            return pick.choice(
                ("A", "B", "C", "D", "E", "1", "0", "-1", "2147483647", "1.5", "1e300", "ROWTIME")
            )
        if pick.random() < 0.3:
            return f"-({number(depth - 1)})"
        return f"({pick.choice('AB')} {pick.choice('+-*')} {number(depth - 1)})"

    def condition(depth: int) -> str:
        if depth == 0 or pick.random() < 0.2:
            return pick.choice((*SIMPLE, *LISTED, "F", "F IS NULL"))
        match pick.randrange(7):
            case 0:
                return f"NOT ({condition(depth - 1)})"
            case 1:
                return f"({condition(depth - 1)}) = ({condition(depth - 1)})"
            case 2:
                return f"({condition(depth - 1)}) IS {pick.choice(('', 'NOT '))}NULL"
            case 3:
                return f"{number(2)} {pick.choice(('IN', 'NOT IN'))} ({number(1)}, {number(1)}, {number(2)})"
            case 4:
                return f"{number(2)} {pick.choice(('', 'NOT '))}BETWEEN {number(1)} AND {number(2)}"
            case 5:
                return f"{number(2)} {pick.choice(('=', '<>', '<', '<=', '>', '>='))} {number(2)}"
        return f"({condition(depth - 1)}) {pick.choice(('AND', 'OR'))} ({condition(depth - 1)})"

    return (condition(3) for _ in range(count))


def _compared(texts: Sequence[str]) -> tuple[list[tuple[str, str, LocalValue]], list[tuple[str, str]]]:
    """What both accept, and what one of them accepts alone."""
    both, alone = [], []
    for text in texts:
        try:
            local = LocalScope(KINDS).compiled(_tree(text))
        except NeedsSpark:
            continue
        except SqlError:
            if _spark_text(text) is not None:
                alone.append((text, "only Spark accepts it"))
            continue
        spark_text = _spark_text(text)
        if spark_text is None:
            alone.append((text, "only Python accepts it"))
        else:
            both.append((text, spark_text, local))
    return both, alone


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        return repr(first) == repr(second)
    return type(first) is type(second) and bool(first == second)


def _from_spark(value: Any, kind: SqlType) -> Any:
    match value:
        case datetime():
            return (value.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        case date():
            return (value - date(1970, 1, 1)).days
        case bytearray():
            return bytes(value)
    return value.asDict() if kind.kind == "STRUCT" and value is not None else value


def test_expressions_mean_the_same(spark: SparkSession) -> None:
    own = spark.newSession()
    register(own)
    own.conf.set("spark.sql.session.timeZone", "UTC")
    rows = _rows()
    schema = ", ".join(f"{name} {kind.ddl}" for name, kind in KINDS.items())
    frame = own.createDataFrame(
        [tuple(_for_spark(row[name], kind) for name, kind in KINDS.items()) for row in rows], schema
    ).coalesce(1)
    texts = list(dict.fromkeys((*SIMPLE, *LISTED, *JOINED, *EVERY, *_trees(1, ROUNDS))))
    both, alone = _compared(texts)
    different: list[Any] = [*alone]
    assert len(both) > 1500
    nodes = {type(node) for text, _, _ in both for node in _tree(text).walk()}
    assert not EVALUATED - nodes, "Python evaluates these nodes, and nothing compares them"
    assert {*SQL_KINDS, "DECIMAL", "ARRAY", "MAP", "STRUCT"} == {kind.kind for kind in KINDS.values()}
    by_kind: dict[SqlType, list[tuple[str, str, LocalValue]]] = {}
    for entry in both:
        by_kind.setdefault(entry[2].type, []).append(entry)
    for kind, entries in by_kind.items():
        for start in range(0, len(entries), TOGETHER):
            part = entries[start : start + TOGETHER]
            computed = frame.selectExpr(f"array({', '.join(text for _, text, _ in part)}) AS c").collect()
            for row, (values,) in zip(rows, computed, strict=True):
                different += [
                    (text, row, local.of(row), value)
                    for (text, _, local), value in zip(part, values, strict=True)
                    if not _same(local.of(row), _from_spark(value, kind))
                ]
    assert different[:10] == []
