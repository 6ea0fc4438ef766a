"""Odradek's broker as a process of its own, with the same face as the peer's `KafkaNode`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from odradek.cli.serving.broker_processes import BrokerProcess, BrokerTerms
from odradek.model.errors import OdradekError

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
    keep it. `prefix`: a command that runs the broker as the same process, such as `prlimit`.
    """

    name = "Odradek"

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        directory: Path | None = None,
        port: int = 0,
        prefix: Sequence[str] = (),
    ) -> None:
        self.settings = dict(settings or {})
        self._own_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="odradek-node-"))
        self._broker = BrokerProcess(
            BrokerTerms(
                node_id=1,
                directory=self.directory,
                listen=f"127.0.0.1:{port}",
                log_file=self.log_file,
                apart=True,
                prefix=prefix,
            )
        )

    @property
    def bootstrap(self) -> str:
        return self._broker.address or self._broker.terms.listen

    @property
    def pid(self) -> int:
        if self._broker.pid is None:
            raise RuntimeError("the node is not running")
        return self._broker.pid

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
        node_id = int(self.settings.get("node.id") or self.settings.get("broker.id") or 1)
        data = ("--data", str(self.data_directory))
        self._broker.terms = replace(
            self._broker.terms, node_id=node_id, settings=dict(self.settings), options=data
        )
        self._broker.start()

    def wait_until_ready(self) -> None:
        """Return when the broker has printed the address at which it accepts connections."""
        try:
            self._broker.wait_until_ready(START_SECONDS_MAX)
        except OdradekError:
            text = self.log_file.read_text(encoding="utf-8", errors="replace")
            raise BrokerDidNotStartError(text[-2000:]) from None

    def stop(self) -> None:
        """SIGTERM, then SIGKILL when that is not enough; removes the directory if it is the node's own."""
        self._broker.stop(STOP_SECONDS_MAX)
        self._broker.release_port()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def terminate(self) -> int:
        """SIGTERM and the exit code; the data stays for a later `start`."""
        code = self._broker.stop(STOP_SECONDS_MAX)
        if code is None:
            raise RuntimeError("the node is not running")
        return code

    def kill(self) -> None:
        """SIGKILL, as a crash would; the data stays for a later `start`."""
        self._broker.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
