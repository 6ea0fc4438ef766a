"""What a mistake in a program says: one line, in which nothing of Spark's or of ours is in the way. And what tests can do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.streams.until_now import TIMEOUT_S, send

from odradek.model.errors import ConfigError
from odradek.streams import Processor, Streams, Timers
from odradek.streams.translation.spark_errors import QueryFailedError

Build = Callable[[Any], Any]


def orders_of(app: Streams, topic: str = "orders") -> Any:
    return app.stream(topic, key="STRING", value="item STRING, amount INT")


TYPOS: dict[str, tuple[Build, str]] = {
    "filter": (lambda orders: orders.filter("amuont > 1"), "`amuont` cannot be resolved.*`amount`"),
    "syntax": (lambda orders: orders.filter("amount >> > 1"), "Syntax error at or near '>'"),
    "select": (lambda orders: orders.select("itme"), "`itme` cannot be resolved.*`item`"),
    "function": (lambda orders: orders.select("uper(item) AS item"), "`uper`"),
    "flat_map": (lambda orders: orders.flat_map("item"), "item"),
    "key": (lambda orders: orders.select_key("itme"), "`itme` cannot be resolved.*`item`"),
    "group": (lambda orders: orders.group_by("itme").count(), "`itme` cannot be resolved.*`item`"),
    "aggregate": (
        lambda orders: orders.group_by_key().agg("sum(amuont) AS s"),
        "`amuont` cannot be resolved.*`amount`",
    ),
    "join": (
        lambda orders: orders.join(orders.to_table(), prefix="r_", select="r_amuont AS n"),
        "`r_amuont` cannot be resolved.*`r_amount`",
    ),
}


@pytest.mark.parametrize("typo", TYPOS)
def test_a_typo_in_an_expression_prints_no_stack(
    spark: SparkSession, typo: str, capfd: Any, caplog: Any
) -> None:
    build, message = TYPOS[typo]
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ConfigError, match=message) as raised:
        built_and_read(spark, build)
    said = str(raised.value)
    assert len(said) < 1_000
    assert said.count("\n") == (2 if typo == "syntax" else 0)
    printed = capfd.readouterr()
    for text in (said, printed.out, printed.err, caplog.text):
        assert "\tat " not in text
        assert "__value" not in text
        assert "JVM" not in text


def test_a_program_that_fails_on_a_broker_says_it_in_one_line(
    spark: SparkSession, servers: str, new_topic: Callable[..., Any], tmp_path: Path, capfd: Any
) -> None:
    """Two queries of one program: the one that fails is named, with the record and the program's own line."""
    orders, good, bad = (new_topic() for _ in range(3))
    app = Streams("fails", servers=servers)
    amounts = app.stream(orders.name, key="STRING", value="BIGINT")
    amounts.to(good.name, name="good")
    amounts.group_by_key().process(Inverse(), schema="DOUBLE", name="inverse").to(bad.name, name="bad")
    send(servers, orders, ("a", "2", 1), ("a", "0", 2))
    with (
        app.start(checkpoint=str(tmp_path), until_now=True, spark=spark) as running,
        pytest.raises(QueryFailedError) as raised,
    ):
        running.wait(TIMEOUT_S)
    said = str(raised.value)
    assert said.startswith(f"bad: inverse failed at {orders.name}-0 offset 1: ZeroDivisionError:"), said
    assert "in process: yield 1 / record.value" in said
    assert "\n" not in said
    assert "Traceback" not in capfd.readouterr().out


def built_and_read(spark: SparkSession, build: Build) -> None:
    app = Streams("typos", spark=spark)
    build(orders_of(app)).to("out")
    with app.test() as driver:
        driver.feed("orders", [("a", {"item": "cup", "amount": 1})])
        driver.read("out")


class Inverse(Processor):
    def process(self, record: Any, state: Any, timers: Any) -> Any:
        yield 1 / record.value


def test_a_topic_that_the_program_does_not_have_is_an_error(spark: SparkSession) -> None:
    app = Streams("topics", spark=spark)
    orders_of(app).to("copies")
    with app.test() as driver:
        for read in (driver.read, driver.table):
            with pytest.raises(
                ConfigError, match=r"does not write a topic 'copeis'; it writes copies.*copies"
            ):
                read("copeis")
        with pytest.raises(ConfigError, match=r"does not read a topic 'order'; it reads orders"):
            driver.feed("order", [("a", None)])
        assert driver.read("copies") == []
        names: list[Any] = [5, None, "", ["orders"]]
        for wrong in names:
            calls = (driver.read, driver.table, driver.records, lambda topic: driver.feed(topic, []))
            for call in (*calls, lambda rows: driver.feed("orders", rows)):
                with pytest.raises(ConfigError, match=r"text such as|stream or a table|list"):
                    call(wrong)


