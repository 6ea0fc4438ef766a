"""Recovery after kill -9: how many batches a second a broker checks when it opens logs that were not closed.

The recovery point is kept from moving (`log.flush.offset.checkpoint.interval.ms`), so both brokers have to look at everything
since their start. The clock runs from the start of the process until every partition takes a record; a start after a clean
stop of the same data takes as long without the recovery, and the difference is the recovery.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks import load
from benchmarks.broker import plain_requests
from benchmarks.broker.plain_requests import Frame
from benchmarks.contenders import Contender
from benchmarks.measures import Plan, Running, work_directory
from benchmarks.odradek_node import Node
from benchmarks.samples import Better, Sample
from benchmarks.watch import cpu_seconds

PARTITIONS: Final = 50
VALUE_BYTES: Final = 100
TOPIC: Final = "recovered"
_WRITERS: Final = 4
_CLEAN_START_VARIES: Final = 0.2
_SECONDS_MAX: Final = 300.0
_PAUSE_SECONDS: Final = 0.005
_SETTINGS: Final = {"log.flush.offset.checkpoint.interval.ms": "86400000"}


def batch_count(plan: Plan) -> int:
    return 10_000 if plan.rounds == 1 else 1_000_000 if plan.rounds <= 3 else 4_000_000


def recovery(contender: Contender, plan: Plan, round_number: int) -> Iterator[Sample]:
    """One life that ends cleanly, and one that is killed, with the same batches."""
    count = batch_count(plan)
    with work_directory() as directory:
        node = contender.make(directory)
        node.settings |= _SETTINGS
        node.start()
        try:
            running = Running(contender=contender, node=node)
            records = plain_requests.batch(VALUE_BYTES)
            everywhere = [plain_requests.produce(TOPIC, range(PARTITIONS), records, "1")]
            load.create_topic(node.bootstrap, TOPIC, PARTITIONS)
            plain_requests.until_accepted(node.bootstrap, everywhere, seconds_max=_SECONDS_MAX)
            _write(node, everywhere, count)
            node.terminate()
            clean_seconds, clean_cpu = _started(node, everywhere)
            node.terminate()
            _started(node, everywhere)  # what this life writes, the next one has to recover
            _write(node, everywhere, count)
            node.kill()
            seconds, spent = _started(node, everywhere)
        finally:
            node.stop()
    condition = f"{count:,} batches of one record in {PARTITIONS} partitions"
    figures = figures_of(count, seconds, spent, clean_seconds, clean_cpu)
    yield from running.samples("recovery after kill -9", condition, round_number, figures)


def figures_of(
    count: int, seconds: float, spent_seconds: float, clean_seconds: float, clean_cpu_seconds: float
) -> dict[str, tuple[float, Better]]:
    """Returns the figures of a start after kill -9 and one after a clean stop.

    A recovery that took no longer than a clean start varies has no rate.
    """
    figures: dict[str, tuple[float, Better]] = {
        "s": (seconds, "lower"),
        "s after a clean stop": (clean_seconds, "lower"),
    }
    if seconds > clean_seconds * (1 + _CLEAN_START_VARIES):
        figures["batches/s"] = (count / (seconds - clean_seconds), "higher")
    if spent_seconds > clean_cpu_seconds:
        spent = 1e6 * (spent_seconds - clean_cpu_seconds) / count
        figures["broker CPU s per million batches"] = (spent, "lower")
    return figures


def _write(node: Node, everywhere: Sequence[Frame], count: int) -> None:
    with plain_requests.connected(node.bootstrap, _WRITERS) as sockets:
        plain_requests.drive(sockets, everywhere, in_flight=_WRITERS, count=count // PARTITIONS)


def _started(node: Node, everywhere: Sequence[Frame]) -> tuple[float, float]:
    """Starts the process; returns the seconds and its CPU seconds until every partition takes a record."""
    node.prepare()
    os.sync()
    started = time.perf_counter()
    node.launch()
    while time.perf_counter() < started + _SECONDS_MAX:
        try:
            with plain_requests.connected(node.bootstrap, 1) as sockets:
                plain_requests.drive(sockets, everywhere, in_flight=1, count=1)
        except (OSError, RuntimeError):  # it does not listen yet, or does not lead everything
            time.sleep(_PAUSE_SECONDS)
            continue
        return time.perf_counter() - started, cpu_seconds(node.pid)
    raise RuntimeError(f"not every partition takes records {_SECONDS_MAX:.0f} s after the start")
