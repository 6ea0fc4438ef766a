"""Spark's daemons of Python workers, with what they import already in memory.

Spark's own daemons import next to nothing, so each worker that they fork imports PySpark, pandas and Arrow for itself: 80 MB
and a second of CPU each. And Spark has a daemon for each kind of worker: some six of them. So there is one process that
imports all of it, with what else workers use, before anything is asked of it:
`python -m odradek.spark.engine.warm_daemon --listen DESCRIPTOR [MODULE...]`. Daemons are forked from it, and workers from
them; all of them share its memory. `shared_planners.py` starts it, and sends it what Spark asks for.

`python -m odradek.spark.engine.warm_daemon MODULE` is such a daemon in a process of its own.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NoReturn

import pyarrow  # noqa: F401 - for the workers
from pyspark import daemon

from odradek.model.lazy import lazy
from odradek.spark.engine.stopped_queries import end_workers_in_one_line
from odradek.spark.engine.write_drivers import MODULES, DaemonRequest, WriteDrivers, adopt

log: Final = logging.getLogger("odradek.spark")

RUNNER: Final = "pyspark.worker"
"""The module of workers that run functions on frames; the others plan and write."""
_OF_ANY_WORKER: Final = ("odradek.spark.sink", "odradek.spark.source", "odradek.spark.reading.fetch")
"""The modules that Spark's workers unpickle first: modules of our data source, which is above this folder."""
_OF_EACH_QUERY: Final = (
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    *MODULES,
    RUNNER,
    "pandas",
    "pyarrow.pandas_compat",
    "odradek.client.producer.aio",
    "odradek.client.admin.aio",
    "odradek.spark.exactly_once.driver",
    "odradek.spark.exactly_once.task",
)
_STANDARD_INPUT: Final = 0
_REQUEST_S: Final = 30.0
_REQUEST_MAX_BYTES: Final = 1 << 20


def _import(modules: Iterable[str]) -> None:
    for module in modules:
        _ = lazy(module).__file__
    gc.collect()
    gc.freeze()  # a collection in a worker would write into the shared pages


def run_daemon(module: str) -> None:
    """Runs PySpark's daemon until Spark ends it. The daemon reads the module's name from the arguments of this process."""
    _import([*_OF_ANY_WORKER, module, *(["pandas"] if module == RUNNER else [])])
    end_workers_in_one_line(daemon)
    daemon.manager()


def serve(listening: socket.socket, modules: Sequence[str]) -> None:
    """Forks daemons until standard input ends, which the session's process holds. Daemons go on until Spark ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for a daemon
    _import([*_OF_ANY_WORKER, *_OF_EACH_QUERY, *modules])
    door = listening.fileno()
    writes = WriteDrivers()
    while _STANDARD_INPUT not in select.select([door, _STANDARD_INPUT], [], [])[0]:
        asking, _ = listening.accept()
        with asking:
            asking.settimeout(_REQUEST_S)
            try:
                request, descriptors = _received(asking)
            except (OSError, ValueError) as error:
                log.warning("a daemon of workers gets a process of its own: %s", error)
                continue
            if not writes.accept(request, descriptors, asking, listening) and os.fork() == 0:
                listening.close()
                writes.close()
                _become(request, descriptors, asking)
            for descriptor in descriptors:
                os.close(descriptor)


def _received(asking: socket.socket) -> tuple[DaemonRequest, list[int]]:
    """Returns the request, and the standard descriptors of the process that sent it."""
    content, descriptors, _, _ = socket.recv_fds(asking, 1 << 16, 3)
    try:
        while part := asking.recv(1 << 16):
            content += part
            if len(content) > _REQUEST_MAX_BYTES:
                raise ValueError(f"its request has more than {_REQUEST_MAX_BYTES} bytes")
        request: DaemonRequest = json.loads(content)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return request, list(descriptors)


def _become(request: DaemonRequest, descriptors: Sequence[int], asking: socket.socket) -> NoReturn:
    """Runs the daemon that was asked for. While it lives, it holds the connection: the asking process waits for its end."""
    code = 1
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        adopt(request)
        sys.argv = ["warm_daemon", *request["arguments"]]
        asking.sendall(b"+")
        run_daemon(sys.argv[1])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--listen"]:
        serve(socket.socket(fileno=int(sys.argv[2])), sys.argv[3:])
    else:
        run_daemon(sys.argv[1] if len(sys.argv) > 1 else RUNNER)
