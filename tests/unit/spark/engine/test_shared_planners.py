"""Planners of a session in one process: who runs a module when Spark asks for one."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import pytest

from odradek.spark.engine.shared_planners import PLANNERS, SharedPlanners

pytest.importorskip("pyspark")
PLANNER: Final = PLANNERS[0]
SECRET: Final = "s3cret"
_WAIT_S: Final = 30.0
_INT: Final = struct.Struct(">i")


class Spark:
    """The side of Spark: a port for one worker, and the exchange that a worker begins with."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(_WAIT_S)

    @property
    def environment(self) -> dict[str, str]:
        port = self._listening.getsockname()[1]
        return {
            **os.environ,
            "PYTHON_WORKER_FACTORY_PORT": str(port),
            "PYTHON_WORKER_FACTORY_SECRET": SECRET,
        }

    def worker(self) -> tuple[IO[bytes], int]:
        """The connection of the worker that came, and the process id that it says."""
        connection, _ = self._listening.accept()
        connection.settimeout(_WAIT_S)
        stream: Any = connection.makefile("rwb")
        connection.close()  # the stream has it
        assert _text(stream) == SECRET
        stream.write(_INT.pack(2) + b"ok")
        stream.flush()
        (process_id,) = _INT.unpack(stream.read(4))
        return stream, process_id

    def close(self) -> None:
        self._listening.close()


def _text(stream: IO[bytes]) -> str:
    (length,) = _INT.unpack(stream.read(4))
    return stream.read(length).decode()


@contextmanager
def spark() -> Iterator[Spark]:
    started = Spark()
    try:
        yield started
    finally:
        started.close()


def test_a_planner_runs_in_this_process_and_the_one_that_spark_started_ends(tmp_path: Path) -> None:
    ran: list[tuple[str, bytes]] = []
    is_over = threading.Event()

    def run(module: str, connection: IO[bytes]) -> None:
        ran.append((module, connection.read(5)))
        is_over.set()

    planners = SharedPlanners(tmp_path, run)
    with spark() as asking:
        words = [str(planners.python), "-m", PLANNER]
        with subprocess.Popen(words, env=asking.environment) as started:
            stream, process_id = asking.worker()
            stream.write(b"hello")
            stream.flush()
            assert started.wait(_WAIT_S) == 0
        assert process_id == started.pid
        assert is_over.wait(_WAIT_S)
    assert ran == [(PLANNER, b"hello")]
    planners.close()


def test_what_is_no_planner_is_python(tmp_path: Path) -> None:
    planners = SharedPlanners(tmp_path)
    words = [str(planners.python), "-c", "import sys; print(sys.argv[1:])", "an argument"]
    said = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=_WAIT_S)
    assert said.stdout == "['an argument']\n"
    words[2] = "import sys; print('%d.%d' % sys.version_info[:2])"  # what Spark asks for each function
    said = subprocess.run(words[:3], stdout=subprocess.PIPE, text=True, check=True, timeout=_WAIT_S)
    assert said.stdout == f"{sys.version_info[0]}.{sys.version_info[1]}\n"
    planners.close()


def test_when_this_process_is_gone_a_planner_is_a_process_of_its_own(tmp_path: Path) -> None:
    planners = SharedPlanners(tmp_path)
    planners.close()
    with spark() as asking:
        words = [str(planners.python), "-m", PLANNER]
        with subprocess.Popen(words, env=asking.environment, stderr=subprocess.DEVNULL) as started:
            stream, process_id = asking.worker()
            assert process_id == started.pid
            assert started.poll() is None
            stream.close()
            asking.close()
            started.wait(_WAIT_S)


def test_a_planner_whose_query_is_gone_ends_quietly(tmp_path: Path) -> None:
    planners = SharedPlanners(tmp_path)
    threads_before = set(threading.enumerate())
    with spark() as asking:
        words = [str(planners.python), "-m", PLANNER]
        with subprocess.Popen(words, env=asking.environment) as started:
            stream, _ = asking.worker()
            assert started.wait(_WAIT_S) == 0
        stream.close()
    for thread in set(threading.enumerate()) - threads_before:
        thread.join(_WAIT_S)
        assert not thread.is_alive()
    planners.close()


def _daemon(planners: SharedPlanners) -> subprocess.Popen[bytes]:
    words = [str(planners.python), "-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"]
    environment = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": SECRET}
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def _says_its_port_and_ends_with_its_input(daemon: subprocess.Popen[bytes]) -> None:
    assert daemon.stdout is not None
    assert daemon.stdin is not None
    (port,) = _INT.unpack(daemon.stdout.read(4))
    assert port > 0
    daemon.stdin.close()
    daemon.wait(_WAIT_S)
    daemon.stdout.close()


def test_daemons_of_workers_are_forked_from_one_process(tmp_path: Path) -> None:
    planners = SharedPlanners(tmp_path)
    daemons = [_daemon(planners) for _ in range(2)]
    for daemon in daemons:
        assert daemon.stdout is not None
        assert select.select([daemon.stdout], [], [], _WAIT_S)[0]
        waiting = Path(f"/proc/{daemon.pid}/cmdline").read_bytes()
        assert b"-S" in waiting.split(b"\0")  # it became no Python that has imported anything
        _says_its_port_and_ends_with_its_input(daemon)
    planners.close()


def test_when_that_process_is_gone_a_daemon_is_a_process_of_its_own(tmp_path: Path) -> None:
    planners = SharedPlanners(tmp_path)
    planners.close()
    _says_its_port_and_ends_with_its_input(_daemon(planners))
