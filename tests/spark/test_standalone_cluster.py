"""A pipeline on a Spark cluster: a master and two workers on loopback, and the runner as its supervisor starts it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from tests.kit.waiting import eventually
from tests.spark.conftest import Rows, Topic

from odradek.pipelines.document import PipelineDocument, PipelineVersion
from odradek.pipelines.program_file import ProgramSources
from odradek.pipelines.reports import Command, Failed, Report, Running, RunProgress
from odradek.pipelines.runner_process import RunnerProcess
from odradek.pipelines.serving import runner_command, runner_terms
from odradek.spark.engine.unpacked_pyspark import unpacked_pyspark

PATIENCE_S = 240.0
WORKERS = 2
_HOME = Path(pyspark.__file__).parent
_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

PROGRAM = """
import os
from odradek.streams import Streams

source, target = {source!r}, {target!r}
app = Streams({target!r}, servers=os.environ["ODRADEK_BOOTSTRAP"], partitions=2, emit="every")
orders = app.stream(source, key="STRING", value="BIGINT")
orders.group_by_key().agg("count(*) AS n", name="counts").to(target, name="out")
"""


class Daemon:
    """A process of Spark's standalone cluster."""

    def __init__(self, log: Path, *words: str) -> None:
        self.log = log
        environment = {
            **os.environ,
            "SPARK_HOME": str(_HOME),
            "SPARK_DAEMON_JAVA_OPTS": _BRIEF,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(_HOME / "bin" / "spark-class"), *words],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def said(self, pattern: str) -> re.Match[str]:
        def look() -> re.Match[str] | None:
            assert self._process.poll() is None, self.log.read_text()[-2_000:]
            return re.search(pattern, self.log.read_text())

        match: re.Match[str] = eventually(look, pattern, seconds=PATIENCE_S)
        return match

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _worker(url: str, directory: Path, number: int) -> Daemon:
    return Daemon(
        directory / f"worker-{number}.log",
        *("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0"),
        *("--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work-{number}"), url),
    )


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a cluster with two workers, of one core each."""
    daemons = [
        Daemon(
            tmp_path / "master.log",
            *(
                "org.apache.spark.deploy.master.Master",
                "--host",
                "127.0.0.1",
                "--port",
                "0",
                "--webui-port",
                "0",
            ),
        )
    ]
    try:
        url = daemons[0].said(r"spark://127\.0\.0\.1:\d+")[0]
        daemons += [_worker(url, tmp_path, number) for number in range(WORKERS)]
        for worker in daemons[1:]:
            worker.said("Successfully registered with master")
        yield url
    finally:
        for daemon in reversed(daemons):
            daemon.stop()


def test_the_same_file_runs_on_two_workers(
    master: str,
    servers: str,
    new_topic: Callable[..., Topic],
    consume: Callable[[Topic], Rows],
    tmp_path: Path,
) -> None:
    source, target = new_topic(), new_topic()
    for key in (b"a", b"b", b"c", b"d"):
        source.send(b"1", b"1", key=key)
    file = tmp_path / "counting.py"
    file.write_text(PROGRAM.format(source=source.name, target=target.name))
    document = PipelineDocument(
        name="counting",
        versions=(PipelineVersion(number=1, program=str(file), checkpoint="counting/v1"),),
        master=master,
        conf=(
            ("spark.executor.memory", "512m"),
            ("spark.executor.extraJavaOptions", _BRIEF),
            ("spark.driver.extraJavaOptions", _BRIEF),
            ("spark.driver.host", "127.0.0.1"),
            ("spark.ui.enabled", "false"),
        ),
    )
    places = ProgramSources(files=(document.current.program,))
    terms = runner_terms(document, servers, tmp_path, places)
    with unpacked_pyspark():  # its JVM reads the archive of classes, though its master is not local
        runner = RunnerProcess(runner_command(document), terms=terms, directory=tmp_path)
    reports: list[Report] = []

    def has_read_all() -> bool:
        reports.extend(runner.reports())
        failures = [report.line for report in reports if isinstance(report, Failed)]
        assert not failures, failures
        assert runner.end() is None, list(runner.log)[-5:]
        return sum(report.rows_count for report in reports if isinstance(report, RunProgress)) == 8

    try:
        eventually(has_read_all, "all records are read", seconds=PATIENCE_S)
        runner.send(Command.STOP)
        assert eventually(lambda: runner.end() is not None, "it stops", seconds=PATIENCE_S)
        assert runner.end() == 0
    finally:
        runner.kill()
        eventually(lambda: runner.end() is not None, "its process is gone", seconds=PATIENCE_S)
        runner.close()
    assert isinstance(reports[0], Running)
    counts = sorted((row["key"], json.loads(row["value"])["n"]) for row in consume(target))
    assert counts == [(key, number) for key in (b"a", b"b", b"c", b"d") for number in (1, 2)]
    executors = list(tmp_path.glob("work-*/app-*/*/stderr"))
    assert len({path.parts[len(tmp_path.parts)] for path in executors}) == WORKERS, "both workers had tasks"
