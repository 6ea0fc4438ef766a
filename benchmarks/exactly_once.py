"""What exactly once costs a Spark batch: the sink's own code, with at-least-once in turn, and the same on Spark itself.

A batch is two tasks with few rows, on connections that are open: what is measured is the protocol, not the rows.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa

from benchmarks import load
from benchmarks.measures import Plan, Running
from benchmarks.samples import Better, Sample
from odradek.client import Admin, NewTopic
from odradek.spark.clients import connections
from odradek.spark.engine.java import find_java
from odradek.spark.exactly_once import prepare
from odradek.spark.exactly_once.decision import Participant
from odradek.spark.exactly_once.driver import DriverMemory, SinkDriver
from odradek.spark.exactly_once.task import BatchName

TASKS: Final = 2
ROWS: Final = 100
VALUE: Final = b"v" * 100
WARM: Final = 10
_PROGRAM_SECONDS: Final = 300.0
_numbers: Final = itertools.count()


def sink_batches(running: Running, plan: Plan, round_number: int) -> Iterator[Sample]:
    """The sink's code without Spark; tasks are threads."""
    batches = 10 if plan.rounds == 1 else 60
    name = f"exactly-once-{next(_numbers)}"
    seconds: dict[str, list[float]] = {"at least once": [], "exactly once": []}
    with (
        Admin(running.node.bootstrap) as admin,
        ThreadPoolExecutor(TASKS) as threads,
    ):
        admin.create_topics([NewTopic(name, TASKS)])
        writers = {
            "at least once": _at_least_once(running.node.bootstrap, name, threads),
            "exactly once": _exactly_once(running.node.bootstrap, name, threads, admin),
        }
        for number in range(WARM + batches):
            for delivery, write in writers.items():
                began = time.perf_counter()
                write(number)
                if number >= WARM:
                    seconds[delivery].append(time.perf_counter() - began)
        connections.producer_pool.close()
    yield from running.samples("sink", f"{TASKS} tasks of {ROWS} rows", round_number, _figures(seconds))


def spark_batches(running: Running, plan: Plan, round_number: int) -> Iterator[Sample]:
    """Measures both deliveries on Spark, in turn in one session. Nothing where there is no Java."""
    if find_java().problem is not None:
        return
    batches = 5 if plan.rounds == 1 else 40
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark.batches", running.node.bootstrap, str(batches)],
        capture_output=True,
        text=True,
        timeout=_PROGRAM_SECONDS,
        check=True,
        cwd=load.ROOT,
    )
    seconds: dict[str, list[float]] = json.loads(process.stdout.splitlines()[-1])
    yield from running.samples(
        "sink on Spark", f"{TASKS} tasks of {ROWS} rows", round_number, _figures(seconds)
    )


def _figures(seconds: dict[str, list[float]]) -> dict[str, tuple[float, Better]]:
    at_least, exactly = (
        1000 * statistics.median(seconds[delivery]) for delivery in ("at least once", "exactly once")
    )
    return {
        "at least once, ms a batch": (at_least, "lower"),
        "exactly once, ms a batch": (exactly, "lower"),
        "ms a batch for exactly once": (exactly - at_least, "lower"),
    }


def _at_least_once(servers: str, topic: str, threads: ThreadPoolExecutor) -> Callable[[int], None]:
    def task(partition: int) -> None:
        with connections.sending({"bootstrap.servers": servers, "linger.ms": "0"}) as producer:
            producer.send_arrow(topic, _rows(partition))

    return lambda number: list(threads.map(task, range(TASKS))).clear()


def _exactly_once(
    servers: str, topic: str, threads: ThreadPoolExecutor, admin: Admin
) -> Callable[[int], None]:
    memory = DriverMemory()
    client = {"bootstrap.servers": servers, "linger.ms": "0"}

    def write(number: int) -> None:
        driver = SinkDriver(admin, topic, transaction_timeout_s=600.0, memory=memory)
        terms = driver.begin()

        def task(partition: int) -> Participant | None:
            return prepare.prepare(client, topic, terms, [(topic, _rows(partition))])

        done = [participant for participant in threads.map(task, range(TASKS)) if participant is not None]
        driver.decide(terms, BatchName(query=topic, batch=number), done, {})

    return write


def _rows(partition: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([VALUE] * ROWS, pa.binary()),
            "partition": pa.array([partition] * ROWS, pa.int32()),
        }
    )
