"""A supervisor on a thread, whose runners are threads, too, with sessions of one JVM. The brokers are real."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Self

from odradek.pipelines.document import PipelineDocument
from odradek.pipelines.program_file import MODULE, LoadedProgram
from odradek.pipelines.reports import Command, Report
from odradek.pipelines.runner import PipelineRun, RunnerTerms, follow
from odradek.pipelines.serving import ServeTerms, serve
from odradek.runtime.real_clock import SystemClock, SystemEntropy
from odradek.streams import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Program = Callable[["SparkSession"], Streams]
PATIENCE_S = 300.0


class ThreadRunner:
    """A runner as its supervisor sees it."""

    def __init__(self, program: Program, terms: RunnerTerms, spark: SparkSession) -> None:
        self.pid = threading.get_ident()
        self.log: list[str] = []
        self._commands: queue.Queue[Command] = queue.Queue()
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._code: int | None = None
        self._thread = threading.Thread(target=self._run, args=[program, terms, spark])
        self._thread.start()

    def _run(self, program: Program, terms: RunnerTerms, spark: SparkSession) -> None:
        session = spark.newSession()
        loaded = LoadedProgram(module=ModuleType(MODULE), sha256="", app=program(session))
        self._code = follow(PipelineRun(loaded, terms, session), self._commands, self._reports.put)

    def send(self, command: Command) -> None:
        self._commands.put(command)

    def kill(self) -> None:
        self._commands.put(Command.STOP)

    def reports(self) -> list[Report]:
        said = []
        while not self._reports.empty():
            said.append(self._reports.get())
        return said

    def end(self) -> int | None:
        return None if self._thread.is_alive() else self._code

    def close(self) -> None:
        pass


class SupervisorThread:
    """`with` it: it supervises until the end. `programs`: what a version's file stands for."""

    def __init__(
        self, servers: str, directory: Path, spark: SparkSession, programs: Mapping[str, Program]
    ) -> None:
        self._servers, self._directory, self._spark, self._programs = servers, directory, spark, programs
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        serve(
            ServeTerms(servers=self._servers, state_directory=self._directory, name="threads"),
            self._launch,
            SystemClock(),
            SystemEntropy(),
            should_stop=self._stopping.is_set,
            pause=time.sleep,
            tell=lambda line: None,
        )

    def _launch(self, document: PipelineDocument) -> ThreadRunner:
        version = document.current
        terms = RunnerTerms(
            name=document.name,
            servers=self._servers,
            checkpoint=str(self._directory / version.checkpoint),
            delivery=document.delivery,
            suffix=version.suffix,
        )
        return ThreadRunner(self._programs[version.program], terms, self._spark)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the supervisor did not end"
