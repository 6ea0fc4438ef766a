"""A query that is stopped during a batch: its planner and the server of accumulators write one line, and no traceback."""

from __future__ import annotations

import logging
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark import accumulators, cloudpickle, daemon
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.spark.engine.stopped_queries import (
    end_planner_in_one_line,
    end_workers_in_one_line,
    expect_ends_of_accumulators,
)
from odradek.spark.source import OdradekDataSource

PLANNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
WAIT_S: Final = 60.0
ROWS_OF_A_BATCH: Final = 10_000
INT: Final = struct.Struct(">i")
TOKEN: Final = b"token"
COLUMNS: Final = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
"""The columns of a topic, as `load` makes them."""


def framed(content: bytes) -> bytes:
    return INT.pack(len(content)) + content


def beginning() -> bytes:
    """What Spark sends to a planner first: its version of Python, no files, the source, the schema, the rows of a batch."""
    source = OdradekDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    version = ".".join(map(str, sys.version_info[:2]))
    schema = StructType([StructField(name, kind) for name, kind in COLUMNS.items()]).json()
    files = framed(b"/") + INT.pack(0)
    command = framed(cloudpickle.dumps(source))
    return framed(version.encode()) + files + command + framed(schema.encode()) + INT.pack(ROWS_OF_A_BATCH)


class Planner:
    """A planner in a process of its own, and Spark's side of its connection."""

    def __init__(self, directory: Path) -> None:
        path = str(directory / "spark")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen()
            listening.settimeout(WAIT_S)
            environment = {**os.environ, "PYTHON_WORKER_FACTORY_SOCK_PATH": path}
            environment.pop("PYTHON_WORKER_FACTORY_SECRET", None)
            self.process = subprocess.Popen(
                [sys.executable, "-m", PLANNER], stderr=subprocess.PIPE, env=environment, text=True
            )
            self.connection, _ = listening.accept()
        self.connection.settimeout(WAIT_S)
        self.connection.sendall(beginning())
        assert self.received(8)[4:] == INT.pack(0), "the reader was made"

    def received(self, size_bytes: int) -> bytes:
        content = b""
        while len(content) < size_bytes and (part := self.connection.recv(size_bytes - len(content))):
            content += part
        return content

    def end(self) -> str:
        """Closes the connection, as Spark does when the query is stopped; returns what the planner wrote."""
        self.connection.close()
        return self.process.communicate(timeout=WAIT_S)[1]


@pytest.fixture
def planner(tmp_path: Path) -> Iterator[Planner]:
    started = Planner(tmp_path)
    yield started
    started.connection.close()
    started.process.kill()
    started.process.communicate()


def test_the_planner_of_a_stopped_query_ends_in_one_line(planner: Planner) -> None:
    lines = planner.end().splitlines()
    assert lines == [
        "the planner of a stream ends: Spark has closed its connection, because the query was stopped"
    ]


def test_other_errors_keep_their_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name=PLANNER), raising=False)
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    try:
        raise ValueError("a fault")
    except ValueError as error:
        end_planner_in_one_line()
        assert sys.excepthook is sys.__excepthook__
        fault = error
    try:
        raise BrokenPipeError
    except BrokenPipeError:
        end_planner_in_one_line()
    sys.excepthook(ValueError, fault, None)
    assert "ValueError: a fault" in capsys.readouterr().err


class Spark(SimpleNamespace):
    """A session, as far as its server of accumulators goes."""


@pytest.fixture
def server() -> Iterator[Any]:
    serving = accumulators.AccumulatorTCPServer(
        ("127.0.0.1", 0), accumulators.UpdateRequestHandler, TOKEN.decode()
    )
    expect_ends_of_accumulators(Spark(sparkContext=SimpleNamespace(_accumulatorServer=serving)))  # type: ignore[arg-type]
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    yield serving
    serving.shutdown()
    thread.join()


def send(server: Any, content: bytes) -> None:
    """Sends to the server, and returns when it has handled the connection."""
    with socket.create_connection(server.server_address, timeout=WAIT_S) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""


def test_the_end_of_a_connection_for_accumulators_is_no_error(
    server: Any, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="odradek.spark"):
        send(server, TOKEN)
    assert "a query was stopped during a batch" in caplog.text
    assert "Traceback" not in capfd.readouterr().err


def test_other_errors_of_the_server_of_accumulators_keep_their_traceback(
    server: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    send(server, b"wrong")
    assert "ValueError" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("error", "is_shown"), [(BrokenPipeError(32, "Broken pipe"), False), (ValueError("no"), True)]
)
def test_a_worker_whose_connection_spark_has_closed_writes_one_line(
    error: Exception, is_shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(daemon, "traceback", daemon.traceback)  # it is restored afterwards
    end_workers_in_one_line(daemon)
    try:
        raise error
    except (BrokenPipeError, ValueError):
        daemon.traceback.print_exc()
        text = daemon.traceback.format_exc()
    written = capsys.readouterr().err
    assert written.rstrip() == text.rstrip()
    assert ("Traceback" in text) == is_shown
    assert is_shown or ("the query was stopped" in text and "\n" not in text)
