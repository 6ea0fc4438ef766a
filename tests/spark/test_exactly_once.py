"""Exactly once: a batch's output is all there or not at all, and what was written twice is there once."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kit.waiting import eventually

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame
from tests.spark.programs.killed_program import MOMENTS, STANDS_STILL, still_file
from tests.spark.programs.own_program import ROOT, command, last_lines

from odradek import Admin, Consumer, TopicPartition
from odradek.spark.exactly_once.decision import DECISIONS_TOPIC
from odradek.spark.options.sink_ids import group_of

QUERY_TIMEOUT_S = 90.0
MakeTopic = Callable[..., Any]
Finish = Callable[[Any], None]


def committed(topic: Any, partitions: int = 1) -> list[bytes]:
    """What a read_committed consumer sees up to the last stable offset."""
    values = []
    wanted = [TopicPartition(topic.name, number) for number in range(partitions)]
    with Consumer(topic.servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign(wanted)
        ends = consumer.end_offsets(wanted)
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            values += [record.value for record in consumer.poll(1.0)]
    return values


@pytest.fixture
def sink_id(topic: Any) -> str:
    return str(topic.name)


def start(frame: DataFrame, target: Any, checkpoint: Path, sink_id: str, **options: str) -> Any:
    return (
        frame.select("value")
        .writeStream.format("odradek")
        .option("kafka.bootstrap.servers", target.servers)
        .option("topic", target.name)
        .option("delivery", "exactly_once")
        .option("sinkId", sink_id)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def test_a_stream_writes_each_row_once_over_many_batches(
    topic: Any, new_topic: MakeTopic, read_stream: Any, tmp_path: Path, run_to_end: Finish, sink_id: str
) -> None:
    source = new_topic(2)
    source.send_numbers(0, 50)
    source.send_numbers(50, 100, partition=1)
    query = start(read_stream(source, maxOffsetsPerTrigger="20"), topic, tmp_path / "c", sink_id)
    run_to_end(query)
    assert sorted(committed(topic), key=int) == numbers(0, 100)


def test_the_decision_holds_what_the_batch_has_read(
    topic: Any, new_topic: MakeTopic, read_stream: Any, tmp_path: Path, run_to_end: Finish, sink_id: str
) -> None:
    source = new_topic(2)
    source.send_numbers(0, 5)
    source.send_numbers(5, 12, partition=1)
    run_to_end(start(read_stream(source), topic, tmp_path / "c", sink_id, publishOffsets=f"lag-of-{sink_id}"))
    partitions = [TopicPartition(source.name, 0), TopicPartition(source.name, 1)]
    with Admin(source.servers) as admin:
        for group in (group_of(sink_id), f"lag-of-{sink_id}"):
            offsets = admin.list_group_offsets(group, partitions)
            assert [getattr(offsets[partition], "offset", None) for partition in partitions] == [5, 7]


def test_a_query_goes_on_where_its_checkpoint_ends(
    topic: Any, new_topic: MakeTopic, read_stream: Any, tmp_path: Path, run_to_end: Finish, sink_id: str
) -> None:
    source = new_topic()
    for first in (0, 10, 20):
        source.send_numbers(first, first + 10)
        run_to_end(start(read_stream(source), topic, tmp_path / "c", sink_id))
    assert committed(topic) == numbers(0, 30)


def test_a_fresh_checkpoint_under_an_old_sink_id_is_refused(
    topic: Any, new_topic: MakeTopic, read_stream: Any, tmp_path: Path, run_to_end: Finish, sink_id: str
) -> None:
    source = new_topic()
    source.send_numbers(0, 10)
    run_to_end(start(read_stream(source), topic, tmp_path / "c", sink_id))
    with pytest.raises(StreamingQueryException, match="belongs to query"):
        run_to_end(start(read_stream(source), topic, tmp_path / "other", sink_id))
    assert committed(topic) == numbers(0, 10)
    run_to_end(start(read_stream(source), topic, tmp_path / "third", sink_id, takeOver="true"))
    assert Counter(committed(topic)) == Counter(numbers(0, 10) * 2)


def rewind(checkpoint: Path, batch: int) -> None:
    """Makes a checkpoint what its backup right after a batch was."""
    for name in ("offsets", "commits"):
        for file in (checkpoint / name).iterdir():
            number = file.name.strip(".").removesuffix(".crc")
            if number.isdigit() and int(number) > batch:
                file.unlink()


def test_a_checkpoint_from_a_backup_goes_on_or_is_refused_and_nothing_is_lost_or_doubled(
    topic: Any, new_topic: MakeTopic, read_stream: Any, tmp_path: Path, run_to_end: Finish, sink_id: str
) -> None:
    source = new_topic()

    def run(most: int, **more: str) -> None:
        frame = read_stream(source, maxOffsetsPerTrigger=str(most), **more)
        checkpoint = tmp_path / ("new" if more else "c")
        run_to_end(start(frame, topic, checkpoint, sink_id, **({"resume": "true"} if more else {})))

    source.send_numbers(0, 20)
    run(10)
    rewind(tmp_path / "c", 0)
    source.send_numbers(20, 30)
    run(10)
    assert committed(topic) == numbers(0, 30), "the batches since the backup are the same again"
    rewind(tmp_path / "c", 0)
    source.send_numbers(30, 40)
    with pytest.raises(
        StreamingQueryException, match="the checkpoint is older than the sink's last decision"
    ):
        run(25)
    assert committed(topic) == numbers(0, 30)
    run(25, resume="true", sinkId=sink_id)
    assert committed(topic) == numbers(0, 40)


def test_files_that_came_after_a_backup_are_not_taken_for_those_of_the_decided_batch(
    spark: Any, topic: Any, tmp_path: Path, run_to_end: Finish, sink_id: str
) -> None:
    files = tmp_path / "files"
    files.mkdir()

    def run(*names: str) -> None:
        for name in names:
            (files / name).write_text(name)
        run_to_end(start(spark.readStream.format("text").load(str(files)), topic, tmp_path / "c", sink_id))

    run("a")
    run("b")
    backup = tmp_path / "backup"
    shutil.copytree(tmp_path / "c", backup)
    run("c")
    for _ in range(2):
        shutil.rmtree(tmp_path / "c")
        shutil.copytree(backup, tmp_path / "c")
        run()
    shutil.rmtree(tmp_path / "c")
    shutil.copytree(backup, tmp_path / "c")
    with pytest.raises(
        StreamingQueryException, match="it has read other records than the one that was decided"
    ):
        run("d")
    assert committed(topic) == [b"a", b"b", b"c"]


def test_a_lost_decision_is_refused(
    topic: Any, new_topic: MakeTopic, read_stream: Any, tmp_path: Path, run_to_end: Finish, sink_id: str
) -> None:
    source = new_topic()
    source.send_numbers(0, 10)
    run_to_end(start(read_stream(source), topic, tmp_path / "c", sink_id))
    with Admin(source.servers) as admin:
        admin.delete_groups([group_of(sink_id)])
    source.send_numbers(10, 20)
    with pytest.raises(StreamingQueryException, match="is the first that sink"):
        run_to_end(start(read_stream(source), topic, tmp_path / "c", sink_id))
    assert committed(topic) == numbers(0, 10)


def test_a_failing_task_leaves_nothing(
    spark: Any,
    topic: Any,
    new_topic: MakeTopic,
    read_stream: Any,
    tmp_path: Path,
    run_to_end: Finish,
    sink_id: str,
) -> None:
    source = new_topic(2)
    source.send_numbers(0, 20)
    source.send_numbers(20, 40, partition=1)
    failing = (
        "IF(CAST(value AS STRING) = '35', CAST(raise_error('failed on purpose') AS BINARY), value) AS value"
    )
    with pytest.raises(StreamingQueryException, match="failed on purpose"):
        run_to_end(start(read_stream(source).selectExpr(failing), topic, tmp_path / "c", sink_id))
    assert committed(topic) == []
    run_to_end(start(read_stream(source), topic, tmp_path / "c", sink_id))
    assert sorted(committed(topic), key=int) == numbers(0, 40)


def test_a_plan_that_gives_other_rows_each_time_leaves_the_rows_of_one_attempt(
    topic: Any, new_topic: MakeTopic, read_stream: Any, tmp_path: Path, run_to_end: Finish, sink_id: str
) -> None:
    """A batch fails when one of its tasks has written, is written again, and is asked for once more once it was decided."""
    source = new_topic(2)
    source.send_numbers(0, 20)
    source.send_numbers(20, 40, partition=1)
    other_each_time = "concat(CAST(value AS STRING), ':', uuid())"
    failing = (
        f"IF(CAST(value AS STRING) = '35', raise_error('failed on purpose'), {other_each_time}) AS value"
    )

    def run(expression: str) -> None:
        run_to_end(start(read_stream(source).selectExpr(expression), topic, tmp_path / "c", sink_id))

    with pytest.raises(StreamingQueryException, match="failed on purpose"):
        run(failing)
    run(f"{other_each_time} AS value")
    rows = committed(topic)
    assert sorted((row.split(b":")[0] for row in rows), key=int) == numbers(0, 40)
    for kept in (tmp_path / "c" / "commits").glob("*0*"):
        kept.unlink()  # Spark does not know any more that the batch is done
    run(f"{other_each_time} AS value")
    assert (tmp_path / "c" / "commits" / "0").exists(), "Spark has done the batch again"
    assert committed(topic) == rows


def test_a_batch_write_with_the_same_key_is_done_once(spark: Any, topic: Any, sink_id: str) -> None:
    def write(key: str, first: int) -> None:
        (
            spark.range(first, first + 10, numPartitions=2)
            .selectExpr("CAST(id AS STRING) AS value")
            .write.format("odradek")
            .option("kafka.bootstrap.servers", topic.servers)
            .option("topic", topic.name)
            .option("delivery", "exactly_once")
            .option("sinkId", sink_id)
            .option("idempotenceKey", key)
            .mode("append")
            .save()
        )

    write("monday", 0)
    write("monday", 0)
    write("tuesday", 10)
    assert sorted(committed(topic), key=int) == numbers(0, 20)


def test_foreach_batch_writes_a_batch_once(
    topic: Any, new_topic: MakeTopic, read_stream: Any, tmp_path: Path, run_to_end: Finish, sink_id: str
) -> None:
    source = new_topic()
    source.send_numbers(0, 10)
    tries: list[int] = []

    def write_and_fail(batch: DataFrame, number: int) -> None:
        (
            batch.select("value")
            .write.format("odradek")
            .options(**{"kafka.bootstrap.servers": topic.servers, "topic": topic.name})
            .options(delivery="exactly_once", sinkId=sink_id)
            .mode("append")
            .save()
        )
        tries.append(number)
        if len(tries) == 1:
            raise RuntimeError("failed after the write, on purpose")

    def run() -> None:
        run_to_end(
            read_stream(source)
            .writeStream.foreachBatch(write_and_fail)
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )

    with pytest.raises(StreamingQueryException, match="on purpose"):
        run()
    run()
    assert tries == [0, 0]
    assert committed(topic) == numbers(0, 10)


def test_two_queries_with_one_sink_id_write_nothing_twice(
    topic: Any, new_topic: MakeTopic, read_stream: Any, tmp_path: Path, run_to_end: Finish, sink_id: str
) -> None:
    source = new_topic()
    source.send_numbers(0, 30)
    first = start(read_stream(source, maxOffsetsPerTrigger="1"), topic, tmp_path / "c", sink_id)
    eventually((tmp_path / "c" / "commits" / "0").exists, seconds=QUERY_TIMEOUT_S)
    with pytest.raises(StreamingQueryException, match="belongs to query"):
        run_to_end(start(read_stream(source), topic, tmp_path / "other", sink_id))
    try:
        run_to_end(first)
    except StreamingQueryException as error:  # it was between the beginning and the decision of a batch
        assert "another query uses sink" in str(error)  # noqa: PT017 - it may as well have been between two batches
    run_to_end(start(read_stream(source), topic, tmp_path / "c", sink_id))
    assert committed(topic) == numbers(0, 30)


def test_speculation_is_refused(spark: Any, topic: Any, sink_id: str) -> None:
    frame = spark.range(1).selectExpr("'v' AS value").write.format("odradek").mode("append")
    frame = frame.options(delivery="exactly_once", sinkId=sink_id, idempotenceKey="k", topic=topic.name)
    spark.sparkContext.setLocalProperty(
        "spark.speculation", "true"
    )  # as SQL hands it on from the session's settings
    try:
        with pytest.raises(PySparkException, match=r"does not go with spark\.speculation=true"):
            frame.option("kafka.bootstrap.servers", topic.servers).save()
    finally:
        spark.sparkContext.setLocalProperty("spark.speculation", None)
    assert committed(topic) == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"delivery": "exactly_once"}, "needs a name that stays the same"),
        ({"delivery": "exactly_once", "sinkId": "a b"}, "letters, digits"),
        ({"delivery": "exactly_once", "sinkId": "a"}, "idempotenceKey"),
        ({"sinkId": "a"}, "only of use with delivery=exactly_once"),
        (
            {"delivery": "exactly_once", "sinkId": "a", "kafka.transactional.id": "t"},
            "transactional.id cannot be set",
        ),
    ],
)
def test_what_cannot_be_exactly_once_is_refused(
    spark: Any, topic: Any, options: dict[str, str], reason: str
) -> None:
    frame = spark.range(1).selectExpr("'v' AS value").write.format("odradek").mode("append")
    frame = frame.option("kafka.bootstrap.servers", topic.servers).option("topic", topic.name)
    with pytest.raises(PySparkException, match=reason):
        frame.options(**options).save()
    assert committed(topic) == []


def test_the_topic_of_decisions_holds_no_record(topic: Any) -> None:
    with Consumer(topic.servers) as consumer:
        ends = consumer.end_offsets([TopicPartition(DECISIONS_TOPIC, 0)])
    assert list(ends.values()) == [0]


def program(topic: Any, source: Any, checkpoint: Path, sink_id: str, moment: str, *, tasks: int) -> list[str]:
    """The command of a query with a JVM of its own."""
    terms = {
        "servers": topic.servers,
        "source": source.name,
        "topic": topic.name,
        "sink": sink_id,
        "checkpoint": str(checkpoint),
        "moment": moment,
        "tasks": tasks,
    }
    return command("tests.spark.programs.killed_program", terms)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_driver_that_is_killed_loses_nothing_and_doubles_nothing(
    topic: Any,
    new_topic: MakeTopic,
    read_stream: Any,
    tmp_path: Path,
    run_to_end: Finish,
    sink_id: str,
    moment: str,
) -> None:
    """240 records in 4 batches; a worker dies in the first, the JVM in the second, and the replay has fewer tasks, or more."""
    source = new_topic(2)
    source.send_numbers(0, 120)
    source.send_numbers(120, 240, partition=1)
    before, after = (5, 2) if MOMENTS.index(moment) % 2 == 0 else (2, 5)
    killed = subprocess.run(
        program(topic, source, tmp_path / "c", sink_id, moment, tasks=before),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (tmp_path / "c" / "commits" / "0").exists(), last_lines(killed.stderr)  # though a worker died
    assert (tmp_path / "c" / "offsets" / "1").exists(), last_lines(killed.stderr)
    assert not (tmp_path / "c" / "commits" / "1").exists(), "the JVM was not killed in its second batch"
    assert not (tmp_path / "c" / "offsets" / "2").exists()
    frame = read_stream(source, maxOffsetsPerTrigger="60").repartition(after)
    run_to_end(start(frame, topic, tmp_path / "c", sink_id))
    assert sorted(committed(topic), key=int) == numbers(0, 240)


def test_two_live_drivers_write_nothing_twice(
    topic: Any, new_topic: MakeTopic, read_stream: Any, tmp_path: Path, run_to_end: Finish, sink_id: str
) -> None:
    """One JVM stands still before it decides its second batch, another takes over its checkpoint, and the first goes on."""
    source = new_topic(2)
    source.send_numbers(0, 120)
    source.send_numbers(120, 240, partition=1)
    still = still_file(str(tmp_path / "c"))
    words = program(topic, source, tmp_path / "c", sink_id, STANDS_STILL, tasks=3)
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True) as first:
        try:
            deadline = time.monotonic() + QUERY_TIMEOUT_S
            while not still.exists():
                assert first.poll() is None, last_lines(first.communicate()[1])
                assert time.monotonic() < deadline
                time.sleep(0.05)
            run_to_end(start(read_stream(source, maxOffsetsPerTrigger="60"), topic, tmp_path / "c", sink_id))
            assert sorted(committed(topic), key=int) == numbers(0, 240)
            assert first.poll() is None, "it is alive, and has tasks' transactions to decide"
            still.unlink()
            _, errors = first.communicate(timeout=QUERY_TIMEOUT_S)
        finally:
            first.kill()
    assert "another query uses sink" in errors
    assert sorted(committed(topic), key=int) == numbers(0, 240)
