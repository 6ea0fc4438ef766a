"""Programs of streams and tables through the test driver: what each operator says."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from odradek.model.errors import ConfigError
from odradek.streams import Avro, Processor, StreamRecord, Streams, Timers, To
from odradek.streams.plan.schemas import declared
from odradek.streams.translation.formats import decoded, encoded, source_options
from odradek.streams.translation.frames import struct_type


@pytest.fixture
def app(spark: SparkSession) -> Streams:
    return Streams("tested", emit="every", spark=spark)


Said = Callable[..., list[tuple[Any, Any, int]]]


@pytest.fixture
def said(app: Streams) -> Said:
    """Feed rows to topics, in this order, and read what `out` got: (key, value, timestamp)."""

    def run(*fed: tuple[str, list[Any]], topic: str = "out") -> list[tuple[Any, Any, int]]:
        with app.test() as driver:
            for name, rows in fed:
                driver.feed(name, rows)
            return [(record.key, record.value, record.timestamp) for record in driver.read(topic)]

    return run


def test_stateless_operators(app: Streams, said: Said) -> None:
    words = (
        app.stream("lines", key="STRING", value="STRING")
        .filter("value <> 'skip'")
        .flat_map("split(value, ' ')")
        .map(key="upper(value)", value="length(value)")
    )
    short, long = words.split("value < 4", otherwise=True)
    short.merge(long.select("-value AS value")).to("out")
    lines = [("a", "the quick cat"), ("b", "skip"), ("c", "a", 7), ("d", None)]
    assert said(("lines", lines)) == [
        ("THE", 3, 0),
        ("QUICK", -5, 0),
        ("CAT", 3, 0),
        ("A", 1, 7),
    ]


def test_a_topic_by_expression_and_through(app: Streams) -> None:
    app.stream("in", key="STRING", value="kind STRING, n INT").to(by="concat('kind-', kind)")
    app.stream("in2", key="STRING", value="BIGINT").through("middle").select("value + 1 AS value").to("end")
    with app.test() as driver:
        driver.feed("in", [("a", {"kind": "x", "n": 1}), ("a", {"kind": "y"})])
        driver.feed("in2", [("a", 1)])
        written = driver.read_all()
    assert {topic: [record.value for record in results] for topic, results in written.items()} == {
        "kind-x": [{"kind": "x", "n": 1}],
        "kind-y": [{"kind": "y", "n": None}],
        "middle": [1],
        "end": [2],
    }


def test_aggregates_of_a_stream(app: Streams, said: Said) -> None:
    orders = app.stream("orders", key="STRING", value="item STRING, amount DOUBLE")
    orders.group_by("item").agg("count(*) AS n", "max(amount) - min(amount) AS span").to("out")
    fed = [
        ("a", {"item": "tea", "amount": 1.5}, 9),
        ("b", {"item": "tea", "amount": 4}, 5),
        ("c", {"item": None, "amount": 4}, 5),
        ("d", None, 5),
    ]
    assert said(("orders", fed)) == [("tea", {"n": 1, "span": 0.0}, 9), ("tea", {"n": 2, "span": 2.5}, 9)]


def test_a_grouped_table_takes_old_values_back(app: Streams, said: Said) -> None:
    users = app.table("users", key="STRING", value="city STRING")
    users.group_by("city").count().to("out")
    moves = [("ann", {"city": "Rome"}), ("bob", {"city": "Rome"}), ("ann", {"city": "Oslo"}), ("bob", None)]
    assert [row[:2] for row in said(("users", moves))] == [
        ("Rome", 1),
        ("Rome", 2),
        ("Rome", 1),
        ("Oslo", 1),
        ("Rome", 0),
    ]


def test_python_functions_reduce_and_aggregate(app: Streams) -> None:
    words = app.stream("words", key="STRING", value="STRING")
    words.group_by_key().reduce(lambda product, other: product + other).to("joined")
    words.group_by_key().aggregate(
        lambda: {"n": 0}, lambda key, value, so_far: {"n": so_far["n"] + len(value)}, schema="n INT"
    ).to("lengths")
    with app.test() as driver:
        driver.feed("words", [("a", "x"), ("a", "yz"), ("b", "q")])
        written = driver.read_all()
        assert [(record.key, record.value) for record in written["joined"]] == [
            ("a", "x"),
            ("a", "xyz"),
            ("b", "q"),
        ]
        assert driver.table("lengths") == {"a": {"n": 3}, "b": {"n": 1}}


def test_a_stream_joins_what_a_table_holds_then(app: Streams, said: Said) -> None:
    users = app.table("users", key="STRING", value="name STRING")
    app.stream("orders", key="STRING", value="BIGINT").join(users, how="left").to("out")
    assert said(
        ("orders", [("a", 1, 1)]),
        ("users", [("a", {"name": "Ann"}, 9)]),
        ("orders", [("a", 2, 2), (None, 3, 3), ("a", None, 4)]),
        ("users", [("a", None, 9)]),
        ("orders", [("a", 5, 5)]),
    ) == [
        ("a", {"value": 1, "name": None}, 1),
        ("a", {"value": 2, "name": "Ann"}, 2),
        (None, {"value": 3, "name": None}, 3),
        ("a", {"value": 5, "name": None}, 5),
    ]


def test_tables_join_and_delete(app: Streams, said: Said) -> None:
    left = app.table("left", key="STRING", value="BIGINT")
    right = app.table("right", key="STRING", value="BIGINT")
    left.filter("value > 0").join(right, how="outer", prefix="r_").to("out")
    assert said(
        ("left", [("a", 1, 1)]),
        ("right", [("a", 2, 5)]),
        ("left", [("a", -1, 3)]),
        ("right", [("a", None, 4)]),
    ) == [
        ("a", {"value": 1, "r_value": None}, 1),
        ("a", {"value": 1, "r_value": 2}, 5),
        ("a", {"value": None, "r_value": 2}, 5),
        ("a", None, 4),
    ]


def test_windows_and_their_final_results(app: Streams) -> None:
    grouped = app.stream("in", key="STRING", value="BIGINT").group_by_key()
    grouped.window("10 milliseconds").count().to("updates")
    grouped.window(10, grace=2).final().agg("sum(value) AS value").to("final")
    grouped.session(3).agg("collect_list(value) AS v").to("sessions")
    with app.test() as driver:
        driver.feed("in", [("a", 1, 1), ("b", 2, 8), ("a", 3, 11), ("a", 4, 5), ("a", 5, 30)])
        written = driver.read_all()
    assert [(*record.key.values(), record.value) for record in written["updates"]] == [
        ("a", 0, 10, 1),
        ("b", 0, 10, 1),
        ("a", 10, 20, 1),
        ("a", 30, 40, 1),
    ]
    assert [(*record.key.values(), record.value, record.timestamp) for record in written["final"]] == [
        ("a", 0, 10, 5, 5),
        ("b", 0, 10, 2, 8),
        ("a", 10, 20, 3, 11),
    ]
    assert [(*record.key.values(), record.value) for record in written["sessions"]][-1] == (
        "a",
        30,
        30,
        {"v": [5]},
    )


def test_two_streams_join_within_a_time(app: Streams, said: Said) -> None:
    orders = app.stream("orders", key="STRING", value="item STRING")
    payments = app.stream("payments", key="STRING", value="amount INT")
    orders.join(payments, within="10 milliseconds", how="outer").to("out")
    assert said(
        ("orders", [("a", {"item": "tea"}, 1)]),
        ("payments", [("a", {"amount": 5}, 11), ("b", {"amount": 6}, 12)]),
        ("orders", [("c", {"item": "pot"}, 40)]),
    ) == [
        ("a", {"item": "tea", "amount": 5}, 11),
        ("b", {"item": None, "amount": 6}, 12),
    ]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_foreign_key_follows_both_tables(spark: SparkSession, how: Any, partitions: int) -> None:
    app = Streams("foreign", emit="every", spark=spark, partitions=partitions)
    orders = app.table("orders", key="INT", value="user STRING, item STRING")
    users = app.table("users", key="STRING", value="name STRING")
    joined = orders.join(users, on="user", how=how)
    joined.to("out")
    joined.group_by("name").count().to("by-name")
    with app.test() as driver:
        driver.feed("orders", [(1, {"user": "a", "item": "tea"}), (2, {"user": None, "item": "pot"})])
        driver.feed("users", [("a", {"name": "Ann"}), ("b", {"name": "Bob"})])
        driver.feed(
            "orders", [(1, {"user": "b", "item": "tea"}), (3, {"user": "a", "item": "cup"}), (2, None)]
        )
        driver.feed("users", [("b", {"name": "Bert"})])
        written = driver.read_all()
        updates = [(record.key, record.value and record.value["name"]) for record in written["out"]]
        counts = driver.table("by-name")
    assert [name for key, name in updates if key == 1 and name] == ["Ann", "Bob", "Bert"]
    assert [name for key, name in updates if key == 3] == ["Ann"]
    assert [name for key, name in updates if key == 2] == ([None, None] if how == "left" else [])
    assert {name: count for name, count in counts.items() if count} == {"Ann": 1, "Bert": 1}


@pytest.mark.parametrize("partitions", [1, 3])
def test_windows_follow_a_table_by_a_part_of_their_key(spark: SparkSession, partitions: int) -> None:
    app = Streams("windows", emit="every", spark=spark, partitions=partitions)
    clicks = app.stream("clicks", key="STRING", value="n INT")
    counts = clicks.group_by("key AS who").window("1 minute", grace="1 hour").count()
    users = app.table("users", key="STRING", value="name STRING")
    joined = counts.join_windows(users, "who", held="1 hour")
    joined.to("out")
    joined.to_stream().select_key("name").group_by_key().count().to("by-name")
    with app.test() as driver:
        driver.feed("clicks", [("a", {"n": 1}, 1_000), ("b", {"n": 1}, 2_000), ("a", {"n": 1}, 61_000)])
        driver.feed("users", [("a", {"name": "Ann"}, 61_000), ("c", {"name": "Cid"}, 61_000)])
        driver.feed("clicks", [("a", {"n": 1}, 3_000)])
        driver.feed("users", [("a", None, 62_000)])
        written = driver.read_all()
    assert [(record.key["window_start"], record.value) for record in written["out"]] == [
        (0, {"value": 1, "name": "Ann"}),
        (60_000, {"value": 1, "name": "Ann"}),
        (0, {"value": 2, "name": "Ann"}),
        (0, None),
        (60_000, None),
    ]
    assert [record.value for record in written["by-name"]] == [1, 2, 3]


def test_only_windows_are_held_for_a_time(app: Streams, said: Said) -> None:
    orders = app.table("orders", key="STRING", value="item STRING")
    orders.join_windows(app.table("users", key="STRING", value="name STRING"), "key", held=5).to("out")
    with pytest.raises(ConfigError, match="held= is for a windowed table"):
        said(("orders", []))


class QuietDevices(Processor):
    """Tells a key that had no record for 10 ms."""

    def process(self, record: Any, state: Any, timers: Any) -> Any:
        timers.cancel(state.get("due", 0))
        state["due"] = record.timestamp + 10
        timers.at(state["due"])

    def on_timer(self, key: Any, time: int, state: Any, timers: Any) -> Any:
        yield {"device": key, "since": time - 10}


def test_processors_and_cogroup(app: Streams) -> None:
    beats = app.stream("beats", key="STRING", value="STRING")
    beats.group_by_key().process(QuietDevices(), schema="device STRING, since BIGINT").to("silent")
    more = app.stream("more", key="STRING", value="n INT")
    beats.group_by_key().cogroup(lambda key, value, so_far: [*so_far, value]).cogroup(
        more.group_by_key(), lambda key, value, so_far: [*so_far, str(value["n"])]
    ).aggregate(list, schema="ARRAY<STRING>").to("both")
    with app.test() as driver:
        driver.feed("beats", [("a", "x", 1), ("a", "y", 5)])
        driver.feed("more", [("a", {"n": 7}, 3)])
        driver.feed("beats", [("b", "z", 16)])
        written = driver.read_all()
    assert [(record.value, record.timestamp) for record in written["silent"]] == [
        ({"device": "a", "since": 5}, 15)
    ]
    assert [(record.key, record.value) for record in written["both"]] == [
        ("a", ["x"]),
        ("a", ["x", "y"]),
        ("a", ["x", "y", "7"]),
        ("b", ["z"]),
    ]


def test_peek_foreach_and_frames_of_the_user(app: Streams, spark: SparkSession) -> None:
    called: list[Any] = []
    own = app.from_df(spark.range(3), key="id % 2 AS key", value=["id * 2 AS twice"], timestamp="id + 10")
    own.peek(lambda record: record.value["twice"] + record.key).foreach(called.append)
    with app.test() as driver:
        driver.read_all()
    assert sorted((record.key, record.value["twice"], record.timestamp) for record in called) == [
        (0, 0, 10),
        (0, 4, 12),
        (1, 2, 11),
    ]


@pytest.mark.parametrize(
    ("ddl", "form", "value", "encoding"),
    [
        ("BIGINT", "kafka", -2, b"\xff" * 7 + b"\xfe"),
        ("INT", "kafka", -2, b"\xff\xff\xff\xfe"),
        ("STRING", "kafka", "ü", "ü".encode()),
        ("BIGINT", "json", -2, b"-2"),
        ("BOOLEAN", "json", True, b"true"),
        ("ARRAY<INT>", "json", [1, 2], b"[1,2]"),
        ("a INT, b STRING", "csv", {"a": 1, "b": "x,y"}, b'1,"x,y"'),
        ("a INT, b STRING", "json", {"a": None, "b": "x"}, b'{"a":null,"b":"x"}'),
    ],
)
def test_values_as_bytes_and_back(
    spark: SparkSession, ddl: str, form: str, value: Any, encoding: bytes
) -> None:
    schema = declared(ddl, "value", form)
    kind = struct_type(schema.ddl)
    fields = {schema.names[0]: value} if schema.bare else value
    rows = spark.createDataFrame([(fields,), (None,)], StructType().add("__value", kind))
    written = rows.select(encoded("__value", kind, form, bare=schema.bare).alias("value"))
    assert [None if row.value is None else bytes(row.value) for row in written.collect()] == [encoding, None]
    if form == "json" and not schema.bare:
        return  # the source decodes JSON objects
    decode = source_options(schema, "value").get("valueDecode")
    read = written.select(written.value.cast("string").alias("value") if decode == "utf8" else written.value)
    values = [row.v for row in read.select(decoded(schema, "value").struct.alias("v")).collect()]
    assert [None if row is None else row.asDict() for row in values] == [fields, None]


def test_the_type_of_a_time_is_that_of_the_session_now(spark: SparkSession) -> None:
    name = "spark.sql.timestampType"
    before = spark.conf.get(name) or ""
    kinds = []
    try:
        for setting in ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"):
            spark.conf.set(name, setting)
            kinds.append(struct_type("a timestamp").fields[0].dataType.simpleString())
    finally:
        spark.conf.set(name, before)
    assert kinds == ["timestamp", "timestamp_ntz"]


def test_a_type_is_parsed_once_and_is_the_callers_own(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    ddl = "`a b` STRUCT<x: ARRAY<DECIMAL(5, 2)>> NOT NULL COMMENT 'ü', c MAP<STRING, BINARY>"
    expected = StructType.fromDDL(ddl)
    struct_type(ddl).add("more", "integer")
    monkeypatch.setattr(StructType, "fromDDL", None)
    assert struct_type(ddl) == expected


@pytest.mark.parametrize(
    ("ddl", "form", "wrong", "reason"),
    [
        ("BIGINT", "json", b"ten", "it is not a bigint"),
        ("ARRAY<INT>", "json", b"[1,", "it is not JSON of"),
        ("a INT, b STRING", "json", b"{", "is not JSON that fits"),
        ("a INT, b STRING", "csv", b"x,y", "it is not CSV of"),
        ("BIGINT", "kafka", b"123", "it has 3 bytes, a bigint has 8"),
        ("STRING", "kafka", b"\xff", "it is not text in UTF-8"),
    ],
)
def test_bytes_that_are_wrong_say_where_they_are(
    app: Streams, ddl: str, form: str, wrong: bytes, reason: str
) -> None:
    app.stream("in", key="STRING", value=ddl, value_format=form).to("out")
    with app.test() as driver:
        driver.feed("in", [("a", None)])
        driver.feed("in", [("a", wrong)])
        with pytest.raises(Exception, match=rf"the value at in-0 offset 1.*{reason}"):
            driver.read("out")


def test_a_format_with_a_schema_file(app: Streams, tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    fields = [
        {"name": "item", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ]
    file.write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    order, framed = Avro(file), Avro(file, confluent=True, schema_id=5)
    app.stream("in", key="STRING", value_format=order).filter("item <> 'cup'").to("out", value_format=framed)
    value = {"item": "tea", "at": dt.datetime(2026, 5, 4, 12, tzinfo=dt.UTC)}
    with app.test() as driver:
        driver.feed(
            "in", [("a", value), ("b", order.encode(value)), ("c", order.encode(value | {"item": "cup"}))]
        )
        assert [(record.key, record.value["item"]) for record in driver.read("out")] == [
            ("a", "tea"),
            ("b", "tea"),
        ]
        driver.feed("in", [("d", b"\x06te")])
        with pytest.raises(Exception, match=r"the value at in-0 offset 3: it is not Avro of order\.avsc"):
            driver.read("out")


def test_emit_latest_says_each_key_once_a_batch(spark: SparkSession) -> None:
    app = Streams("latest", spark=spark)
    counts = app.stream("in", key="STRING", value="BIGINT").group_by_key().count()
    counts.to("out")
    with app.test() as driver:
        driver.feed("in", [("a", 1), ("b", 1), ("a", 1)])
        assert [(record.key, record.value) for record in driver.read("out")] == [("b", 1), ("a", 2)]
        assert driver.table(counts) == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda app: app.stream("in", key="STRING", value="a INT").filter("b > 1").to("out"),
            "filter-1: .*`b`",
        ),
        (lambda app: app.stream("in", value="a INT").select("a + 1", "a + 2").to("out"), "needs a name"),
        (lambda app: app.table("t", key="INT", value="a INT").group_by("a").min("a").to("out"), None),
        (lambda app: app.table("t", key="INT", value="a INT").group_by("a").latest("a").to("out"), "latest"),
        (
            lambda app: (
                app.stream("s", key="INT", value="a INT, b INT")
                .group_by_key()
                .agg("count(DISTINCT a, b) AS n")
                .to("out")
            ),
            r"^count\(DISTINCT a, b\) needs 1 argument, not 2$",
        ),
        (
            lambda app: (
                app.stream("s", key="INT", value="a INT").group_by_key().agg("top_k(a) AS top").to("out")
            ),
            r"top_k\(a\) needs 2 arguments, not 1$",
        ),
        (
            lambda app: (
                app.stream("s", key="INT", value="a INT")
                .join(app.table("t", key="BIGINT", value="b INT"))
                .to("out")
            ),
            "join-1: the keys differ: int",
        ),
    ],
)
def test_mistakes_are_named_in_one_line(app: Streams, wrong: Any, message: str | None) -> None:
    wrong(app)
    with app.test() as driver:
        if message is None:
            assert driver.read("out") == []
        else:
            with pytest.raises(ConfigError, match=message) as refused:
                driver.read("out")
            assert "\n" not in str(refused.value)


def test_a_cut_ends_a_batch_and_state_goes_on(spark: SparkSession) -> None:
    app = Streams("cut", spark=spark)
    app.stream("in", key="STRING", value="BIGINT").group_by_key().sum("value", name="sums").to("out")
    with app.test() as driver:
        driver.feed("in", [("a", 1), ("a", 2)])
        driver.cut()
        driver.feed("in", [("a", 3), ("b", 1), ("a", 4)])
        driver.cut()
        assert [(record.key, record.value) for record in driver.read("out")] == [
            ("a", 3),
            ("b", 1),
            ("a", 10),
        ]


def test_time_that_passes_closes_windows_and_calls_timers(app: Streams) -> None:
    stream = app.stream("in", key="STRING", value="BIGINT")
    stream.group_by_key().window("1 minute").final().count().to("windows")
    stream.group_by_key().process(Alarm(), schema="BIGINT").to("alarms")
    other = app.stream("other", key="STRING", value="BIGINT")
    stream.join(other, within="10 seconds", how="left", prefix="other_").to("alone")
    with app.test() as driver:
        driver.feed("in", [("a", 1, 5_000_000)])
        assert driver.read_all() == {"windows": [], "alarms": [], "alone": []}
        driver.advance("2 minutes")
        assert {topic: len(records) for topic, records in driver.read_all().items()} == {
            "windows": 1,
            "alarms": 1,
            "alone": 1,
        }
        (alarm,) = driver.read("alarms")
        assert (alarm.value, alarm.timestamp) == (7, 5_030_000)
        driver.feed("in", [("a", 1)])
        driver.feed("in", [("a", 1, 5_000_000)])  # late: its window is closed
        driver.advance("1 hour")
        assert [record.timestamp for record in driver.read("windows")] == [5_000_000, 5_120_000]


class Alarm(Processor):
    """Half a minute after each record."""

    def process(self, record: StreamRecord, state: dict[str, Any], timers: Timers) -> None:
        timers.at(record.timestamp + 30_000)

    def on_timer(self, key: Any, time: int, state: dict[str, Any], timers: Timers) -> list[int]:
        return [7]


def test_versioned_and_global_tables(spark: SparkSession) -> None:
    app = Streams("tables", emit="every", partitions=3, spark=spark)
    orders = app.stream("orders", key="STRING", value="currency STRING, country STRING")
    rates = app.table("rates", key="STRING", value="rate DOUBLE", versioned="1 minute")
    countries = app.global_table("countries", key="STRING", value="name STRING")
    orders.join(rates, on="currency", how="left").select("rate").to("rated")
    orders.join(countries, on="upper(country)").select("name").to("named")
    rates.group_by("CAST(rate AS INT)").count().to("counts")
    with app.test() as driver:
        driver.feed("countries", [("IT", {"name": "Italy"}), ("NO", {"name": "Norway"})])
        driver.feed("rates", [("eur", {"rate": 2.0}, 20), ("eur", {"rate": 1.0}, 10)])
        driver.feed(
            "orders",
            [
                ("a", {"currency": "eur", "country": "it"}, 15),
                (None, {"currency": "eur", "country": "no"}, 25),
                ("b", {"currency": "usd", "country": "xx"}, 30),
            ],
        )
        written = driver.read_all()
    said = {topic: [(record.key, record.value) for record in records] for topic, records in written.items()}
    assert sorted(said["rated"], key=str) == [
        ("a", {"rate": 1.0}),
        ("b", {"rate": None}),
        (None, {"rate": 2.0}),
    ]
    assert sorted(said["named"], key=str) == [("a", {"name": "Italy"}), (None, {"name": "Norway"})]
    assert said["counts"] == [(2, 1)]


def test_a_grace_that_a_table_has_no_history_for_is_refused(app: Streams) -> None:
    orders = app.stream("orders", key="STRING", value="STRING")
    for versioned in (None, "1 second"):
        table = app.table("t", key="STRING", value="STRING", versioned=versioned)
        with pytest.raises(ConfigError, match="remembers as long"):
            orders.join(table, grace="2 seconds")


class RemindsLater(Processor):
    """Says a value a minute later on the clock."""

    def process(self, record: Any, state: Any, timers: Any) -> None:
        timers.at(timers.wall_clock + 60_000, wall_clock=True)

    def on_wall_clock_timer(self, key: Any, time: int, state: Any, timers: Any) -> Any:
        yield To("late" if key == "b" else "early", time)


def test_the_clock_of_a_test_moves_timers_and_idle_windows(app: Streams) -> None:
    stream = app.stream("in", key="STRING", value="BIGINT")
    outputs = stream.group_by_key().process(RemindsLater(), outputs={"early": "BIGINT", "late": "BIGINT"})
    outputs["early"].to("early")
    outputs["late"].to("late")
    with app.test() as driver:
        driver.feed("in", [("a", 1, 0)])
        driver.advance("30 seconds")
        driver.feed("in", [("b", 1)])
        driver.advance("31 seconds")
        driver.advance("1 minute")
        written = driver.read_all()
    assert [(record.key, record.value) for record in written["early"]] == [("a", 60_000)]
    assert [(record.key, record.value) for record in written["late"]] == [("b", 90_000)]
