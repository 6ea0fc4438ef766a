"""A query that is stopped during a batch: Spark closes connections in the middle, and Python hears of it as errors.

PySpark (4.3) writes a traceback for each such connection: a planner in a process of its own fails to send its last reply, a
worker fails to send its last rows, and the server that gathers accumulators reads the end of its input. None of these is a
fault, so each is one line here.
"""

from __future__ import annotations

import logging
import sys
import traceback
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("odradek.spark")

_PLANNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"


def end_planner_in_one_line() -> None:
    """Called when a reader stops. If this process plans one query, and ends because Spark has closed the connection, it writes
    one line, and no traceback."""
    running = getattr(sys.modules["__main__"], "__spec__", None)
    if (
        isinstance(sys.exception(), EOFError | ConnectionError)
        and running is not None
        and running.name == _PLANNER
    ):
        sys.excepthook = _write_line


def _write_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, ConnectionError):
        log.warning(
            "the planner of a stream ends: Spark has closed its connection, because the query was stopped"
        )
    else:
        sys.__excepthook__(kind, error, trace)


def expect_ends_of_accumulators(spark: SparkSession) -> None:
    """Has the server of accumulators write one line when a connection ends, as a stopped query's does. Spark opens another."""
    server: Any = spark.sparkContext._accumulatorServer
    report = type(server).handle_error

    def handle_error(request: object, client_address: object) -> None:
        if isinstance(sys.exception(), EOFError):
            log.info("Spark has closed the connection for accumulators: a query was stopped during a batch")
        else:
            report(server, request, client_address)

    server.handle_error = handle_error


class _WorkerTracebacks:
    """The functions of `traceback` that PySpark's daemon calls, for the errors of its workers."""

    @staticmethod
    def format_exc() -> str:
        if isinstance(error := sys.exception(), ConnectionError):
            return f"Spark has closed the connection of a worker, because the query was stopped ({error})"
        return traceback.format_exc()

    @classmethod
    def print_exc(cls) -> None:
        sys.stderr.write(f"{cls.format_exc().rstrip()}\n")


def end_workers_in_one_line(daemon: Any) -> None:
    """Has the workers that PySpark's daemon, a module, forks write one line if Spark has closed their connection."""
    daemon.traceback = _WorkerTracebacks
