"""A copy of a reader or writer that arrives in a task has the kernel acknowledge what came with it."""

from __future__ import annotations

import inspect
import pickle
import socket
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import IO, Any

import pytest
from pyspark import worker
from pyspark.sql.types import StructType

from odradek.spark.engine.prompt_input import PromptInput
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options
from odradek.spark.source import BatchReader, StreamReader

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux acknowledges on demand")


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    """A worker's end of its connection, which delays acknowledgements."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as near,
    ):
        far, _ = listening.accept()
        with far:
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            yield near


def acknowledges_at_once(connection: socket.socket) -> bool:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1


def main(infile: IO[bytes], command: bytes) -> Any:
    """Does what Spark's worker does: it has its input, and unpickles what to run."""
    return pickle.loads(command)


def run_in(module: str, connection: socket.socket, command: bytes) -> Any:
    work = FunctionType(main.__code__, {**globals(), "__name__": module})
    with connection.makefile("rb") as received:
        return work(received, command)


def reader(kind: type[BatchReader | StreamReader]) -> BatchReader | StreamReader:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "flights"}
    return kind(read_options(options, Use.READ), StructType([]))


@pytest.mark.parametrize("kind", [BatchReader, StreamReader])
@pytest.mark.parametrize("module", ["pyspark.worker", "__main__"])
def test_a_reader_that_arrives_in_a_worker_has_its_input_acknowledged(
    kind: type[BatchReader | StreamReader], module: str, connection: socket.socket
) -> None:
    assert not acknowledges_at_once(connection)
    copy = run_in(module, connection, pickle.dumps(reader(kind)))
    assert acknowledges_at_once(connection)
    assert type(copy) is kind


def test_elsewhere_nothing_is_acknowledged(connection: socket.socket) -> None:
    run_in("planner", connection, pickle.dumps(reader(StreamReader)))
    assert not acknowledges_at_once(connection)


def test_a_copy_has_the_state_of_its_original() -> None:
    original = PromptInput()
    vars(original)["rows"] = 7
    assert vars(pickle.loads(pickle.dumps(original))) == {"rows": 7}


def test_a_worker_without_tcp_goes_on() -> None:
    near, far = socket.socketpair()
    with near, far:
        assert isinstance(run_in("pyspark.worker", near, pickle.dumps(reader(StreamReader))), StreamReader)


def test_sparks_worker_calls_its_input_by_the_name_that_is_looked_for() -> None:
    assert "infile" in inspect.signature(worker.main).parameters
