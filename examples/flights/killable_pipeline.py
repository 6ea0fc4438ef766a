"""`pipeline_program.py` from outside: what it says, and the kill that the demo is about."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from odradek.client import Admin

PROGRAM = Path(__file__).with_name("pipeline_program.py")
END_TIMEOUT_S = 20
LOOK_EVERY_S = 0.02
ERROR_LINE = re.compile(r"(\w+\.)*\w+(Error|Exception|Failed)\b.*:")
"""How Python begins the line with an exception: its name, a colon, what it says."""


class PipelineFailedError(Exception):
    """The pipeline's process ended by itself before it was done."""


class KillablePipeline:
    """A context manager: one life of the pipeline's process, which does not outlive the `with`."""

    def __init__(self, servers: str, directory: Path, program: Path = PROGRAM) -> None:
        self._command = [sys.executable, str(program), servers, str(directory)]
        self._log = directory / "pipeline.log"
        self.process: subprocess.Popen[str] | None = None
        self._jvm: int | None = None

    def __enter__(self) -> Self:
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is the demo's, which then ends this
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process is not None
        if kind is not None:
            self.kill()
        try:
            self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def events(self) -> Iterator[dict[str, Any]]:
        """What happens, as it happens, until `read back`. PipelineFailedError when it ends before that."""
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            self._jvm = event.get("jvm", self._jvm)
            yield event
            if event["event"] == "read back":
                return
        raise PipelineFailedError(f"The pipeline ended before it was done: {self._last_words()}")

    def wait(self) -> None:
        """Until the process has ended, which it does by itself after its last event."""
        assert self.process is not None
        self.process.wait(END_TIMEOUT_S)

    def kill(self) -> list[int]:
        """kill -9 of the JVM and of the driver's Python process; those that were there."""
        assert self.process is not None
        killed = []
        for pid in filter(None, (self._jvm, self.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        return killed

    def _last_words(self) -> str:
        """The line of the error: Spark says more after it, about its plan and its threads."""
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if ERROR_LINE.match(line)]
        return (errors or lines or ["it said nothing"])[-1]


def open_transactions(servers: str, prefix: str, timeout_s: float) -> int:
    """Wait until transactions with such ids are open, so that a batch is half written; how many, 0 when that took too long."""
    deadline = time.monotonic() + timeout_s
    with Admin(servers) as admin:
        while time.monotonic() < deadline:
            listed = admin.list_transactions(states=["Ongoing"])
            count = sum(item.transactional_id.startswith(prefix) for item in listed)
            if count:
                return count
            time.sleep(LOOK_EVERY_S)
    return 0
