"""Odradek's broker as a process of its own, with the same face as the peer's `KafkaNode`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

START_SECONDS_MAX = 600.0
STOP_SECONDS_MAX = 15.0
_SOURCE = Path(__file__).resolve().parent.parent / "src"


class Node(Protocol):
    """One broker process, of either kind, under test or measurement."""

    settings: dict[str, str]
    directory: Path

    @property
    def name(self) -> str: ...
    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def log_file(self) -> Path: ...
    @property
    def data_directory(self) -> Path: ...
    def start(self, *, wait: bool = True) -> Self: ...
    def prepare(self) -> None: ...
    def launch(self) -> None: ...
    def wait_until_ready(self) -> None: ...
    def stop(self) -> None: ...
    def terminate(self) -> int: ...
    def kill(self) -> None: ...


class BrokerDidNotStartError(Exception):
    """The broker process ended or kept silent; the message holds what it wrote on standard error."""


def serve_command(*arguments: str) -> list[str]:
    """The command line of `odradek serve`, run from this source tree by this interpreter."""
    return [sys.executable, "-m", "odradek.cli.main", "serve", *arguments]


def serve_environment() -> dict[str, str]:
    """This process's environment with the source tree first on the module path."""
    path = os.pathsep.join(filter(None, [str(_SOURCE), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path}


class OdradekNode:
    """A running `odradek serve`; use it as a context manager.

    `settings` are broker settings by Kafka's names. Without a `port` the first start chooses one, and later ones
    keep it.
    """

    name = "Odradek"

    def __init__(
        self, *, settings: Mapping[str, str] | None = None, directory: Path | None = None, port: int = 0
    ) -> None:
        self.settings = dict(settings or {})
        self._own_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="odradek-node-"))
        self._process: subprocess.Popen[str] | None = None
        self._address = f"127.0.0.1:{port}"

    @property
    def bootstrap(self) -> str:
        return self._address

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the node is not running")
        return self._process.pid

    @property
    def log_file(self) -> Path:
        return self.directory / "broker.log"

    @property
    def data_directory(self) -> Path:
        return self.directory / "data"

    def start(self, *, wait: bool = True) -> Self:
        """Start the process and wait for its `ready` line.

        :raises BrokerDidNotStartError: with what it wrote on standard error
        """
        self.prepare()
        self.launch()
        if wait:
            try:
                self.wait_until_ready()
            except BaseException:
                self.stop()
                raise
        return self

    def prepare(self) -> None:
        """Make the directory. Not part of what a start costs."""
        self.directory.mkdir(parents=True, exist_ok=True)

    def launch(self) -> None:
        """Start the process and return at once."""
        pairs = [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                serve_command("--data", str(self.data_directory), "--listen", self._address, *pairs),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=serve_environment(),
                start_new_session=True,
                text=True,
            )

    def wait_until_ready(self) -> None:
        """Return when the broker has printed the address at which it accepts connections."""
        process = self._process
        if process is None or process.stdout is None:
            raise RuntimeError("launch the node first")
        overdue = threading.Timer(START_SECONDS_MAX, process.kill)
        overdue.start()
        try:
            for line in process.stdout:
                if line.startswith("ready "):
                    self._address = line.split()[1]
                    return
        finally:
            overdue.cancel()
        process.wait()
        raise BrokerDidNotStartError(self.log_file.read_text(encoding="utf-8", errors="replace")[-2000:])

    def stop(self) -> None:
        """SIGTERM, then SIGKILL when that is not enough; removes the directory if it is the node's own."""
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(STOP_SECONDS_MAX)
                except subprocess.TimeoutExpired:
                    process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def terminate(self) -> int:
        """SIGTERM and the exit code; the data stays for a later `start`."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, as a crash would; the data stays for a later `start`."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            raise RuntimeError("the node is not running")
        process.send_signal(number)
        code = process.wait(STOP_SECONDS_MAX)
        if process.stdout is not None:
            process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
