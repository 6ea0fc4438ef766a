"""Commands of `odradek` that serve until they are ended, as processes: consoles, SQL servers, servers of tables, supervisors.

    with RunningCommand("console", "--bootstrap", address, "--listen", "127.0.0.1:0") as console:
        page = fetched(console.address)

Brokers are made by `tests.kit.cluster`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

READY_SECONDS_MAX: Final = 600.0
STOP_SECONDS_MAX: Final = 60.0
_READY: Final = "ready "


def odradek_command(*words: str) -> list[str]:
    """Returns the words of a command line that runs `odradek` of this tree by this interpreter."""
    return [sys.executable, "-m", "odradek.cli.main", *words]


class RunningCommand:
    """A process, started at once. A context manager that waits for its address, and ends it by its id."""

    def __init__(
        self, *words: str, log_file: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        """`log_file`: the file for its standard error; None for ours. `environment`: None for ours."""
        self.address = ""
        """What the last line `ready ADDRESS` has said."""
        self._log_file = log_file
        errors = None if log_file is None else log_file.open("ab")
        try:
            self.process: Final = subprocess.Popen(
                odradek_command(*words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                text=True,
            )
        finally:
            if errors is not None:
                errors.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until_ready(self) -> str:
        """Returns the address in the next line `ready ADDRESS`. AssertionError, with the log, for a process that says none."""
        assert self.process.stdout is not None
        overdue = threading.Timer(READY_SECONDS_MAX, self.process.kill)
        overdue.start()
        try:
            line = self.process.stdout.readline()
        finally:
            overdue.cancel()
        assert line.startswith(_READY), f"{line!r} is no address{self._last_words()}"
        self.address = line.removeprefix(_READY).strip()
        return self.address

    def stop(self, number: signal.Signals = signal.SIGTERM, *, timeout_s: float = STOP_SECONDS_MAX) -> int:
        """Ends the process with a signal, and with SIGKILL when that takes longer. Returns its exit code. Idempotent."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()

    def kill(self) -> None:
        """Ends the process with SIGKILL: nothing is tidied. It has ended when this returns."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        try:
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _last_words(self) -> str:
        return "" if self._log_file is None else f":\n{self._log_file.read_text(errors='replace')[-2000:]}"
