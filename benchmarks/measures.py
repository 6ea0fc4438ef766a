"""What is measured of each broker, one round at a time. Every function yields samples for one contender."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks import load
from benchmarks.contenders import Contender
from benchmarks.first_ack import seconds_to_first_ack
from benchmarks.odradek_node import Node
from benchmarks.samples import Better, Sample
from benchmarks.watch import PeakMemory, cpu_seconds, memory

PARTITIONS = 4
READ_TIMES = 3
REST_SECONDS = 3.0
"""How long a fresh broker is left alone before its memory at rest is read."""

_SETTLE_BLOCK: Final = memoryview(b"x" * (1 << 20))
_SETTLE_SHARE: Final = 4
"""At most one part in so many of the available memory is written and deleted before a sample."""
CLIENT_BYTES: Final = 512 << 20
"""What a producing client uses of free memory before the broker does: its queue of 256 MiB, and its requests."""

_topics = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of everything."""

    rounds: int
    counts: dict[int, int]
    """Records to move, by the size of their values in bytes."""
    latency_seconds: float
    start_rounds: int
    acks: tuple[str, ...] = ("1", "all")
    """The acknowledgements that producers wait for, in turn; what is written with the last of them is read back."""


SMOKE = Plan(
    rounds=1,
    counts={100: 20_000, 1024: 5_000},
    latency_seconds=0.5,
    start_rounds=1,
)
"""Whether it runs at all; its figures mean nothing."""
QUICK = Plan(
    rounds=3,
    counts={100: 1_000_000, 1024: 300_000, 16_384: 20_000},
    latency_seconds=4.0,
    start_rounds=3,
)
FULL = Plan(
    rounds=7,
    counts={100: 4_000_000, 1024: 1_500_000, 16_384: 100_000},
    latency_seconds=15.0,
    start_rounds=7,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A contender that is up."""

    contender: Contender
    node: Node

    def samples(
        self, measure: str, condition: str, round_number: int, figures: dict[str, tuple[float, Better]]
    ) -> Iterator[Sample]:
        for quantity, (value, better) in figures.items():
            yield Sample(
                measure=measure,
                condition=condition,
                quantity=quantity,
                better=better,
                contender=self.contender.key,
                round_number=round_number,
                value=value,
            )


def value_name(size: int) -> str:
    return f"{size} B" if size < 1024 else f"{size // 1024} KiB"


# -- produce, consume, and the CPU that they cost the broker


def throughput(running: Running, plan: Plan, round_number: int, size: int) -> Iterator[Sample]:
    """Produce values of `size` bytes with each of the plan's acks, and read those of the last one back."""
    count, name = plan.counts[size], value_name(size)
    for acks in plan.acks:
        with _topic(running.node) as topic:
            settle(count * size)
            moved, spent = _measured(
                running.node, load.run_producer, topic, count=count, value_bytes=size, acks=acks
            )
            figures = _flow(moved, spent, "in")
            yield from running.samples("produce", f"{name}, acks={acks}", round_number, figures)
            _check_all_there(running.node, topic, count)
            if acks == plan.acks[-1]:
                settle()
                moved, spent = _measured(running.node, _read_repeatedly, topic, count=count, value_bytes=size)
                yield from running.samples("consume", name, round_number, _flow(moved, spent, "out"))


def _read_repeatedly(bootstrap: str, topic: str, *, count: int, value_bytes: int) -> load.Loaded:
    """Reading is over so soon that once says little."""
    runs = [
        load.run_consumer(bootstrap, topic, count=count, value_bytes=value_bytes) for _ in range(READ_TIMES)
    ]
    return load.Loaded(
        records=sum(run.records for run in runs),
        payload_bytes=sum(run.payload_bytes for run in runs),
        seconds=sum(run.seconds for run in runs),
        client_cpu_seconds=sum(run.client_cpu_seconds for run in runs),
    )


def warm_up(running: Running, plan: Plan) -> None:
    """Enough work for the peer's compiler to have done most of its own; not measured."""
    for size, count in plan.counts.items():
        with _topic(running.node) as topic:
            load.run_producer(running.node.bootstrap, topic, count=count, value_bytes=size, acks="all")
            load.run_consumer(running.node.bootstrap, topic, count=count, value_bytes=size)


def _measured(
    node: Node, run: Callable[..., load.Loaded], topic: str, **flags: object
) -> tuple[load.Loaded, float]:
    before = cpu_seconds(node.pid)
    moved = run(node.bootstrap, topic, **flags)
    return moved, cpu_seconds(node.pid) - before


def _flow(moved: load.Loaded, broker_cpu_seconds: float, direction: str) -> dict[str, tuple[float, Better]]:
    return {
        "MB/s": (moved.payload_bytes / moved.seconds / 1e6, "higher"),
        "records/s": (moved.records / moved.seconds, "higher"),
        f"broker CPU s per GB {direction}": (broker_cpu_seconds / (moved.payload_bytes / 1e9), "lower"),
    }


def _check_all_there(node: Node, topic: str, count: int) -> None:
    deadline = time.monotonic() + 10
    while (end_offsets := load.end_offsets(node.bootstrap, topic, PARTITIONS)) != count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{end_offsets} records of {count} are in the log")
        time.sleep(0.05)


# -- the time to an acknowledgement


def latency(running: Running, plan: Plan, round_number: int, acks: str) -> Iterator[Sample]:
    """Acknowledgement of single 1 KiB records, 1,000 a second."""
    with _topic(running.node) as topic:
        os.sync()
        latencies = load.run_latency(
            running.node.bootstrap, topic, acks=acks, rate=1000, seconds=plan.latency_seconds
        )
    figures: dict[str, tuple[float, Better]] = {
        "p50 ms": (latencies.p50_ms, "lower"),
        "p99 ms": (latencies.p99_ms, "lower"),
    }
    condition = f"1 KiB values at 1,000 records/s, acks={acks}"
    yield from running.samples("acknowledgement", condition, round_number, figures)


# -- memory


def memory_use(contender: Contender, plan: Plan, round_number: int) -> Iterator[Sample]:
    """A fresh process at rest, and at its largest while 1 KiB records go in and out."""
    with work_directory() as directory:
        node = contender.make(directory).start()
        try:
            running = Running(contender=contender, node=node)
            time.sleep(REST_SECONDS)
            rest = memory(node.pid)
            size = 1024
            count = plan.counts[size]
            with PeakMemory(node.pid) as watched, _topic(node) as topic:
                load.run_producer(node.bootstrap, topic, count=count, value_bytes=size, acks="all")
                load.run_consumer(node.bootstrap, topic, count=count, value_bytes=size)
            for condition, result in (("at rest", rest), ("under load", watched.peak)):
                figures: dict[str, tuple[float, Better]] = {
                    "RSS MB": (result.rss_bytes / 1e6, "lower"),
                    "PSS MB": (result.pss_bytes / 1e6, "lower"),
                }
                yield from running.samples("memory", condition, round_number, figures)
        finally:
            node.stop()


# -- start


def start(contender: Contender, plan: Plan, round_number: int) -> Iterator[Sample]:
    """From the start of the process to the first acknowledged record: on an empty directory, then again."""
    del plan
    with work_directory() as directory:
        node = contender.make(directory)
        running = Running(contender=contender, node=node)
        try:
            for condition in ("first start, topic auto-created", "restart after SIGTERM"):
                node.prepare()
                os.sync()
                started = time.perf_counter()
                node.launch()
                host, port = node.bootstrap.rsplit(":", 1)
                seconds = seconds_to_first_ack((host, int(port)), "first", started)
                figures: dict[str, tuple[float, Better]] = {"ms": (seconds * 1000, "lower")}
                yield from running.samples(
                    "start to first acknowledged record", condition, round_number, figures
                )
                node.terminate()
        finally:
            node.stop()


# -- the same start for every sample


def settle(written_bytes: int = 0) -> int:
    """Makes a sample that writes so much start as any other; returns how many bytes of free memory were used for that.

    What earlier samples left dirty is written. Then a file of that size, and of what the client uses, is written and deleted,
    so that the page cache has its pages at hand: a virtual machine can give free memory back to its host within seconds, and
    the first write to such a page takes up to ten times as long, in CPU time of the process that writes.
    """
    os.sync()
    wanted_bytes = written_bytes + CLIENT_BYTES if written_bytes else 0
    used_bytes: int = min(wanted_bytes, psutil.virtual_memory().available // _SETTLE_SHARE)
    with tempfile.TemporaryFile(prefix="odradek-bench-", buffering=0) as file:
        for position in range(0, used_bytes, len(_SETTLE_BLOCK)):
            file.write(_SETTLE_BLOCK[: used_bytes - position])
    return used_bytes


# -- places to work in


@contextmanager
def _topic(node: Node) -> Iterator[str]:
    """A topic that is deleted at the end."""
    name = f"bench-{next(_topics)}"
    load.create_topic(node.bootstrap, name, PARTITIONS)
    try:
        yield name
    finally:
        load.delete_topic(node.bootstrap, name)


@contextmanager
def work_directory() -> Iterator[Path]:
    """A directory on the disk that holds temporary files, removed at the end."""
    path = Path(tempfile.mkdtemp(prefix="odradek-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
