"""Writes are planned and committed on threads of one process, which looks like Spark's daemons to Spark."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import pytest

from odradek.spark.engine.shared_planners import SharedPlanners

pytest.importorskip("pyspark")

import pyspark.sql.worker.write_into_data_source as planner
from pyspark.serializers import SpecialLengths

from odradek.spark.engine.write_drivers import MODULES, DaemonRequest, OfThread, WriteDrivers

_WAIT_S: Final = 30.0
_INT: Final = struct.Struct(">i")
_OF_ANOTHER_PYTHON: Final = "1.5"


class Daemon:
    """The side of Spark: a daemon that it has started, and workers that it connects to."""

    def __init__(
        self,
        planners: SharedPlanners,
        module: str,
        directory: Path,
        *,
        secret: str | None = None,
        **environment: str,
    ) -> None:
        """Starts the daemon. Its workers listen on a port if there is a `secret`; otherwise their sockets are files."""
        words = [str(planners.python), "-m", "pyspark.daemon", module]
        self.secret = secret
        by_files = {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": str(directory)}
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                **({"PYTHON_WORKER_FACTORY_SECRET": secret} if secret else by_files),
                **environment,
            },
        )
        assert self.process.stdout is not None
        (first,) = _INT.unpack(self.process.stdout.read(4))
        self.port = first if secret else 0
        self.path = Path("" if secret else self.process.stdout.read(first).decode())

    @contextmanager
    def worker(self, secret: str | None = None) -> Iterator[tuple[int, IO[bytes]]]:
        """The process id that a worker says, and the connection to it."""
        with socket.socket(socket.AF_INET if self.secret else socket.AF_UNIX) as connection:
            connection.settimeout(_WAIT_S)
            connection.connect(("127.0.0.1", self.port) if self.secret else str(self.path))
            with connection.makefile("rwb") as stream:
                (process_id,) = _INT.unpack(stream.read(4))
                if self.secret:
                    _say(secret or self.secret, stream)
                    assert _text(stream) == ("err" if secret else "ok")
                yield process_id, stream

    def answering(self) -> int:
        """The process that listens where the file of a socket is."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.path))
            (process_id, _, _) = struct.unpack(
                "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            )
        return int(process_id)

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(_WAIT_S)
        self.process.stdout.close()
        assert self.secret or not self.path.exists()


def _say(text: str, stream: IO[bytes]) -> None:
    stream.write(_INT.pack(len(text)) + text.encode())
    stream.flush()


def _text(stream: IO[bytes]) -> str:
    (length,) = _INT.unpack(stream.read(4))
    return stream.read(length).decode()


@pytest.fixture
def planners(tmp_path: Path) -> Iterator[SharedPlanners]:
    started = SharedPlanners(tmp_path)
    yield started
    started.close()


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A directory whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="odradek-") as directory:
        yield Path(directory)


def refused(stream: IO[bytes]) -> str:
    """The error that a worker answers with when Spark has another Python. Then the connection ends."""
    _say(_OF_ANOTHER_PYTHON, stream)
    assert _INT.unpack(stream.read(4)) == (SpecialLengths.PYTHON_EXCEPTION_THROWN,)
    return _text(stream)


def test_all_daemons_of_writes_are_one_process(planners: SharedPlanners, sockets: Path) -> None:
    daemons = [Daemon(planners, module, sockets) for module in MODULES]
    assert len({daemon.answering() for daemon in daemons}) == 1
    for daemon in daemons:
        daemon.end()


@pytest.mark.parametrize("secret", [None, "s3cret"])
def test_each_daemon_looks_as_sparks_own_and_ends_alone(
    planners: SharedPlanners, sockets: Path, secret: str | None
) -> None:
    first, second = (
        Daemon(planners, module, sockets, secret=secret and f"{secret}-{module}") for module in MODULES[:2]
    )
    for daemon in (first, second):
        with daemon.worker() as one_worker, daemon.worker() as another:
            for process_id, stream in (one_worker, another):
                assert process_id == daemon.process.pid, "Spark sees that this process lives"
                assert "PYTHON_VERSION_MISMATCH" in refused(stream)
    first.end()
    with second.worker() as (process_id, _):
        assert process_id == second.process.pid
    second.end()


def test_who_does_not_know_a_daemons_secret_is_refused(planners: SharedPlanners, sockets: Path) -> None:
    first, second = (Daemon(planners, module, sockets, secret=module) for module in MODULES[:2])
    with second.worker(secret=MODULES[0]) as (_, stream):
        assert stream.read() == b""
    first.end()
    second.end()


@pytest.mark.parametrize(
    "variable", ["PYSPARK_PLANNER_MEMORY_MB", "PYSPARK_SPARK_SESSION_UUID", "PYTHON_FAULTHANDLER_DIR"]
)
def test_what_is_limited_or_watched_has_a_process_of_its_own(
    planners: SharedPlanners, sockets: Path, variable: str
) -> None:
    value = {"PYSPARK_PLANNER_MEMORY_MB": "4096", "PYTHON_FAULTHANDLER_DIR": str(sockets)}.get(variable, "1")
    daemon = Daemon(planners, MODULES[0], sockets, **{variable: value})
    with daemon.worker() as (process_id, _):
        assert process_id != daemon.process.pid
    daemon.process.kill()
    daemon.process.communicate(timeout=_WAIT_S)


def test_a_daemon_with_another_environment_has_a_process_of_its_own(
    planners: SharedPlanners, sockets: Path
) -> None:
    first = Daemon(planners, MODULES[0], sockets)
    second = Daemon(planners, MODULES[1], sockets, OF_ANOTHER="session")
    with first.worker() as (process_id, _):
        assert process_id == first.process.pid
    with second.worker() as (process_id, _):
        assert process_id != second.process.pid
    first.end()
    second.process.kill()
    second.process.communicate(timeout=_WAIT_S)


def test_where_pyspark_is_not_known_daemons_fork_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def other_main(infile: Any) -> None: ...

    monkeypatch.setattr(planner, "main", other_main)
    environment = {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": str(tmp_path)}
    request = DaemonRequest(
        process=1, arguments=[MODULES[0]], environment=environment, directory=str(tmp_path)
    )
    with socket.socket() as unused:
        assert not WriteDrivers().accept(request, [0, 1, 2], unused, unused)


def test_a_registry_has_items_of_each_thread() -> None:
    registry = OfThread()
    registry["a"] = 1
    others: list[dict[Any, Any]] = []

    def use() -> None:
        others.append(dict(registry))
        registry["b"] = 2
        others.append(dict(registry))
        registry.clear()

    thread = threading.Thread(target=use)
    thread.start()
    thread.join(_WAIT_S)
    assert others == [{}, {"b": 2}]
    assert dict(registry) == {"a": 1}
    assert registry.pop("a") == 1
    assert len(registry) == 0
