"""Calls with OVER mean the same in Python, for pull queries, and in Spark: generated calls over generated rows.

The rows have NaN, both zeros, infinities, limits of types, decimals of 38 digits, and nulls in every column.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pytest

from odradek.sql.language.parsing import parse_one
from odradek.sql.language.queries import SelectExpression
from odradek.sql.language.statements import SelectStatement
from odradek.sql.queries.expressions import LocalScope
from odradek.sql.queries.over import overs_in, scope_with
from odradek.values.types import SqlType, parse_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROUNDS: Final = int(os.environ.get("ODRADEK_ROUNDS", "400"))
ROWS: Final = 60
TOGETHER: Final = 50
"""How many calls one select has."""
_WIDE: Final = Decimal("9999999999999999999999999999999999.9999")
_NARROW: Final = Decimal("0.0001")
_LONG: Final = Decimal("12345678901234567890123456789012.3456")
VALUES: Final[dict[str, tuple[str, list[Any]]]] = {
    "A": ("INT", [0, 1, 2, 3, -(1 << 31), (1 << 31) - 1]),
    "B": ("BIGINT", [0, 1, -(1 << 63), (1 << 63) - 1, (1 << 53) + 1]),
    "C": ("DOUBLE", [0.0, -0.0, 1.5, 2.0, math.nan, math.inf, -math.inf]),
    "E": ("DOUBLE", [math.nan, 0.0, -1.0, 1.0]),
    "D": ("DECIMAL(5, 2)", [Decimal("1.10"), Decimal("0.00"), Decimal("-999.99"), Decimal("999.99")]),
    "W": ("DECIMAL(38, 4)", [_WIDE, _NARROW, _LONG, Decimal("0.0000")]),
    "G": (
        "DECIMAL(38, 4)",
        [
            _LONG,
            Decimal("12345678901234567890123456789012.3457"),
            Decimal("12345678901234567890123456789011.3456"),
            Decimal("0.0000"),
            _LONG.copy_negate(),
        ],
    ),
    "H": ("BIGINT", [1, 2, 5, (1 << 60) + 1, 1 << 60]),
    "S": ("STRING", ["x", "X", "", "\u00e9", "\uffff", "\U0001f600"]),
    "F": ("BOOLEAN", [True, False]),
    "T": ("DATE", [18263, 0, -1]),
    "U": ("TIMESTAMP", [1577934245000, 0]),
    "V": ("TIME", [36_672_000, 0]),
    "Y": ("BYTES", [b"", b"\0\xff", b"\x7f", b"x"]),
    "L": ("ARRAY<DOUBLE>", [[1.0, math.nan], [0.0], [-0.0], [], [None]]),
    "R": ("STRUCT<X INT, Y STRING>", [{"X": 1, "Y": None}, {"X": 1, "Y": "a"}, {"X": None, "Y": "a"}]),
}
KINDS: Final = {"K": parse_type("INT"), **{name: parse_type(kind) for name, (kind, _) in VALUES.items()}}
BOUNDS: Final = ("UNBOUNDED PRECEDING", "2 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "UNBOUNDED FOLLOWING")
SORTED: Final = "ABCDEGHSFTUVYWLR"
NUMBERS: Final = "ABCDEGHW"
DISTANCES: Final = {
    "H": ("1", "3"),
    "C": ("0.5", "1"),
    "E": ("1", "2.5"),
    "D": ("1.00", "0.05"),
    "G": ("0.0001", "1.0000"),
}
"""Distances of RANGE. Columns with the limits of their types are not here: Spark's sum of value and distance overflows."""


def _rows(pick: random.Random) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "K": number,
            **{
                name: None if pick.random() < 0.1 else _own(pick.choice(values))
                for name, (_, values) in VALUES.items()
            },
        }
        for number in range(ROWS)
    ]
    pick.shuffle(rows)
    return rows


def _own(value: Any) -> Any:
    """A NaN of its own: two rows of a topic never share the object."""
    return float("nan") if value != value else value


def _order(pick: random.Random, name: str) -> str:
    return f"{name} {pick.choice(('ASC', 'DESC'))} NULLS {pick.choice(('FIRST', 'LAST'))}"


def _frame(pick: random.Random, by: str) -> tuple[str, bool]:
    """Returns a frame, and whether the order of equal rows decides which rows it has."""
    distances = DISTANCES.get(by)
    match pick.randrange(4 if distances else 3):
        case 0:
            return "", False
        case 1:
            first, last = sorted(pick.sample(range(5), 2))
            return f" ROWS BETWEEN {BOUNDS[first]} AND {BOUNDS[last]}", True
        case 2:
            first, last = sorted(pick.sample((0, 2, 4), 2))
            return f" RANGE BETWEEN {BOUNDS[first]} AND {BOUNDS[last]}", False
    assert distances is not None
    near, far = (pick.choice(distances) for _ in range(2))
    return f" RANGE BETWEEN {near} PRECEDING AND {far} FOLLOWING", False


