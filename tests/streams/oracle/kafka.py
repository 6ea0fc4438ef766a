"""Kafka Streams as the oracle: `java/` built with Maven's jars into the cache of the interop programs, and run as one process.

    python -m tests.streams.oracle.kafka      builds it

What cannot be built here is absent, with the reason; tests then skip with the same words. They build and fetch nothing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.peer import PeerAbsentError, fetch_peer
from benchmarks.peer.fetch import fetch_artifacts, java_command
from tests.interop.languages.prepare import AbsentError, Language, main, run_within
from tests.streams.oracle.comparison import Outputs
from tests.streams.oracle.generator import Document

_SOURCES = tuple(str(source) for source in sorted((Path(__file__).parent / "java").glob("*.java")))
_MEMORY = Path("/dev/shm")
"""State of the oracle goes here where it exists: RocksDB waits for a disk otherwise."""


class OracleError(Exception):
    """Kafka refused a document: a fault of the generator."""


def _build(directory: Path) -> None:
    try:
        fetch_artifacts("kafka-streams-test-utils", version=fetch_peer().version, into=directory / "jars")
    except PeerAbsentError as reason:
        raise AbsentError(str(reason)) from reason
    run_within("javac", "-cp", f"{directory}/jars/*", "-d", str(directory), *_SOURCES, within=directory)


def _command(directory: Path) -> list[str]:
    try:
        java = java_command()
    except PeerAbsentError as reason:
        raise AbsentError(str(reason)) from reason
    machine = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return [java, *machine, "-cp", f"{directory}/jars/*:{directory}", "Oracle"]


PROGRAM = Language(
    name="streams-oracle",
    title="kafka-streams-test-utils",
    version="as the peer",
    sources=_SOURCES,
    build=_build,
    command=_command,
)


class KafkaOracle:
    """One JVM that answers any number of documents. `with KafkaOracle() as kafka:`; AbsentError where it is not built."""

    def __init__(self) -> None:
        command = PROGRAM.ready()
        self.version = _version(PROGRAM.directory)
        self._state = Path(
            tempfile.mkdtemp(prefix="streams-oracle-", dir=_MEMORY if _MEMORY.is_dir() else None)
        )
        self._process = subprocess.Popen(
            [*command, str(self._state)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._state, ignore_errors=True)

    def answers(self, documents: Iterable[Document]) -> Iterator[Outputs]:
        """What Kafka Streams writes for each. OracleError where it refuses one."""
        for document in documents:
            yield self.answer(document)

    def answer(self, document: Document) -> Outputs:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(document) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise OracleError(f"the oracle ended at seed {document['seed']}")
        line_fields = json.loads(line)
        if "error" in line_fields:
            raise OracleError(f"seed {document['seed']}: {line_fields['error']}")
        outputs: Outputs = line_fields["outputs"]
        return outputs


def _version(directory: Path) -> str:
    return next((directory / "jars").glob("kafka-streams-[0-9]*.jar")).stem.removeprefix("kafka-streams-")


if __name__ == "__main__":
    sys.exit(main([PROGRAM]))
