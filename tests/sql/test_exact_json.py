"""EXTRACTJSONFIELD has one meaning: within a lambda, where Spark calls no Python, it returns what it returns elsewhere."""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from odradek.spark.engine.java import find_java
from odradek.sql.functions.exact_json import json_at_in_lambda
from odradek.sql.functions.python.json_values import at_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

has_spark = importlib.util.find_spec("pyspark") is not None and find_java().problem is None
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not has_spark, reason="PySpark or Java is absent"),
]

_NUMBERS = ("1.10", "0", "-0", "1e5", "12345678901234567890.123456789", "1" * 40, "-5", "1E-7", "0.0")
_TEXTS = ("", "s", "d5", "x y", '"q" \\', "a:1", "s1 \n , 5", "é", "it's 5", '","d":1.0')
_NAMES = ("a", "b", "s", "d", "d5", "5", "it's")
_PATHS = ("$", "$.a", "$.a.b", "$.b[0]", "$[1]", "$.d", "$.s.a", "$['a']", "$.d5")
_NO_JSON = (
    "x",
    "",
    "{'a': 1}",
    *(f'{{"a": {number}}}' for number in ("01", "1.", ".5", "+1", "1_0", "NaN", "1e", "1.2.3")),
)


def _json(rng: random.Random, depth: int = 0) -> str:
    blank = rng.choice(("", " ", "\n "))
    kind = rng.random()
    if depth > 2 or kind < 0.3:
        return rng.choice(_NUMBERS)
    if kind < 0.5:
        return json.dumps(rng.choice(_TEXTS), ensure_ascii=rng.random() < 0.5)
    if kind < 0.6:
        return rng.choice(("true", "false", "null"))
    if kind < 0.8:
        return f"[{blank}{f',{blank}'.join(_json(rng, depth + 1) for _ in range(rng.randrange(4)))}{blank}]"
    names = rng.sample(_NAMES, rng.randrange(5))
    fields = (f"{json.dumps(name)}{blank}:{blank}{_json(rng, depth + 1)}" for name in names)
    return f"{{{blank}{f'{blank},'.join(fields)}{blank}}}"


def _rows() -> Iterator[tuple[str | None, str]]:
    rng = random.Random(28)
    for _ in range(600):
        yield _json(rng), rng.choice(_PATHS)
    for text in _NO_JSON:
        yield text, "$.a"
    yield None, "$.a"
    long = f'{{"a": {json.dumps(chr(10) * 20_000)}, "b": [{",".join(["1.50"] * 20_000)}], "d": 7.70}}'
    for path in ("$.a", "$.b[1]", "$.d"):
        yield long, path


def _expected(text: str | None, path: str) -> str | None:
    try:
        return None if text is None else at_path(text, path)
    except ValueError:
        return None


def test_a_field_is_the_same_within_a_lambda(odradek_spark: SparkSession) -> None:
    rows = list(_rows())
    frame = odradek_spark.createDataFrame(rows, "text string, path string")
    answers = frame.selectExpr(
        f"transform(array(text), t -> {json_at_in_lambda('t', 'path')})[0] as found"
    ).collect()
    wrong = [
        (text, path, row["found"])
        for (text, path), row in zip(rows, answers, strict=True)
        if row["found"] != _expected(text, path)
    ]
    assert wrong == []
