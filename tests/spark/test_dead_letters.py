"""Bad records reach the dead-letter topic with the output of their batch, or not at all; good ones are not held up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark program gives it

from odradek import Consumer, TopicPartition
from odradek.dead_letters.headers import Origin
from odradek.dead_letters.letter import DeadLetter, read_letter
from odradek.model.errors import ConfigError
from odradek.spark import add_dead_letters, guarded, split_dead_letters, where_or_dead

MakeTopic = Callable[..., Any]
Finish = Callable[[Any], None]
JSON = {"valueDecode": "json", "valueSchema": "item STRING, amount DOUBLE", "decodeErrors": "dead-letter"}
GOOD = [b'{"item": "tea", "amount": 2}', b'{"item": "milk", "amount": 1}']
BAD = [b"\xff\x00 no text", b'{"item": "tea", "amount": "two"}']


def committed(topic: Any) -> list[Any]:
    """What a read_committed consumer sees of partition 0."""
    partition = TopicPartition(topic.name, 0)
    records: list[Any] = []
    with Consumer(topic.servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            records += consumer.poll(1.0)
    return records


def letters_in(topic: Any) -> list[DeadLetter]:
    return [read_letter(record) for record in committed(topic)]


def start(frame: DataFrame, target: Any, dead: Any, checkpoint: Path, **options: str) -> Any:
    return (
        frame.writeStream.format("odradek")
        .option("kafka.bootstrap.servers", target.servers)
        .option("topic", target.name)
        .option("deadLetterTopic", dead.name)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )


def as_json(orders: DataFrame) -> DataFrame:
    return orders.select("key", F.to_json("value").alias("value"), "deadLetter")


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_bad_records_are_kept_with_their_origin_and_good_ones_go_on(
    new_topic: MakeTopic, read_stream: Any, tmp_path: Path, run_to_end: Finish, delivery: str
) -> None:
    source, target, dead = new_topic(), new_topic(), new_topic()
    source.send(GOOD[0], BAD[0], GOOD[1], BAD[1], key=b"\xfek", headers=[("trace", b"\x01")], timestamp_ms=77)
    more = {"delivery": delivery} | ({"sinkId": target.name} if delivery == "exactly_once" else {})
    query = start(as_json(read_stream(source, **JSON)), target, dead, tmp_path / "c", **more)
    run_to_end(query)
    assert [record.value for record in committed(target)] == [
        b'{"item":"tea","amount":2.0}',
        b'{"item":"milk","amount":1.0}',
    ]
    letters = letters_in(dead)
    assert [letter.value for letter in letters] == BAD
    assert {letter.key for letter in letters} == {b"\xfek"}
    assert letters[1].origin == Origin(topic=source.name, partition=0, offset=3, timestamp_ms=77)
    assert letters[1].failure.message == 'field amount is "two", not a DOUBLE'
    assert (letters[1].by.query, letters[1].by.batch) == (query.id, 0)


def test_a_dead_letter_of_a_batch_that_fails_is_not_there_and_comes_with_the_batch_that_works(
    spark: Any, new_topic: MakeTopic, read_stream: Any, tmp_path: Path, run_to_end: Finish
) -> None:
    source, target, dead = new_topic(), new_topic(), new_topic()
    source.send(BAD[0], GOOD[0])
    once = {"delivery": "exactly_once", "sinkId": target.name}

    def into(partition: int) -> DataFrame:
        return as_json(read_stream(source, **JSON)).withColumn("partition", F.lit(partition))

    with pytest.raises(StreamingQueryException, match="7"):
        run_to_end(
            start(into(7), target, dead, tmp_path / "c", **once)
        )  # no such partition: the good row fails
    assert (committed(target), letters_in(dead)) == ([], [])
    run_to_end(start(into(0), target, dead, tmp_path / "c", **once))
    assert len(committed(target)) == 1
    assert [letter.value for letter in letters_in(dead)] == [BAD[0]]


@guarded("DOUBLE")
def priced(product: str, amount: float) -> float:
    return {"tea": 3.0}[product] * amount


def test_what_a_function_raises_is_a_dead_letter_with_the_record_as_it_was_read(
    new_topic: MakeTopic, read_stream: Any, tmp_path: Path, run_to_end: Finish
) -> None:
    source, target, dead = new_topic(), new_topic(), new_topic()
    source.send(GOOD[0], BAD[1], GOOD[1], headers=[("trace", b"\x01")])
    orders = read_stream(source, includeRecord="true", **JSON)
    rows = orders.transform(priced.apply, "price", "value.item", "value.amount").select(
        F.col("price").cast("string").alias("value"), "deadLetter"
    )
    run_to_end(start(rows, target, dead, tmp_path / "c"))
    assert [record.value for record in committed(target)] == [b"6.0"]
    undecodable, unpriced = letters_in(dead)
    assert (undecodable.value, undecodable.failure.stage) == (BAD[1], "value")
    assert (unpriced.value, unpriced.failure.stage) == (GOOD[1], "priced")
    assert (unpriced.failure.exception, unpriced.failure.message) == ("KeyError", "'milk'")
    assert "KeyError: 'milk'" in unpriced.failure.stacktrace
    assert unpriced.own_headers == (("trace", b"\x01"),)
    assert unpriced.origin is not None
    assert unpriced.origin.offset == 2


def test_a_function_of_ones_own_decodes_what_has_no_decoder(
    new_topic: MakeTopic, read: Any, servers: str, tmp_path: Path
) -> None:
    """Called once for each row, and not for rows with a dead letter; here in a batch write."""
    source, target, dead = new_topic(), new_topic(), new_topic()
    source.send(b"tea;2", b"milk", b"milk;x")
    calls = tmp_path / "calls"

    @guarded("item STRING, amount INT", name="decode")
    def split(value: bytes) -> tuple[str, int]:
        product, amount = value.decode().split(";")
        return product, int(amount)

    @guarded("STRING")
    def noted(product: str) -> str:
        with calls.open("a") as file:
            file.write(f"{product}\n")
        return product

    rows = read(source).transform(split.apply, "order", "value").transform(noted.apply, "item", "order.item")
    (
        rows.select(F.col("item").alias("value"), "deadLetter")
        .write.format("odradek")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target.name)
        .option("deadLetterTopic", dead.name)
        .mode("append")
        .save()
    )
    assert [record.value for record in committed(target)] == [b"tea"]
    assert [(letter.value, letter.failure.stage, letter.by.query) for letter in letters_in(dead)] == [
        (b"milk", "decode", None),
        (b"milk;x", "decode", None),
    ]
    assert calls.read_text().split() == ["tea"]
    assert split(b"a;1") == ("a", 1)


def test_filters_and_aggregates_keep_dead_letters_when_they_are_asked_to(
    new_topic: MakeTopic, read_stream: Any, tmp_path: Path, run_to_end: Finish
) -> None:
    source, target, dead = new_topic(), new_topic(), new_topic()
    source.send(GOOD[0], BAD[0], GOOD[1], GOOD[1], timestamp_ms=1_000)
    source.send(GOOD[0], timestamp_ms=600_000)  # moves the watermark past the first window
    orders = where_or_dead(read_stream(source, maxOffsetsPerTrigger="5", **JSON), "value.amount < 2")
    good, bad = split_dead_letters(orders)
    counted = (
        good.withWatermark("timestamp", "1 second")
        .groupBy(F.window("timestamp", "1 minute"), "value.item")
        .count()
        .select(F.col("item").alias("key"), F.col("count").cast("string").alias("value"))
    )
    source.send(b'{"item": "end", "amount": 0}', timestamp_ms=900_000)
    run_to_end(start(add_dead_letters(counted, bad), target, dead, tmp_path / "c"))
    assert [(record.key, record.value) for record in committed(target)] == [(b"milk", b"2")]
    assert [letter.value for letter in letters_in(dead)] == [BAD[0]]


def test_what_would_lose_or_change_dead_letters_is_refused(
    new_topic: MakeTopic, read: Any, topic: Any, servers: str
) -> None:
    topic.send(b"x")
    raw = read(topic)
    with pytest.raises(ConfigError, match="needs the columns partition, offset"):
        priced.apply(raw.drop("partition", "offset"), "price", "key")
    with pytest.raises(ConfigError, match="includeRecord=true"):
        priced.apply(read(topic, **JSON), "price", "value.item", "value.amount")
    with pytest.raises(ConfigError, match="call guarded functions once for each half"):
        split_dead_letters(priced.apply(raw, "price", "key", "key"))
    with pytest.raises(ConfigError, match="needs the column deadLetter"):
        where_or_dead(raw, "true")
    writer = read(topic, **JSON).select(F.lit("v").alias("value"), "deadLetter").write.format("odradek")
    with pytest.raises(PySparkException, match="set the option deadLetterTopic"):
        writer.options(**{"kafka.bootstrap.servers": servers, "topic": topic.name}).mode("append").save()
