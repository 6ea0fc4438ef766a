"""Kafka's command-line tools in one JVM: a JVM for each of them would cost most of what a test costs."""

from __future__ import annotations

import json
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.peer import PeerJars
from benchmarks.peer.fetch import java_command

SECONDS_MAX = 60
_RUNNER = Path(__file__).with_name("ToolRunner.java")
_OPENED = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")
"""The runner ends tools whose shutdown hooks are in the JVM."""
_LOGGING = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="error">
  <Appenders>
    <Console name="errors" target="SYSTEM_ERR" follow="true"><PatternLayout pattern="%p %m%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="error"><AppenderRef ref="errors"/></Root>
  </Loggers>
</Configuration>
"""


class ToolError(Exception):
    """The JVM ended, or a tool did not end in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run of a tool left."""

    status: int
    printed: str
    errors: str
    terminal: str
    """Both streams, in the order of writing."""


class Tools:
    """Runs tools one after another, each as if it were alone in its JVM; use it as a context manager.

    `directory` keeps the JVM's own output. The JVM starts with the first run, and again after one that did not end.
    """

    def __init__(self, jars: PeerJars, directory: Path, *, seconds_max: float = SECONDS_MAX) -> None:
        self._jars = jars
        self._directory = directory
        self.seconds_max = seconds_max
        self._process: subprocess.Popen[str] | None = None

    @property
    def jars(self) -> PeerJars:
        return self._jars

    def run(self, main_class: str, *arguments: str, standard_input: str = "") -> Outcome:
        """Runs a tool to its end.

        :raises ToolError: after `seconds_max`, or if the JVM ended
        """
        process = self._process or self._start()
        if process.stdin is None or process.stdout is None:
            raise ToolError("the JVM has no pipes")
        overdue = threading.Timer(self.seconds_max, process.kill)
        overdue.start()
        try:
            request = {"main": main_class, "arguments": arguments, "input": standard_input}
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            overdue.cancel()
        if not line:
            self.close()
            command = " ".join((main_class, *arguments))
            raise ToolError(f"no end of `{command}` within {self.seconds_max:g} s\n{self._last_words()}")
        return Outcome(**json.loads(line))

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _log_file(self) -> Path:
        return self._directory / "tools.log"

    def _start(self) -> subprocess.Popen[str]:
        logging = self._directory / "log4j2.xml"
        logging.write_text(_LOGGING, encoding="utf-8")
        machine = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_OPENED)
        command = [java_command(), *machine, f"-Dlog4j2.configurationFile=file:{logging}"]
        tools = self._jars.directory / f"kafka-tools-{self._jars.version}.jar"
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "-cp", self._jars.class_path, str(_RUNNER), str(tools)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
            )
        return self._process

    def _last_words(self) -> str:
        return self._log_file.read_text(encoding="utf-8", errors="replace")[-2000:]