def test_a_topic_of_letters_and_those_of_an_expression_can_be_read(spark: SparkSession) -> None:
    app = Streams("topics", spark=spark, on_error="dead-letter", bad="bad")
    orders_of(app).to("copies")
    with app.test() as driver:
        assert driver.read("bad") == []
    app = Streams("topics", spark=spark)
    orders_of(app).to(by="item")
    with app.test() as driver:
        assert driver.read("whatever a record names") == []


def test_flat_map_makes_keys(spark: SparkSession) -> None:
    app = Streams("flat", spark=spark)
    orders = app.stream("orders", key="STRING", value="items ARRAY<STRUCT<item: STRING, amount: INT>>")
    orders.flat_map("items", key="item", value="amount * 2 AS value").to("values")
    orders.flat_map("items", key="item").group_by_key().sum("amount").to("sums")
    orders.flat_map("items", key=["key AS user", "item"]).to("both")
    with app.test() as driver:
        items = [{"item": "cup", "amount": 1}, {"item": "tea", "amount": 2}, {"item": "cup", "amount": 3}]
        driver.feed("orders", [("a", {"items": items}, 5), ("b", {"items": []}, 6), ("c", None, 7)])
        assert [(record.key, record.value, record.timestamp) for record in driver.read("values")] == [
            ("cup", 2, 5),
            ("tea", 4, 5),
            ("cup", 6, 5),
        ]
        assert driver.table("sums") == {"cup": 4, "tea": 2}
        assert [record.key for record in driver.read("both")] == [
            {"user": "a", "item": bought} for bought in ("cup", "tea", "cup")
        ]


class Clocks(Processor):
    """Asks for both timers ten milliseconds on, and says when each comes."""

    def process(self, record: Any, state: Any, timers: Timers) -> Any:
        timers.at(record.timestamp + 10)
        timers.at(timers.wall_clock + 10, wall_clock=True)
        return ()

    def on_timer(self, key: Any, time: int, state: Any, timers: Timers) -> Any:
        yield "stream time"

    def on_wall_clock_timer(self, key: Any, time: int, state: Any, timers: Timers) -> Any:
        yield "wall clock"


def test_the_wall_clock_moves_alone(spark: SparkSession) -> None:
    app = Streams("clocks", spark=spark, emit="every")
    stream = app.stream("in", key="STRING", value="INT")
    stream.group_by_key().process(Clocks(), schema="STRING").to("out")
    stream.group_by_key().window(10).final().count().to("windows")

    def written(move: Callable[[Any], None]) -> tuple[list[Any], int]:
        with app.test() as driver:
            driver.feed("in", [("a", 1, 5)])
            move(driver)
            return [record.value for record in driver.read("out")], len(driver.read("windows"))

    assert written(lambda driver: driver.advance_wall_clock(9)) == ([], 0)
    assert written(lambda driver: driver.advance_wall_clock("1 hour")) == (["wall clock"], 0)
    both, windows = written(lambda driver: driver.advance(20))
    assert (sorted(both), windows) == (["stream time", "wall clock"], 1)


class Known(Processor):
    def process(self, record: Any, state: Any, timers: Any) -> Any:
        yield f"{record.key} {record.value}"


def test_what_differs_from_kafka_streams_is_as_the_reference_says(spark: SparkSession) -> None:
    """The order of a merger's arguments, structs whose fields are null, and records without key in processors."""
    app = Streams("differs", spark=spark, emit="every")
    texts = app.stream("texts", key="STRING", value="STRING")
    texts.group_by_key().session(10, grace=50).aggregate(
        lambda: "",
        lambda key, value, text: f"{text}{value}",
        merge=lambda key, text, other: f"({text} {other})",
        schema="STRING",
    ).to("merged")
    texts.select("CAST(null AS INT) AS n").to_table().to("structs")
    texts.select("CAST(null AS INT) AS value").to_table().to("bare")
    texts.group_by_key().process(Known(), schema="STRING").to("with-key")
    texts.select_key("coalesce(key, 'none')").group_by_key().process(Known(), schema="STRING").to("all")
    with app.test() as driver:
        driver.feed("texts", [("a", "1", 0), ("a", "2", 20), ("a", "3", 10), (None, "4", 10)])
        records = driver.read_all()
    sessions = [record.value for record in records["merged"] if record.value is not None]
    assert sessions == ["1", "2", "(1 2)3"]  # Kafka's merger begins with what its initializer says
    assert [record.value for record in records["structs"]] == [{"n": None}] * 3
    assert [record.value for record in records["bare"]] == [None] * 3
    assert [record.value for record in records["with-key"]] == ["a 1", "a 2", "a 3"]
    assert [record.value for record in records["all"]] == ["a 1", "a 2", "a 3", "none 4"]
