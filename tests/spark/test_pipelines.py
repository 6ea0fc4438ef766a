"""A runner's queries in the session of the tests: progress, pause, failure. Processes are tried in tests/unit/pipelines."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sf
from tests.spark.conftest import QUERY_TIMEOUT_S, Rows, Topic

from odradek.pipelines.program_file import MODULE, LoadedProgram
from odradek.pipelines.reports import Command, Failed, Paused, Report, Running, RunProgress
from odradek.pipelines.runner import PipelineRun, RunnerTerms, follow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Follow = Callable[..., tuple[int, list[Report]]]


@pytest.fixture
def followed(spark: SparkSession, servers: str, tmp_path: Path) -> Follow:
    """Follow a pipeline to its end. `answer` gets each report, and may give a command. Gives the exit code and the reports."""

    def run(
        pipeline: Callable[[SparkSession], Any],
        reply: Callable[[Report], Command | None] = lambda report: None,
    ) -> tuple[int, list[Report]]:
        commands: queue.Queue[Command] = queue.Queue()
        reports: list[Report] = []

        def say(report: Report) -> None:
            reports.append(report)
            command = reply(report)
            if command is not None:
                commands.put(command)

        place = str(tmp_path / "checkpoint")
        terms = RunnerTerms(name="copy", servers=servers, checkpoint=place, delivery="exactly_once")
        program = LoadedProgram(module=ModuleType(MODULE), sha256="", pipeline=pipeline)
        at_last = threading.Timer(QUERY_TIMEOUT_S, lambda: commands.put(Command.STOP))
        at_last.start()
        try:
            return follow(PipelineRun(program, terms, spark), commands, say), reports
        finally:
            at_last.cancel()

    return run


def stream_of(spark: SparkSession, topic: Topic, **options: str) -> DataFrame:
    return (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", topic.servers)
        .option("subscribe", topic.name)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
    )


def test_a_pipeline_says_what_it_has_read_and_goes_on_after_a_pause(
    followed: Follow, new_topic: Callable[..., Topic], consume: Callable[[Topic], Rows]
) -> None:
    source, target = new_topic(), new_topic()
    source.send(b"a", b"b")

    def pipeline(spark: SparkSession) -> dict[str, Any]:
        writer = stream_of(spark, source).selectExpr("upper(string(value)) AS value").writeStream
        options = {"kafka.bootstrap.servers": target.servers, "topic": target.name}
        return {"copy": writer.format("odradek").options(**options)}

    def answer(report: Report) -> Command | None:
        if isinstance(report, Paused):
            source.send(b"c")
            return Command.RESUME
        read = report.inputs if isinstance(report, RunProgress) else None
        return None if read is None else {2: Command.PAUSE, 3: Command.STOP}.get(read[source.name][0])

    code, reports = followed(pipeline, answer)
    assert code == 0
    states = [type(report) for report in reports if not isinstance(report, RunProgress)]
    assert states == [Running, Paused, Running]
    assert sum(report.rows_count for report in reports if isinstance(report, RunProgress)) == 3
    assert [row["value"] for row in consume(target)] == [b"A", b"B", b"C"]


def test_a_failure_is_reported_with_its_record(followed: Follow, new_topic: Callable[..., Topic]) -> None:
    source = new_topic()
    source.send(b'{"n": 1}', b"no JSON")

    def pipeline(spark: SparkSession) -> Any:
        rows = stream_of(spark, source, valueDecode="json", valueSchema="n BIGINT")
        return rows.writeStream.format("noop")

    code, reports = followed(pipeline)
    failed = reports[-1]
    assert isinstance(failed, Failed)
    assert (code, failed.is_final) == (1, False)
    assert str(failed.place) == f"{source.name}-0 at offset 1"


def raising(spark: SparkSession, topic: Topic) -> Any:
    def refuse(value):  # type: ignore[no-untyped-def]  # Spark looks for annotations, and knows few
        raise ValueError(f"{value!r} is not for me")

    rows = stream_of(spark, topic)
    return rows.select(sf.udf(refuse)("value").alias("value")).writeStream.format("noop")


def without_broker(spark: SparkSession, topic: Topic) -> Any:
    elsewhere = Topic(topic.name, "127.0.0.1:1")
    more = {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "1000"}
    return stream_of(spark, elsewhere, **more).writeStream.format("noop")


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (raising, "ValueError: b'a' is not for me (the batch begins at {topic}-0 at offset 0)"),
        (without_broker, "127.0.0.1:1"),
    ],
    ids=["function", "broker"],
)
def test_what_a_query_died_of_is_one_line(
    followed: Follow,
    new_topic: Callable[..., Topic],
    program: Callable[[SparkSession, Topic], Any],
    line: str,
) -> None:
    source = new_topic()
    source.send(b"a")
    code, reports = followed(lambda spark: program(spark, source))
    failed = reports[-1]
    assert isinstance(failed, Failed)
    assert (code, failed.is_final) == (1, False)
    assert line.format(topic=source.name) in failed.line
    assert "\n" not in failed.line


def test_a_checkpoint_that_cannot_be_written_is_reported(
    followed: Follow, new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    (tmp_path / "checkpoint").write_text("a file where a directory is to be")
    source = new_topic()
    code, [failed] = followed(lambda spark: stream_of(spark, source).writeStream.format("noop"))
    assert isinstance(failed, Failed)
    assert (code, failed.is_final) == (1, False)
    assert "checkpoint" in failed.line


def test_what_is_no_pipeline_is_said_for_good(followed: Follow) -> None:
    code, [failed] = followed(lambda spark: 1)
    assert isinstance(failed, Failed)
    assert (code, failed.is_final) == (1, True)
    assert failed.line.startswith("pipeline(spark) returned int: return a writer")
