"""Plans of operators without state, as Spark runs them in production: code is generated, and expressions are copied where Spark
may copy them.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from odradek.streams import Streams
from odradek.streams.plan.operators import TopicSink, TopicSource
from odradek.streams.plan.program import Program
from odradek.streams.processors.failures import LetterRules
from odradek.streams.translation import Translator
from odradek.streams.translation.incoming import incoming
from odradek.streams.translation.outputs import outgoing
from odradek.streams.translation.translator import Tasks
from odradek.values.formats.schema_format import SchemaFormat

Row = dict[str, Any]


class FailedError(Exception):
    """The expression fails for the row."""


class Listed:
    """A format whose codec is a function in Python, as those of SQL are."""

    name = "LISTED"
    is_record = True

    def __init__(self, count: int) -> None:
        self.ddl = ", ".join(f"c{number} BIGINT" for number in range(count))

    def encode(self, value: Any) -> bytes:
        return repr(value).encode()

    def decode(self, data: bytes) -> Any:
        return {f"c{number}": int(part) for number, part in enumerate(data.split(b","))}


RECORDS: Final = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary,"
    " headers array<struct<key:string,value:binary>>"
)


def optimised(program: Program, spark: SparkSession) -> str:
    """The plan of what the program writes, from the bytes of records to bytes."""
    rules = LetterRules(program=program)
    (sink,) = [end for end in program.ends if isinstance(end, TopicSink)]
    records = spark.createDataFrame([], RECORDS).withColumn("record", sf.struct("key", "value", "headers"))

    def read(source: TopicSource) -> Any:
        return incoming(records, source, 0, rules.of_source(source))

    tasks = Tasks(1, letters=rules.of)
    translator = Translator(spark=spark, read=read, ends=program.ends, tasks=tasks)
    explained = io.StringIO()
    with redirect_stdout(explained):
        outgoing(sink, translator.frame(sink.inputs[0])).explain("extended")
    return (
        explained.getvalue().partition("== Optimized Logical Plan ==")[2].partition("== Physical Plan ==")[0]
    )


@pytest.mark.parametrize("on_error", ["skip", "dead-letter", "fail"])
def test_a_plan_grows_with_its_columns_and_decodes_a_record_once(on_error: Any, spark: SparkSession) -> None:
    def plan(count: int) -> str:
        form: SchemaFormat = Listed(17)
        bad = "bad" if on_error == "dead-letter" else None
        app = Streams("grows", on_error=on_error, bad=bad, spark=spark)
        stream = app.stream("in", key="k STRING", value_format=form)
        for _ in range(4):
            stream = stream.select(*(f"c{number} + 1 AS c{number}" for number in range(count)))
            stream = stream.filter("c0 is not null")
        stream.to("out")
        return optimised(app.program, spark)

    narrow, two, many = plan(1), plan(2), plan(17)
    assert [text.count("decode(value") for text in (narrow, two, many)] == [1, 1, 1]
    for_a_column = len(two) - len(narrow)
    assert len(many) - len(narrow) <= 20 * for_a_column
    assert len(narrow) < 30_000


def quotient(row: Row) -> int | None:
    if row["a"] is None or row["b"] is None:
        return None
    if row["b"] == 0:
        raise FailedError
    return int(row["a"] // row["b"])


def number_of(row: Row) -> int | None:
    if row["s"] is None:
        return None
    if not row["s"].isdigit():
        raise FailedError
    return int(row["s"])


def total(row: Row) -> int | None:
    return None if row["a"] is None or row["b"] is None else row["a"] + row["b"]


EXPRESSIONS: Final[dict[str, Callable[[Row], Any]]] = {
    "a + b": total,
    "a div b": quotient,
    "if(b = 0, -1, a div b)": lambda row: -1 if row["b"] == 0 else quotient(row),
    "cast(s as bigint)": number_of,
    "coalesce(try_cast(s as bigint), 7)": lambda row: int(row["s"]) if (row["s"] or "x").isdigit() else 7,
    "a": lambda row: row["a"],
}
CONDITIONS: Final[dict[str, Callable[[Row], bool]]] = {
    "a is not null": lambda row: row["a"] is not None,
    "a div b >= 1": lambda row: (quotient(row) or 0) >= 1,
}


@pytest.mark.parametrize("seed", range(3))
def test_records_that_fail_are_left_out_one_by_one_with_generated_code(
    seed: int, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row by row in Python, and as Spark's generated code."""
    monkeypatch.setattr("odradek.streams.driver._SMALL_DATA", {"spark.sql.shuffle.partitions": "1"})
    chosen = random.Random(seed)
    columns = chosen.choices(list(EXPRESSIONS), k=chosen.choice([2, 20]))
    condition = chosen.choice(list(CONDITIONS))
    rows: list[Row] = [
        {
            "a": chosen.choice([None, 0, 1, 9]),
            "b": chosen.choice([None, 0, 1, 4]),
            "s": chosen.choice([None, "x", "12", "3"]),
        }
        for _ in range(60)
    ]
    app = Streams("tried", on_error="skip", spark=spark)
    read = app.stream("in", key="k STRING", value="a BIGINT, b BIGINT, s STRING")
    first = read.select("a", "b", "s", *(f"{text} AS c{place}" for place, text in enumerate(columns)))
    kept = first.filter(condition)
    # What the first operator computed is divided by here, in all its columns.
    kept.select("s", *(f"12 div c{place} AS c{place}" for place in range(len(columns)))).to("out")
    with app.test() as test:
        test.feed("in", [{"key": str(place), "value": row} for place, row in enumerate(rows)])
        written = {record.key: record.value for record in test.read("out")}

    wanted: dict[str, Row] = {}
    for place, row in enumerate(rows):
        try:
            made = [EXPRESSIONS[text](row) for text in columns]
            if not CONDITIONS[condition](row):
                continue
            if 0 in made:
                continue
        except FailedError:
            continue
        divided = {
            f"c{number}": None if value is None else int(12 / value) for number, value in enumerate(made)
        }
        wanted[str(place)] = {"s": row["s"], **divided}
    assert 0 < len(wanted) < len(rows)
    assert written == wanted


