"""Records that cannot be decoded or handled: dead letters, records left out, errors that say where."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.streams.until_now import run

from odradek.client import Producer
from odradek.spark.engine import session
from odradek.streams import Processor, StreamRecord, Streams, Timers

PREFIX = "__dlq.errors."


class Picky(Processor):
    """Counts; refuses the item `nail`."""

    def process(self, record: StreamRecord, state: dict[str, Any], timers: Timers) -> Iterable[Any]:
        state["n"] = state.get("n", 0) + 1
        if record.value["item"] == "nail":
            raise ValueError("no nails, please")
        yield state["n"]


def shop(
    spark: SparkSession, on_error: Any, servers: str | None = None, topic: str = "orders", out: str = "out"
) -> Streams:
    """Three things that may fail: the bytes, an expression, a processor. All of it twice, for two outputs."""
    app = Streams("picky", servers=servers, emit="every", on_error=on_error, bad=f"{out}.dead", spark=spark)
    orders = app.stream(topic, key="STRING", value="item STRING, amount STRING", name="orders")
    priced = orders.select(
        "item", "CAST(amount AS INT) * 2 AS amount", "CAST(amount AS INT) + 1 AS more", name="priced"
    )
    counted = (
        priced.filter("10 / amount > 0", name="sold")
        .group_by("item")
        .process(Picky(), schema="INT", name="picky")
    )
    counted.to(out, name="first")
    counted.select("-value AS value", name="negative").to(f"{out}.negative", name="second")
    return app


GIVEN = (
    b'{"item": "tea", "amount": "2"}',
    b"{",
    b'{"item": "cup", "amount": "two"}',
    b'{"item": "nail", "amount": "3"}',
    b'{"item": "pot", "amount": "0"}',
    b'{"item": "tea", "amount": "4"}',
)
STAGES = {1: "orders", 2: "priced", 3: "picky", 4: "sold"}
"""The stage in which the record of each offset fails."""


def test_letters_in_a_test(spark: SparkSession) -> None:
    with shop(spark, "dead-letter").test() as t:
        t.feed("orders", [("a", value) for value in GIVEN])
        assert [record.value for record in t.read("out")] == [1, 2]
        assert [record.value for record in t.read("out.negative")] == [-1, -2]
        letters = {}
        for letter in t.read("out.dead"):
            headers = {name.removeprefix(PREFIX): value for name, value in letter.headers}
            offset = int(headers["offset"] or b"")
            letters[offset] = (headers["stage"] or b"").decode()
            assert (headers["topic"], letter.key, letter.value) == (b"orders", b"a", GIVEN[offset])
        assert letters == STAGES


def test_records_that_are_left_out(spark: SparkSession) -> None:
    with shop(spark, "skip").test() as t:
        t.feed("orders", [("a", value) for value in GIVEN])
        assert {topic: len(records) for topic, records in t.read_all().items()} == {
            "out": 2,
            "out.negative": 2,
        }


class Noted:
    """Whole numbers as text. Each that is decoded becomes a line of a file."""

    name, ddl, is_record = "noted", "BIGINT", False

    def __init__(self, path: Path) -> None:
        self._path = path

    def decode(self, data: bytes) -> int:
        with self._path.open("ab", buffering=0) as file:
            file.write(data + b"\n")
        return int(data)

    def encode(self, value: int) -> bytes:
        return b"%d" % value


@pytest.mark.parametrize("on_error", ["fail", "skip", "dead-letter"])
def test_a_value_is_decoded_once_whatever_is_filtered_by_it(
    spark: SparkSession, tmp_path: Path, on_error: Any
) -> None:
    decoded = tmp_path / "decoded"
    app = Streams("noted", on_error=on_error, bad="dead", spark=spark)
    numbers = app.stream("in", key="STRING", value_format=Noted(decoded))
    doubled = numbers.filter("value > 1").select("value * 2 AS value").filter("value < 8")
    doubled.select("value + 1 AS value").filter("value > 0").to("out")
    with app.test() as t:
        t.feed("in", [("a", b"%d" % number) for number in range(6)])
        assert [record.value for record in t.read("out")] == [5, 7]
    assert sorted(decoded.read_bytes().split()) == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (GIVEN[1], "the value at orders-0 offset 1 is not JSON"),
        (GIVEN[2], "The value .two. of the type .STRING. cannot be cast to .INT."),
        (GIVEN[3], "picky failed at orders-0 offset 1: ValueError: no nails, please"),
    ],
)
def test_an_error_says_where(spark: SparkSession, value: bytes, message: str) -> None:
    with shop(spark, "fail").test() as t:
        t.feed("orders", [("a", GIVEN[0]), ("a", value)])
        with pytest.raises(Exception, match=message):
            t.read("out")


def test_a_look_that_raises(spark: SparkSession) -> None:
    def look(record: StreamRecord) -> None:
        if record.value == 3:
            raise KeyError("three")

    app = Streams("look", on_error="dead-letter", bad="dead", spark=spark)
    app.stream("in", key="STRING", value="BIGINT").peek(look, name="looking").to("out")
    with app.test() as t:
        t.feed("in", [("a", 2), ("b", 3), ("c", 4)])
        assert [record.value for record in t.read("out")] == [2, 4]
        (letter,) = t.read("dead")
        assert (letter.key, letter.value, dict(letter.headers)[f"{PREFIX}exception"]) == (
            b"b",
            b"3",
            b"KeyError",
        )


STRICT = "if(x IS NULL, raise_error('x is null'), x)"


@pytest.mark.parametrize("on_error", ["fail", "dead-letter"])
def test_expressions_see_records_alone_and_not_what_passes(spark: SparkSession, on_error: Any) -> None:
    """What cannot be decoded passes each operator on its way to the dead letters, with nothing in it."""
    app = Streams("strict", on_error=on_error, bad="dead", spark=spark)
    numbers = app.stream("in", key="STRING", value="x INT", timestamp=STRICT, bad="dead", name="numbers")
    kept = numbers.filter(f"{STRICT} > 0").select(f"{STRICT} AS x").flat_map(f"array({STRICT})")
    kept = kept.select("value AS x")
    counted = kept.group_by(f"{STRICT} AS k").agg(f"sum({STRICT}) AS s", f"count({STRICT}) AS n")
    counted.filter("n > 0").select(f"{STRICT.replace('x', 'n')} AS n").to("counted")
    table = app.table("names", key="INT", value="name STRING")
    kept.with_timestamp(STRICT).join(table, on=STRICT, select=(f"{STRICT} AS x", "name")).to("joined")
    with app.test() as t:
        t.feed("names", [(1, {"name": "one"})])
        t.feed("in", [("a", b'{"x":1}'), ("a", b"nonsense"), ("a", b'{"x":2}')])
        assert [(record.key, record.value) for record in t.read("counted")] == [(1, {"n": 1}), (2, {"n": 1})]
        assert [record.value for record in t.read("joined")] == [{"x": 1, "name": "one"}]
        assert [letter.value for letter in t.read("dead")] == [b"nonsense"]


def test_a_time_that_python_does_not_have_fails_with_its_record(spark: SparkSession) -> None:
    app = Streams("late", on_error="dead-letter", bad="dead", spark=spark)
    times = app.stream("in", key="STRING", value="ms BIGINT").select("ms", "timestamp_millis(ms) AS t")
    times.peek(lambda record: None, name="peeking").select("ms").to("peeked")
    times.group_by_key().agg("latest(t) AS t", "sum(ms) AS ms", name="keeping").select("ms").to("kept")
    with app.test() as t:
        t.feed("in", [("a", {"ms": 1}), ("a", {"ms": 10**15}), ("b", {"ms": 2})])
        assert sorted(record.value["ms"] for record in t.read("peeked")) == [1, 2]
        assert sorted(record.value["ms"] for record in t.read("kept")) == [1, 2]
        stages = sorted(dict(letter.headers)[f"{PREFIX}stage"] for letter in t.read("dead"))
        assert stages == [b"keeping", b"peeking"]


def test_letters_are_written_once_in_the_transaction_of_the_output(
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    orders, out = new_topic(), new_topic()
    app = shop(spark, "dead-letter", servers, orders.name, out.name)
    with Producer(servers) as producer:
        for name in (f"{out.name}.dead", f"{out.name}.negative"):
            producer.partitions_for(name)
        for value in GIVEN:
            producer.send(orders.name, value, key=b"a", headers=[("trace", b"7")])
    for _ in range(2):
        run(app, tmp_path)

    class Written:
        name = f"{out.name}.dead"

    assert [row["value"] for row in consume(out)] == [b"1", b"2"]
    letters = {}
    rows = consume(Written())
    for row in rows:
        headers = dict(row["headers"])
        offset = int(headers[f"{PREFIX}offset"])
        letters[offset] = headers[f"{PREFIX}stage"].decode()
        assert (row["key"], row["value"], headers["trace"]) == (b"a", GIVEN[offset], b"7")
        assert headers[f"{PREFIX}batch"] == b"0"
    assert letters == STAGES
    assert len(rows) == len(STAGES)


def test_letters_beside_a_function_that_is_called_say_query_and_batch(
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    orders, dead = new_topic(), new_topic()
    called = []
    app = Streams("calls", servers=servers, on_error="dead-letter", bad=dead.name, spark=spark)
    app.stream(orders.name, key="STRING", value="item STRING").foreach(called.append)
    with Producer(servers) as producer:
        for value in GIVEN[:2]:
            producer.send(orders.name, value, key=b"a")
    run(app, tmp_path)
    assert [record.value for record in called] == [{"item": "tea"}]
    (letter,) = consume(dead)
    headers = dict(letter["headers"])
    assert (letter["key"], letter["value"], headers[f"{PREFIX}batch"]) == (b"a", GIVEN[1], b"0")
    assert len(headers[f"{PREFIX}query"]) == len("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")


@pytest.mark.parametrize("level", ["DEBUG", "WARNING"])
def test_a_task_that_fails_writes_no_stack_trace_unless_it_is_wanted(
    spark: SparkSession, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The query's error is the one line that a user sees; Spark's own text is there at level DEBUG."""
    jvm: Any = spark.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    before = {name: log4j.LogManager.getLogger(name).getLevel() for name in session.FAILED_TASKS}
    try:
        for name in session.FAILED_TASKS:
            log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)
        with caplog.at_level(level, "odradek.streams"):
            session.keep_quiet(spark)
        shown = {name: log4j.LogManager.getLogger(name).isErrorEnabled() for name in session.FAILED_TASKS}
        assert shown == dict.fromkeys(session.FAILED_TASKS, level == "DEBUG")
    finally:
        for name, earlier in before.items():
            log4j.core.config.Configurator.setLevel(name, earlier)