def _calls(pick: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        name, by = pick.choice(SORTED), pick.choice(SORTED)
        partition = ", ".join(pick.sample(SORTED, pick.randint(0, 2)))
        frame, needs_order = _frame(pick, by)
        order = _order(pick, by) + (", K" if needs_order else "")
        function = pick.choice(("ROW_NUMBER", "RANK", "LAG", "FIRST", "COUNT", "SUM", "AVG", "MIN", "MAX"))
        match function:
            case "ROW_NUMBER" | "RANK":
                called = pick.choice(("ROW_NUMBER", "RANK", "DENSE_RANK")) + "()"
                order, frame = (_order(pick, by) + (", K" if "NUMBER" in called else "")), ""
            case "LAG":
                called = f"{pick.choice(('LAG', 'LEAD'))}({name}, {pick.randint(0, 3)})"
                order, frame = f"{_order(pick, by)}, K", ""
            case "FIRST":
                called = f"{pick.choice(('FIRST_VALUE', 'LAST_VALUE'))}({name})"
                order, frame = f"{_order(pick, by)}, K", frame if " ROWS" in frame else ""
            case "COUNT":
                called = f"COUNT({pick.choice((name, '*'))})"
            case "SUM":
                called = f"SUM({pick.choice(NUMBERS)})"
            case "AVG":
                called = f"AVG({pick.choice('ACE')})"
            case _:
                called = f"{function}({pick.choice('ABCDEGHSFTUVYW')})"
        by_partition = f"PARTITION BY {partition} " if partition else ""
        yield f"{called} OVER ({by_partition}ORDER BY {order}{frame})"


def _local(text: str, rows: list[dict[str, Any]]) -> tuple[SqlType, list[Any]]:
    statement = parse_one(f"SELECT {text} AS X FROM T;")
    assert isinstance(statement, SelectStatement)
    (selected,) = statement.query.select
    assert isinstance(selected, SelectExpression)
    tree, calls = overs_in(selected.expression, LocalScope(KINDS), 0)
    value = scope_with(LocalScope(KINDS), calls).compiled(tree)
    filled = [dict(row) for row in rows]
    for call in calls:
        call.fill(filled)
    return value.type, [value.of(row) for row in sorted(filled, key=lambda row: int(row["K"]))]


def _for_spark(value: Any, kind: SqlType) -> Any:
    match kind.kind:
        case "DATE" if value is not None:
            return date(1970, 1, 1) + timedelta(days=value)
        case "TIMESTAMP" if value is not None:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
    return value


def _plain(value: Any, kind: SqlType) -> Any:
    """A value in a form that compares: NaN equals itself, and so do both zeros, as they do in an order."""
    match value:
        case float():
            return "NaN" if value != value else value + 0.0
        case list():
            return [_plain(member, kind.element) for member in value]
        case datetime():
            moment = value.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
            return moment // timedelta(milliseconds=1)
        case date():
            return (value - date(1970, 1, 1)).days
        case bytearray():
            return bytes(value)
    return value.asDict() if kind.kind == "STRUCT" and hasattr(value, "asDict") else value


def test_calls_with_over_mean_the_same(spark: SparkSession) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.ansi.enabled", "false")
    pick = random.Random(7)
    rows = _rows(pick)
    schema = ", ".join(f"{name} {kind.ddl}" for name, kind in KINDS.items())
    frame = own.createDataFrame(
        [tuple(_for_spark(row[name], kind) for name, kind in KINDS.items()) for row in rows], schema
    ).coalesce(1)
    frame = frame.cache()
    texts = list(dict.fromkeys(_calls(pick, ROUNDS)))
    different: list[Any] = []
    for start in range(0, len(texts), TOGETHER):
        part = texts[start : start + TOGETHER]
        columns = [f"{text} AS r{number}" for number, text in enumerate(part)]
        computed = frame.selectExpr("K", *columns).orderBy("K").collect()
        for number, text in enumerate(part):
            kind, values = _local(text, rows)
            for key, value in enumerate(values):
                ours, others = _plain(value, kind), _plain(computed[key][f"r{number}"], kind)
                if ours != others or type(ours) is not type(others):
                    different.append((text, key, ours, others))
    assert different[:10] == [], f"{len({text for text, *_ in different})} of {len(texts)} calls differ"
