"""Records through three brokers: how many, at what cost, and how long one waits for its acknowledgement."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Final

from benchmarks import load
from benchmarks.cluster.nodes import BROKERS, Cluster
from benchmarks.cluster.plan import ClusterPlan, Up, spread_topic
from benchmarks.measures import READ_TIMES, settle, value_name
from benchmarks.samples import Better, Sample
from benchmarks.watch import cpu_seconds

PARTITIONS: Final = 6
_COUNT_SECONDS_MAX: Final = 30.0
_WARM_LATENCIES: Final = 3


def warm_up(item: Up, plan: ClusterPlan) -> None:
    """Enough work for the peer's compiler to have done most of its own; not measured."""
    for size, count in plan.counts.items():
        with spread_topic(item.cluster, PARTITIONS) as topic:
            bootstrap = item.cluster.bootstrap
            load.run_producer(bootstrap, topic, count=count, value_bytes=size, acks="all")
            load.run_consumer(bootstrap, topic, count=count, value_bytes=size)
    with spread_topic(item.cluster, 1) as topic:
        seconds = _WARM_LATENCIES * plan.latency_seconds
        load.run_latency(item.cluster.bootstrap, topic, acks="all", rate=plan.rate, seconds=seconds)


def throughput(item: Up, plan: ClusterPlan, round_number: int, size: int) -> Iterator[Sample]:
    """Produce values of `size` bytes with acks=all and read them back."""
    count, name = plan.counts[size], value_name(size)
    with spread_topic(item.cluster, PARTITIONS) as topic:
        figures = _measured(
            item.cluster,
            lambda bootstrap: load.run_producer(bootstrap, topic, count=count, value_bytes=size, acks="all"),
            times=1,
            direction="in",
            written_bytes=len(BROKERS) * count * size,
        )
        yield from item.samples("produce", f"{name}, acks=all", round_number, figures)
        _check_all_there(item.cluster, topic, count)
        figures = _measured(
            item.cluster,
            lambda bootstrap: load.run_consumer(bootstrap, topic, count=count, value_bytes=size),
            times=READ_TIMES,
            direction="out",
        )
        yield from item.samples("consume", name, round_number, figures)


def _measured(
    cluster: Cluster,
    run: Callable[[str], load.Loaded],
    *,
    times: int,
    direction: str,
    written_bytes: int = 0,
) -> dict[str, tuple[float, Better]]:
    settle(written_bytes)
    before = _cpu_seconds(cluster)
    moved = [run(cluster.bootstrap) for _ in range(times)]
    spent = _cpu_seconds(cluster) - before
    payload_bytes, seconds = sum(item.payload_bytes for item in moved), sum(item.seconds for item in moved)
    return {
        "MB/s": (payload_bytes / seconds / 1e6, "higher"),
        f"broker CPU s per GB {direction}": (spent / (payload_bytes / 1e9), "lower"),
    }


def _cpu_seconds(cluster: Cluster) -> float:
    return sum(cpu_seconds(pid) for pid in cluster.pids())


def _check_all_there(cluster: Cluster, topic: str, count: int) -> None:
    deadline = time.monotonic() + _COUNT_SECONDS_MAX
    while (end_offsets := load.end_offsets(cluster.bootstrap, topic, PARTITIONS)) != count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{end_offsets} records of {count} are in the log")
        time.sleep(0.05)


def latency(item: Up, plan: ClusterPlan, round_number: int) -> Iterator[Sample]:
    """Acknowledgement of single 1 KiB records at a fixed rate."""
    with spread_topic(item.cluster, 1) as topic:
        os.sync()
        latencies = load.run_latency(
            item.cluster.bootstrap, topic, acks="all", rate=plan.rate, seconds=plan.latency_seconds
        )
    figures: dict[str, tuple[float, Better]] = {
        "p50 ms": (latencies.p50_ms, "lower"),
        "p99 ms": (latencies.p99_ms, "lower"),
        "p99.9 ms": (latencies.p999_ms, "lower"),
    }
    condition = f"1 KiB values at {plan.rate:,} records/s, acks=all"
    yield from item.samples("acknowledgement", condition, round_number, figures)
