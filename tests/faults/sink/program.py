"""A query as processes: started again whenever it ends, and killed in parts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tests.faults.sink.job import Job

_ROOT: Final = Path(__file__).resolve().parents[3]
_END_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramKind:
    """What runs the query."""

    name: str
    module: str
    driver: str
    """What its driver is called."""


PLAIN: Final = ProgramKind(name="without Spark", module="tests.faults.sink.plain_query", driver="driver")
SPARK: Final = ProgramKind(name="Spark", module="tests.faults.sink.spark_query", driver="driver JVM")


class Program:
    """A context manager; `starts` counts how often it was started, `failures` what it said when it failed by itself."""

    def __init__(self, kind: ProgramKind, job: Job, log_file: Path) -> None:
        self.kind = kind
        self.starts = 0
        self.failures: Counter[str] = Counter()
        self._job = job
        self._log_file = log_file
        self._process: subprocess.Popen[str] | None = None
        self._driver_pid: int | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look_after, name=f"program {kind.name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.kill_driver()
        self._thread.join(_END_SECONDS)

    def driver_pid(self) -> int | None:
        """None until it is up."""
        return self._driver_pid

    def workers(self) -> list[int]:
        """Processes that run tasks, or that help the driver."""
        driver = self._driver_pid
        if driver is None:
            return []
        below = _children(driver)
        return below if self.kind is PLAIN else [worker for daemon in below for worker in _children(daemon)]

    def kill_driver(self) -> bool:
        """Returns whether it was up. The processes below it are left to themselves, as in a crash."""
        driver, self._driver_pid = self._driver_pid, None
        process = self._process
        was_up = driver is not None and kill(driver)
        if process is not None:
            kill(process.pid)
        return was_up

    # -- inside

    def _look_after(self) -> None:
        while not self._stopping.is_set():
            with self._log_file.open("a") as log:
                self._process = process = subprocess.Popen(
                    [sys.executable, "-m", self.kind.module, self._job.as_text()],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    cwd=_ROOT,
                    env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
                )
            self.starts += 1
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("failed: "):
                    self.failures[line.removeprefix("failed: ").strip()] += 1
                else:
                    self._driver_pid = int(line)
            process.stdout.close()
            if process.stdin is not None:
                process.stdin.close()
            code = process.wait()
            if code not in (0, -signal.SIGKILL):
                self.failures[self._last_line()] += 1
            driver, self._driver_pid = self._driver_pid, None
            if driver is not None:
                kill(driver)  # of a JVM whose Python side ended

    def _last_line(self) -> str:
        lines = self._log_file.read_text(errors="replace").splitlines()
        return lines[-1][:200] if lines else "it ended, and said nothing"


def kill(pid: int) -> bool:
    """Ends a process by SIGKILL; returns whether there was one."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def _children(pid: int) -> list[int]:
    records: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                records += map(int, (thread / "children").read_text().split())
    return records
