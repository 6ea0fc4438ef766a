"""One run of `tricks.py`: `python -m benchmarks.engine.program SERVERS TOPIC NAME [TRICK]`, without that trick.

The process has the SQL engine's session, and runs queries that count. The processes that workers are forked from import this
module, too, so that tricks of workers are off there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from odradek.client import Consumer, Producer
from odradek.model.ids import TopicPartition
from odradek.spark.engine import (
    class_archive,
    jvm_calls,
    jvm_names,
    local_files,
    prompt_input,
    session,
    shared_planners,
    worker_garbage,
)
from odradek.sql.queries import engine_sessions, scratch
from odradek.streams import app as streams_app
from odradek.streams import running
from odradek.streams.translation import stateless

_VARIABLE: Final = "ODRADEK_BENCHMARK_WITHOUT"
_HERE: Final = "benchmarks.engine.program"
_WARM_UP: Final = 5
_BATCHES: Final = 10
_SETTLE_S: Final = 1.0
_OVERDUE_S: Final = 600.0


def _without_class_archive() -> None:
    os.environ[class_archive.SWITCH] = "off"


def _without_local_files() -> None:
    local_files.settings = lambda jvm, cache: {}


def _without_shared_planners() -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def _without_warm_daemon() -> None:
    shared_planners._DAEMON = "-"  # type: ignore[misc]


def _without_worker_garbage() -> None:
    worker_garbage.LoadedModules.leave_out = lambda self: None  # type: ignore[method-assign]


def _without_prompt_input() -> None:
    prompt_input.PromptInput.__setstate__ = lambda self, state: vars(self).update(state)  # type: ignore[method-assign]


def _without_jvm_names() -> None:
    jvm_names.remember_names = lambda gateway: None


def _without_jvm_calls() -> None:
    jvm_calls.spare_calls = lambda gateway: None


def _without_small_batches() -> None:
    vars(session)["interpret_small_batches"] = lambda spark: None


def _without_catalyst() -> None:
    """Every expression is tried, and plans are as programs have them."""
    vars(running)["simplified"] = lambda rows: rows
    vars(stateless)["cannot_raise"] = lambda columns, rows: False


WITHOUT: Final[dict[str, Callable[[], None]]] = {
    "class_archive": _without_class_archive,
    "local_files": _without_local_files,
    "shared_planners": _without_shared_planners,
    "warm_daemon": _without_warm_daemon,
    "worker_garbage": _without_worker_garbage,
    "prompt_input": _without_prompt_input,
    "jvm_names": _without_jvm_names,
    "jvm_calls": _without_jvm_calls,
    "small_batches": _without_small_batches,
    "catalyst": _without_catalyst,
}
"""How each trick is switched off, by the name of its file."""

if _VARIABLE in os.environ:  # a process that workers are forked from
    WITHOUT[os.environ[_VARIABLE]]()


class _Meter:
    """CPU seconds of all processes of this session of the system, and the time."""

    def __init__(self) -> None:
        self._began = 0.0, psutil.Process().create_time()

    def restart(self) -> None:
        self._began = _cpu_seconds(), time.time()

    def read(self) -> list[float]:
        return [_cpu_seconds() - self._began[0], time.time() - self._began[1]]


def _cpu_seconds() -> float:
    total = 0.0
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == os.getsid(0):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
    return total


def main() -> None:
    servers, topic, name, *without = sys.argv[1:]
    meter = _Meter()
    for trick in without:
        os.environ[_VARIABLE] = trick
        WITHOUT[trick]()
    engine_sessions._WORKERS_USE += (_HERE,)  # type: ignore[misc, assignment]
    directory = scratch.EngineScratch()
    spark = engine_sessions.EngineSessions(directory).of_this_thread()
    figures = {}
    with Producer(servers) as producer:
        for phase in ("cold", "warm"):
            output = f"{name}-{phase}"
            running = _start(spark, servers, topic, output, directory.directory("checkpoint"))
            rows = _rows(servers, output)
            next(rows)
            figures[phase] = meter.read()
            for batch in range(0 if phase == "cold" else _WARM_UP + _BATCHES):
                if batch == _WARM_UP:
                    time.sleep(_SETTLE_S)
                    meter.restart()
                producer.send_and_wait(topic, b"1", key=b"bob")
                next(rows)
            if phase == "cold":
                running.stop()
                time.sleep(_SETTLE_S)
                meter.restart()
    figures["batch"] = [value / _BATCHES for value in meter.read()]
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()
    running.stop()
    spark.stop()
    directory.close()


def _start(spark: Any, servers: str, topic: str, output: str, checkpoint: Path) -> Any:
    app = streams_app.Streams(output, servers=servers, spark=spark, options={"idleWaitMs": "10000"})
    counts = app.stream(topic, key="STRING", value="STRING").group_by_key().count()
    counts.to(output, name="out")
    return app.start(checkpoint=checkpoint, interval="100 milliseconds")


def _rows(servers: str, topic: str) -> Iterator[None]:
    """Yields once for each poll that brings rows."""
    with Consumer(servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        deadline = time.monotonic() + _OVERDUE_S
        while True:
            if consumer.poll(0.2):
                yield
                deadline = time.monotonic() + _OVERDUE_S
            elif time.monotonic() > deadline:
                raise SystemExit(f"no row came to {topic}")


if __name__ == "__main__":
    main()