@pytest.mark.parametrize("on_error", ["skip", "fail"])
def test_a_null_value_stays_null_where_the_select_says_so(on_error: Any, spark: SparkSession) -> None:
    """The select has an expression that is tried, and one that is not."""
    app = Streams("stays", on_error=on_error, spark=spark)
    read = app.stream("in", key="k STRING", value="a BIGINT")
    for name, null_stays in (("computed", False), ("stays", True)):
        for kind, text in (("plain", "coalesce(a, 7)"), ("tried", "bigint(concat('1', coalesce(a, 7)))")):
            read.select(f"{text} AS b", "k AS c", null_stays=null_stays).to(f"{name}-{kind}")
    with app.test() as test:
        test.feed("in", [{"key": "x", "value": None}, {"key": "y", "value": {"a": None}}])
        written = {
            name: [record.value for record in test.read(name)]
            for name in ("computed-plain", "computed-tried", "stays-plain", "stays-tried")
        }
    assert written == {
        "computed-plain": [{"b": 7, "c": "x"}, {"b": 7, "c": "y"}],
        "computed-tried": [{"b": 17, "c": "x"}, {"b": 17, "c": "y"}],
        "stays-plain": [None, {"b": 7, "c": "y"}],
        "stays-tried": [None, {"b": 17, "c": "y"}],
    }


@pytest.mark.parametrize("is_tried", [False, True])
def test_only_an_expression_that_may_raise_is_tried(is_tried: bool, spark: SparkSession) -> None:
    app = Streams("tries", on_error="skip", spark=spark)
    read = app.stream("in", key_format=Listed(1), value_format=Listed(2))
    text = "c0 div 2 > 1" if is_tried else "c0 > 1 and c1 <> 3"
    read.filter(text).select("coalesce(c0, 1) AS b").to("out")
    assert ("tryeval" in optimised(app.program, spark).lower()) is is_tried
