"""CAST means the same in INSERT VALUES, which Python computes, and in a query, which Spark computes: every pair of types.

One Spark job computes the casts of all values to all types. A value that Spark casts to null is refused by INSERT VALUES.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import pytest
from sqlglot import exp

from odradek.sql.analysis.casts import cast
from odradek.sql.functions.registering import register
from odradek.sql.language.parsing import parse_one
from odradek.sql.language.statements import InsertValues
from odradek.sql.queries.expressions import constant
from odradek.values.errors import SqlError
from odradek.values.exact_numbers import WIDE
from odradek.values.times import moment_text
from odradek.values.types import SqlType, can_cast, parse_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
TYPES: Final = (
    *("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "STRING", "BYTES", "DATE", "TIME", "TIMESTAMP"),
    *(
        "DECIMAL(1, 0)",
        "DECIMAL(4, 2)",
        "DECIMAL(19, 0)",
        "DECIMAL(38, 0)",
        "DECIMAL(38, 10)",
        "DECIMAL(38, 38)",
    ),
)
ROUNDS: Final = int(os.environ.get("ODRADEK_ROUNDS", "40"))
NULL: Final = "null"
_NUMBERS: Final = (
    *(
        "0",
        "-0",
        "1",
        "-1",
        "007",
        "+7",
        "1.5",
        "-0.5",
        "0.5",
        "0.05",
        "0.005",
        "99.994",
        "99.995",
        "-99.995",
    ),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808"),
    *(
        "-9223372036854775808",
        "1e18",
        "1E-3",
        "1e400",
        "-1e400",
        "5e-324",
        "1e-400",
        "1.7976931348623157e308",
    ),
    *("9" * 38, "1" + "0" * 38, "9" * 39, "0." + "9" * 38, "123456789012345678901234567890.12345678905"),
    *(
        "NaN",
        "nan",
        "Infinity",
        "-Infinity",
        "inf",
        "-inf",
        "+Infinity",
        "infinity",
        "1d",
        "1f",
        "1L",
        "1.",
        ".5",
    ),
    *(
        "0x10",
        "1_000",
        "1e",
        "e1",
        "--1",
        "1 2",
        " 7 ",
        "7\t",
        "\u00a07",
        "\u0661",
        "1e5",
        "1.0E10",
        "1e999999999",
    ),
)
_TEXTS: Final = (
    *(
        "",
        " ",
        "x",
        "\u00e9",
        "\U0001f600",
        "\0",
        "true",
        "TRUE",
        " true ",
        "t",
        "T",
        "tr",
        "tru",
        "yes",
        "y",
        "ye",
    ),
    *("Yes", "false", "f", "no", "1", "null", "on", "\ttrue", "tr\u00fce", "o'clock", "%", "\\", "a\nb"),
    *("2020-01-02", "2020-1-2", "2020", "2020-01", " 2020-01-02 ", "2020-02-30", "2020-02-29", "2021-02-29"),
    *("0001-01-01", "9999-12-31", "0000-01-01", "10000-01-01", "+10000-01-01", "-0001-01-01", "2020-01-02T"),
    *("2020-01-02T03:04:05", "2020-01-02 03:04:05", "2020-01-02T03:04:05.678", "2020-01-02T03:04:05.678901"),
    *(
        "2020-01-02T03:04:05Z",
        "2020-01-02T03:04:05+01:00",
        "2020-01-02T03:04:05+0100",
        "2020-01-02T03:04:05 UTC",
    ),
    *("2020-01-02T24:00:00", "2020-01-02T03:04", "2020-01-02T3:4:5", "T03:04:05", "03:04:05 2020-01-02"),
    *(
        "10:11",
        "10:11:12",
        "10:11:12.1",
        "10:11:12.123456789",
        "10:11:12.1234567890",
        "10:11\n",
        "24:00",
        "23:59:59.999",
    ),
    *(
        "\u00a02020-01-02",
        "\x7f2020-01-02\x1f",
        "2020-01-02\u2028",
        "\x857",
        "1:2",
        "10",
        "10:11 ",
        "00:00",
        "25:00",
        "10:60",
        "10:11:60",
        "AQI=",
        "today",
        "now",
        "epoch",
    ),
)
SOURCES: Final[dict[str, list[Any]]] = {
    "BOOLEAN": [True, False],
    "INTEGER": [0, 1, -1, 100, (1 << 31) - 1, -(1 << 31)],
    "BIGINT": [0, 1, -1, 1 << 31, -(1 << 31) - 1, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63)],
    "DOUBLE": [
        *(0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 0.1, 0.5, 2.5, 1e7, 9999999.0, 1e-3, 9.99e-4, 5e-324),
        *(1e300, -1e300, 1e21, 99.995),
        *(2147483647.5, 2147483648.0, -2147483649.0, 9.2233720368547758e18, 1e19, 123456789.125, 1 / 3, 2e-308),
    ],
    "STRING": [*_NUMBERS, *_TEXTS],
    "DECIMAL(4, 2)": [Decimal(text) for text in ("0.00", "0.01", "-0.01", "0.50", "1.50", "-1.50", "9.95", "99.99", "-99.99")],
    "DECIMAL(38, 0)": [Decimal(text) for text in ("0", "1", "-1", "2147483648", "9223372036854775808", "-" + "9" * 38)],
    "DECIMAL(38, 10)": [Decimal(text) for text in ("0.0000000000", "0.0000000001", "-0.5000000000", "9" * 28 + "." + "9" * 10)],
    "DECIMAL(38, 38)": [Decimal(text) for text in ("0." + "0" * 38, "0." + "9" * 38, "-0." + "0" * 37 + "1")],
    "DATE": [0, -1, 18263, -719162, 2932896],
    "TIME": [0, 1, 36_672_000, 36_660_000, 36_672_120, 86_399_999],
    "TIMESTAMP": [0, -1, 1577934245678, 1577934245000, -62135596800000, 253402300799999, -62135596799999],
}  # fmt: skip


def _generated(seed: int) -> dict[str, list[Any]]:
    pick = random.Random(seed)
    signs, ends = (
        ("", "-", "+"),
        (lambda: f".{pick.randint(0, 10**6)}", lambda: f"e{pick.randint(-20, 20)}", str),
    )
    makers: dict[str, Callable[[], Any]] = {
        "INTEGER": lambda: pick.randint(-(1 << 31), (1 << 31) - 1),
        "BIGINT": lambda: pick.randint(-(1 << 63), (1 << 63) - 1),
        "DOUBLE": lambda: pick.uniform(-1, 1) * 10 ** pick.randint(-12, 40),
        "STRING": lambda: (
            f"{pick.choice(signs)}{pick.randint(0, 10 ** pick.randint(1, 20))}{pick.choice(ends)()}"
        ),
        "DATE": lambda: pick.randint(-719162, 2932896),
        "TIME": lambda: pick.randint(0, 86_399_999),
        "TIMESTAMP": lambda: pick.randint(-62135596800000, 253402300799999),
    }
    return {name: [make() for _ in range(ROUNDS)] for name, make in makers.items()}


def _literal(value: Any, kind: SqlType) -> str:
    """The value in SQL."""
    match kind.kind:
        case "BOOLEAN":
            return str(value).lower()
        case "DOUBLE":
            text = repr(value)
            is_word = not math.isfinite(value)
            return f"CAST('{text}' AS DOUBLE)" if is_word else text if "e" in text else f"{text}e0"
        case "STRING":
            return "'{}'".format(value.replace("'", "''"))
        case "DATE":
            return f"CAST('{date(1970, 1, 1) + timedelta(days=value)}' AS DATE)"
        case "TIME":
            return f"CAST('{moment_text(value)[11:]}' AS TIME)"
        case "TIMESTAMP":
            return f"CAST('{moment_text(value)}' AS TIMESTAMP)"
        case "DECIMAL":
            return f"CAST({value:.{kind.scale}f} AS {kind})" if kind.scale else f"CAST('{value}' AS {kind})"
    return str(value)


def _in_python(value: Any, source: SqlType, target: SqlType) -> Any:
    statement = parse_one(f"INSERT INTO t VALUES (CAST({_literal(value, source)} AS {target}))")
    assert isinstance(statement, InsertValues)
    (tree,) = statement.values
    assert isinstance(tree, exp.Cast)
    try:
        return _comparable(constant(tree, target))
    except SqlError:
        return NULL


def _comparable(value: Any) -> Any:
    """A value as rows have it, which equals itself, and of which -0.0 is not 0.0."""
    match value:
        case None:
            return NULL
        case float():
            return "NaN" if math.isnan(value) else repr(value)
        case Decimal():
            return f"{value.normalize(WIDE):f}" if value else "0"
    return value


def _as_number(text: str, kind: SqlType) -> str:
    """Days and milliseconds: Python has no dates beyond the year 9999."""
    function = {"DATE": "unix_date", "TIMESTAMP": "unix_millis"}.get(kind.kind)
    return text if function is None else f"{function}({text})"


def _for_spark(value: Any, kind: SqlType) -> Any:
    match kind.kind:
        case "DATE":
            return date(1970, 1, 1) + timedelta(days=value)
        case "TIMESTAMP":
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
    return value


def _is_digits_of_an_older_java(kind: SqlType, by_spark: Any, by_python: Any, value: Any) -> bool:
    """Before JDK 19, Double.toString writes more digits than are needed for some numbers. They stand for the same number."""
    if kind.kind != "DOUBLE" or not isinstance(by_spark, str) or not isinstance(by_python, str):
        return False
    if "null" in (by_spark, by_python) or not math.isfinite(value) or abs(value) < 1e-300:
        return False
    written = str(Decimal(by_spark).adjusted()) == str(Decimal(by_python).adjusted())
    return written and math.isclose(float(by_spark), float(by_python), rel_tol=1e-15, abs_tol=0.0)


def test_casts_of_every_pair_of_types_mean_the_same(spark: SparkSession) -> None:
    own = spark.newSession()
    register(own)
    own.conf.set("spark.sql.session.timeZone", "UTC")
    generated = _generated(1)
    sources = {
        name: (parse_type(name), [*values, *generated.get(name, [])]) for name, values in SOURCES.items()
    }
    names = {name: f"c{index}" for index, name in enumerate(sources)}
    count = max(len(values) for _, values in sources.values())
    rows = [
        tuple(
            _for_spark(values[row], kind) if row < len(values) else None for kind, values in sources.values()
        )
        for row in range(count)
    ]
    schema = ", ".join(f"{names[name]} {kind.ddl}" for name, (kind, _) in sources.items())
    pairs = [
        (name, target)
        for name, target in product(sources, map(parse_type, TYPES))
        if can_cast(sources[name][0], target) and sources[name][0] != target
    ]
    texts = [
        f"{_as_number(cast(names[name], sources[name][0], target), target)} AS x{index}"
        for index, (name, target) in enumerate(pairs)
    ]
    computed = own.createDataFrame(rows, schema).coalesce(1).selectExpr(*texts).collect()
    different, counts = [], {"values": 0, "nulls": 0}
    for index, (name, target) in enumerate(pairs):
        kind, values = sources[name]
        for row, value in enumerate(values):
            by_spark = _comparable(computed[row][index])
            by_python = _in_python(value, kind, target)
            counts["nulls" if by_spark == NULL else "values"] += 1
            if by_python == NULL and name == "STRING" and target.kind in ("DATE", "TIMESTAMP"):
                continue  # Spark reads more than ISO's form
            if by_python == NULL and name == "STRING" and not value.isascii():
                continue  # digits of other scripts
            if by_spark != by_python and not _is_digits_of_an_older_java(kind, by_spark, by_python, value):
                different.append((name, str(target), value, by_spark, by_python))
    assert different[:20] == []
    assert min(counts.values()) > 500, counts


@pytest.mark.parametrize("pair", [*product(TYPES, TYPES)], ids=" to ".join)
def test_python_refuses_the_casts_that_queries_refuse(pair: tuple[str, str]) -> None:
    source, target = map(parse_type, pair)
    if can_cast(source, target) or pair[0] not in SOURCES:
        return
    with pytest.raises(SqlError, match="Cast of"):
        cast("c", source, target)
    assert {_in_python(value, source, target) for value in SOURCES[pair[0]]} == {NULL}
