"""`odradek serve` as a process of its own, on a port of its own, over a directory that is removed afterwards."""

from __future__ import annotations

import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, Self

START_TIMEOUT_S = 20
STOP_TIMEOUT_S = 20


class BrokerFailedError(Exception):
    """The broker did not start; the message says why, in a sentence."""


class LocalBroker:
    """A context manager: running inside the `with`, stopped and tidied away after it, whatever happens inside."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="odradek-demo-"))
        self.address = ""
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def _log(self) -> Path:
        return self.directory / "broker.log"

    def __enter__(self) -> Self:
        command = [str(Path(sys.executable).with_name("odradek")), "serve"]
        arguments = ["--data", str(self.directory / "data"), "--listen", "127.0.0.1:0"]
        try:
            with self._log.open("w") as log:
                self._process = subprocess.Popen(
                    command + arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            self.address = self._await_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _await_ready(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_first_line, args=(self._process.stdout, lines), daemon=True).start()
        try:
            line = lines.get(timeout=START_TIMEOUT_S)
        except queue.Empty:
            raise BrokerFailedError(
                f"The broker did not get ready within {START_TIMEOUT_S} s: {self._last_words()}"
            ) from None
        if not line.startswith("ready "):
            raise BrokerFailedError(f"The broker did not start: {self._last_words()}")
        return line.split()[1]

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def _first_line(stream: IO[str], lines: queue.Queue[str]) -> None:
    lines.put(stream.readline())
