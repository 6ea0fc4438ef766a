"""Frameworks that applications are written in: `python -m tests.interop.languages.applications [NAME ...]` (`make interop`
builds all, CI Kafka Streams).

Kafka Streams, with what it needs; a virtual environment with FastStream and Quix Streams; another with Spark and Spark's own
connector; ksqlDB's client of Node: outside the repository and the project's own environment, because they bring versions of
their own of the clients.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from benchmarks.peer import PeerAbsentError, cached_peer, fetch_peer
from benchmarks.peer.fetch import fetch_artifacts, java_command
from tests.interop.languages.prepare import NPM_INSTALL, AbsentError, Language, main, run_within

_HERE = Path(__file__).parent
WORD_COUNT, STREAMS_LOGINS, STREAMS_JOB = "WordCount", "StreamsLogins", "StreamsJob"
_STREAMS_SOURCES = tuple(f"java/{name}.java" for name in (WORD_COUNT, STREAMS_LOGINS, STREAMS_JOB, "Hold"))


def _build_streams(directory: Path) -> None:
    try:
        fetch_artifacts("kafka-streams", version=fetch_peer().version, into=directory / "jars")
    except PeerAbsentError as reason:
        raise AbsentError(str(reason)) from reason
    sources = [str(_HERE / source) for source in _STREAMS_SOURCES]
    run_within("javac", "-cp", f"{directory}/jars/*", "-d", str(directory), *sources, within=directory)


def _streams(directory: Path) -> list[str]:
    """Returns the command without the class, which is one of those above."""
    try:
        peer = cached_peer()
    except PeerAbsentError as reason:
        raise AbsentError(str(reason)) from reason
    machine = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    class_path = f"{directory}/jars/*:{directory}:{peer.class_path}"  # the last for OAUTHBEARER
    return [java_command(), *machine, "-cp", class_path]


def _build_python(directory: Path) -> None:
    run_within(sys.executable, "-m", "venv", str(directory / "venv"), within=directory)
    wanted = str(_HERE / "python" / "requirements.txt")
    pip = str(directory / "venv" / "bin" / "python")
    run_within(pip, "-m", "pip", "install", "--quiet", "-r", wanted, within=directory)


def _python(directory: Path) -> list[str]:
    """The interpreter; the programs are those of this folder."""
    return [str(directory / "venv" / "bin" / "python")]


def _build_spark(directory: Path) -> None:
    try:
        java_command()
        jars = directory / "jars"
        connector = f"spark-sql-kafka-0-10_{_SPARK_SCALA}"
        fetch_artifacts(connector, version=_SPARK_VERSION, into=jars, group="org.apache.spark")
    except PeerAbsentError as reason:
        raise AbsentError(str(reason)) from reason
    for theirs in ("scala-library-*", "hadoop-*", "slf4j-*"):  # Spark has its own
        for jar in jars.glob(theirs):
            jar.unlink()
    run_within(sys.executable, "-m", "venv", str(directory / "venv"), within=directory)
    pip = str(directory / "venv" / "bin" / "python")
    run_within(pip, "-m", "pip", "install", "--quiet", f"pyspark=={_SPARK_VERSION}", within=directory)


def _spark(directory: Path) -> list[str]:
    return [*_python(directory), str(PYTHON_PROGRAMS / "spark_connector.py"), _spark_jars(directory)]


def spark_logins() -> list[str]:
    """The command of `python/spark_logins.py`. AbsentError unless Spark was built."""
    application = APPLICATIONS["spark"]
    application.ready()
    program = str(PYTHON_PROGRAMS / "spark_logins.py")
    return [*_python(application.directory), program, _spark_jars(application.directory)]


def _spark_jars(directory: Path) -> str:
    return ",".join(str(jar) for jar in sorted((directory / "jars").glob("*.jar")))


def _build_ksqldb(directory: Path) -> None:
    for file in ("package.json", "ksqldb.js"):
        shutil.copy(_HERE / "node/ksqldb" / file, directory)
    run_within(*NPM_INSTALL, within=directory)


PYTHON_PROGRAMS = _HERE / "python"
_SPARK_VERSION, _SPARK_SCALA = "4.0.0", "2.13"
"""The newest whose connector, and all that it needs, is published where all the rest of this comes from."""
APPLICATIONS = {
    named.name: named
    for named in (
        Language(
            name="kafka-streams",
            title="Kafka Streams",
            version="as the peer",
            sources=_STREAMS_SOURCES,
            build=_build_streams,
            command=_streams,
        ),
        Language(
            name="frameworks",
            title="FastStream, Quix Streams",
            version="as python/requirements.txt",
            sources=("python/requirements.txt",),
            build=_build_python,
            command=_python,
        ),
        Language(
            name="spark",
            title="spark-sql-kafka-0-10",
            version=_SPARK_VERSION,
            sources=("python/spark_connector.py",),
            build=_build_spark,
            command=_spark,
        ),
        Language(
            name="ksqldb-client",
            title="ksqldb-client",
            version=json.loads((_HERE / "node/ksqldb/package.json").read_text(encoding="utf-8"))[
                "dependencies"
            ]["ksqldb-client"],
            sources=("node/ksqldb/package.json", "node/ksqldb/ksqldb.js"),
            build=_build_ksqldb,
            command=lambda directory: ["node", str(directory / "ksqldb.js")],
        ),
    )
}

if __name__ == "__main__":
    sys.exit(main([APPLICATIONS[name] for name in sys.argv[1:] or APPLICATIONS]))
