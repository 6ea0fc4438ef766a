"""Many topics, many partitions: what three brokers weigh, how fast topics are made, how soon all are served after a restart.

Each contender is alone here, on a fresh cluster, and gets the machine for itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Final

from benchmarks.cluster.blocking_client import BlockingClient, all_in_sync, until
from benchmarks.cluster.nodes import BROKERS, Cluster
from benchmarks.cluster.plan import ClusterPlan, Up, many_topics
from benchmarks.measures import REST_SECONDS
from benchmarks.samples import Better, Sample
from benchmarks.watch import cpu_seconds, memory

SECONDS_MAX: Final = 600.0
_PAUSE_SECONDS: Final = 0.25
"""An answer about thousands of partitions costs the machine something: they are not asked for all the time."""
_TOPIC_PARTITIONS: Final = 100


def many(item: Up, plan: ClusterPlan, round_number: int) -> Iterator[Sample]:
    """Memory at rest, topics made by one request, and a restart of all after kill -9."""
    cluster = item.cluster
    time.sleep(REST_SECONDS)
    yield from _memory(item, round_number, "at rest, mean of three")
    os.sync()
    yield from _made(item, plan, round_number)
    count = _fill(cluster, plan)
    condition = f"{count:,} partitions"
    time.sleep(REST_SECONDS)
    yield from _memory(item, round_number, f"{condition}, mean of three")
    for broker in BROKERS:
        cluster.kill(broker)
    os.sync()
    led_seconds, synced = _restarted(cluster, count)
    yield from item.samples(
        "restart after kill -9 of all", f"{condition}, led", round_number, {"s": (led_seconds, "lower")}
    )
    yield from item.samples(
        "restart after kill -9 of all", f"{condition}, in sync", round_number, {"s": (synced, "lower")}
    )


def _made(item: Up, plan: ClusterPlan, round_number: int) -> Iterator[Sample]:
    """The topics of one request: until it is answered, all are led, all leaders serve, and all replicas exist.

    A topic is led once the controller has decided it, whether or not a broker has made a log for it.
    """
    cluster = item.cluster

    def spent() -> float:
        return sum(map(cpu_seconds, cluster.pids()))

    def samples(condition: str, seconds: float, cpu: float | None = None) -> Iterator[Sample]:
        figures: dict[str, tuple[float, Better]] = {"s": (seconds, "lower")}
        if cpu is not None:
            figures["CPU s of the three brokers"] = (cpu, "lower")
        full = f"{plan.topics:,} by one request, {condition}"
        return item.samples("topics made", full, round_number, figures)

    with ExitStack() as stack:
        askers = {broker: stack.enter_context(BlockingClient(cluster.address(broker))) for broker in BROKERS}
        asker = askers[BROKERS[0]]
        replicas_before = _replica_count(askers)
        before = spent()
        started = time.perf_counter()
        asker.create(many_topics(plan.topics, 1, "single"))
        yield from samples("answered", time.perf_counter() - started)
        _until_in_sync(asker, plan.topics)
        yield from samples("led", time.perf_counter() - started, spent() - before)
        led = {broker: asker.led_by(broker) for broker in BROKERS}
        _until(lambda: all(askers[broker].has_ends(led[broker]) for broker in BROKERS), "serving all topics")
        yield from samples("served by their leaders", time.perf_counter() - started)
        replicas = replicas_before + plan.topics * len(BROKERS)
        _until(lambda: _replica_count(askers) >= replicas, "making all replicas")
        yield from samples("all replicas there", time.perf_counter() - started, spent() - before)


def _replica_count(askers: Mapping[int, BlockingClient]) -> int:
    return sum(asker.replica_count() for asker in askers.values())


def _memory(item: Up, round_number: int, condition: str) -> Iterator[Sample]:
    results = [memory(pid) for pid in item.cluster.pids()]
    figures: dict[str, tuple[float, Better]] = {
        "RSS MB": (sum(entry.rss_bytes for entry in results) / len(results) / 1e6, "lower"),
        "PSS MB": (sum(entry.pss_bytes for entry in results) / len(results) / 1e6, "lower"),
    }
    yield from item.samples("memory", condition, round_number, figures)


def _fill(cluster: Cluster, plan: ClusterPlan) -> int:
    """Make more topics, until there are as many partitions as the plan says; how many there are."""
    count = plan.topics
    with BlockingClient(cluster.address(BROKERS[0])) as asker:
        while count < plan.partitions:
            partitions = min(_TOPIC_PARTITIONS, plan.partitions - count)
            asker.create(many_topics(1, partitions, f"wide-{count}"))
            count += partitions
        _until_in_sync(asker, count)
    return count


def _restarted(cluster: Cluster, count: int) -> tuple[float, float]:
    """Seconds from the start of three processes until all partitions are led, and until all are in sync."""
    started = time.perf_counter()
    for broker in BROKERS:
        cluster.launch(broker)
    for broker in BROKERS:
        cluster.wait_until_ready(broker)
    with BlockingClient(cluster.address(BROKERS[0])) as asker:
        _until(lambda: _all_led(asker, count), "leading all partitions")
        led = time.perf_counter() - started
        _until_in_sync(asker, count)
    return led, time.perf_counter() - started


def _all_led(asker: BlockingClient, count: int) -> bool:
    partitions = asker.partitions(None)
    return len(partitions) >= count and all(
        not item.error_code and item.leader_id >= 0 for item in partitions
    )


def _until_in_sync(asker: BlockingClient, count: int) -> None:
    _until(lambda: all_in_sync(asker, None, count), f"getting {count:,} partitions in sync")


def _until(condition: Callable[[], bool], what: str) -> None:
    until(condition, what, seconds_max=SECONDS_MAX, pause=_PAUSE_SECONDS)
