"""The two sides, each a process that runs one program at a time and takes commands."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import psutil

from benchmarks.odradek_node import serve_environment
from benchmarks.peer import PeerAbsentError, fetch_peer
from benchmarks.peer.fetch import cache_directory, fetch_artifacts, java_command

ROOT: Final = Path(__file__).resolve().parents[2]
_SOURCE: Final = Path(__file__).parent / "java" / "StreamsPeer.java"
KAFKA_STREAMS: Final = "Kafka Streams"
OURS: Final = "odradek.streams"


class SideFailedError(Exception):
    """A process of the benchmark ended; the message has the end of what it wrote."""


class Side:
    """A process. `with Side(...)`: it ends with the block."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: dict[str, str]) -> None:
        self.name = name
        self._log = log
        with log.open("wb") as written:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=written,
                text=True,
                cwd=ROOT,
                env=environment,
            )
        self._known: dict[int, tuple[str, float]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        ended = self._process.poll() is not None
        children = [] if ended else psutil.Process(self._process.pid).children(recursive=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        for child in children:
            if child.is_running():
                child.kill()

    def start(
        self,
        program: str,
        guarantee: str,
        application: str,
        commit_ms: int,
        inputs: Sequence[str],
        output: str,
    ) -> None:
        """Return when the program reads its input."""
        self._ask(
            f"start {program} {guarantee} {application} {commit_ms} {','.join(inputs)} {output}", "ready"
        )

    def stop(self) -> None:
        self._ask("stop", "stopped")

    def _ask(self, command: str, answer: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line.strip() != answer:
            raise SideFailedError(f"{self.name} at {command!r}: {self.last_words()}")

    def check(self) -> None:
        """SideFailedError when the process has ended."""
        if self._process.poll() is not None:
            raise SideFailedError(f"{self.name} ended: {self.last_words()}")

    def last_words(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-2_000:]

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time by kind of process, user and system: the process and all below it, those that have ended included."""
        self.check()
        process = psutil.Process(self._process.pid)
        for member in [process, *process.children(recursive=True)]:
            try:
                times, kind = member.cpu_times(), _kind_of(member)
            except psutil.NoSuchProcess:
                continue
            self._known[member.pid] = kind, times.user + times.system
        sums: dict[str, float] = {}
        for kind, seconds in self._known.values():
            sums[kind] = sums.get(kind, 0.0) + seconds
        return sums


def _kind_of(process: psutil.Process) -> str:
    return "JVM" if process.name().startswith("java") else "Python"


def kafka_streams(servers: str, directory: Path) -> Side:
    """PeerAbsentError without Java, a compiler or the jars."""
    java = java_command()
    version = fetch_peer().version
    classes = _built(version)
    command = [java, "-Xmx1g", "-cp", f"{classes}/jars/*:{classes}", "StreamsPeer", servers]
    state = directory / "kafka-streams"
    return Side(KAFKA_STREAMS, [*command, str(state)], directory / "kafka-streams.log", dict(os.environ))


def kafka_streams_version() -> str:
    return fetch_peer().version


def _built(version: str) -> Path:
    """The directory with the classes and their jars, in the cache."""
    mark = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    directory = cache_directory() / f"streams-peer-{version}-{mark}"
    if (directory / "complete").exists():
        return directory
    compiler = shutil.which("javac")
    if compiler is None:
        raise PeerAbsentError("no javac on the path: Kafka Streams' programs cannot be compiled")
    shutil.rmtree(directory, ignore_errors=True)
    fetch_artifacts("kafka-streams", version=version, into=directory / "jars")
    done = subprocess.run(
        [compiler, "-cp", f"{directory}/jars/*", "-d", str(directory), str(_SOURCE)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        raise PeerAbsentError(f"javac refused {_SOURCE.name}: {done.stderr.strip()[:300]}")
    (directory / "complete").touch()
    return directory


def odradek_streams(servers: str, directory: Path) -> Side:
    """A Python process with Spark below it."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.streams.odradek_programs",
        servers,
        str(directory / "odradek"),
    ]
    environment = serve_environment() | {"SPARK_LOCAL_IP": "127.0.0.1"}
    return Side(OURS, command, directory / "odradek.log", environment)
