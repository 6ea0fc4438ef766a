"""Brokers that die: how long nothing is acknowledged, and how long until one that comes back has caught up.

Counted is the time from kill -9 to the first acknowledgement (acks=all) of a record that was sent after it: for a plain client
that asks without pause (`probing.py`), and at the same time for librdkafka, which asks when it sees fit. Each case has a topic
of its own, so that who leads and who controls is known.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Final

import confluent_kafka as ck

from benchmarks import load
from benchmarks.cluster.blocking_client import BlockingClient, all_in_sync, controller_of, until
from benchmarks.cluster.nodes import BROKERS, Cluster
from benchmarks.cluster.plan import WAIT_SECONDS, ClusterPlan, Up, led_topic
from benchmarks.cluster.probing import ProbeWriter
from benchmarks.samples import Better, Sample

WRITER_SETTINGS: Final[dict[str, object]] = {
    "acks": "all",
    "linger.ms": 0,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "message.timeout.ms": int(WAIT_SECONDS * 1000),
    "log_level": 0,
}
_PACE_SECONDS: Final = 0.005
_BEFORE_SECONDS: Final = 1.0
_VALUE: Final = bytes(100)
_MISSED_VALUE_BYTES: Final = 16_384


def leader_dies(item: Up, plan: ClusterPlan, round_number: int) -> Iterator[Sample]:
    controller = controller_of(item.cluster)
    victim, other = (broker for broker in BROKERS if broker != controller)
    yield from _killed(item, round_number, "of a partition's leader", victim, (victim, other, controller))


def controller_dies(item: Up, plan: ClusterPlan, round_number: int) -> Iterator[Sample]:
    """It leads nothing, but is one of those for whom the leader waits."""
    controller = controller_of(item.cluster)
    first, second = (broker for broker in BROKERS if broker != controller)
    yield from _killed(
        item, round_number, "of the controller, a follower", controller, (first, second, controller)
    )


def leading_controller_dies(item: Up, plan: ClusterPlan, round_number: int) -> Iterator[Sample]:
    controller = controller_of(item.cluster)
    first, second = (broker for broker in BROKERS if broker != controller)
    yield from _killed(
        item, round_number, "of the controller, the leader", controller, (controller, first, second)
    )


def _killed(
    item: Up, round_number: int, what: str, victim: int, placement: tuple[int, ...]
) -> Iterator[Sample]:
    cluster = item.cluster
    with led_topic(cluster, [placement]) as topic:
        try:
            plain, library = seconds_to_next_ack(cluster, topic, lambda: cluster.kill(victim))
        finally:
            revive(cluster)
        in_sync(cluster, topic, 1)
    figures: dict[str, tuple[float, Better]] = {
        "ms": (plain * 1000, "lower"),
        "ms for librdkafka": (library * 1000, "lower"),
    }
    yield from item.samples("kill -9 to the next acknowledgement", what, round_number, figures)


def seconds_to_next_ack(cluster: Cluster, topic: str, strike: Callable[[], None]) -> tuple[float, float]:
    """From `strike` to the first acknowledgement of a record that was sent after it: for a probe, for librdkafka."""
    producer = ck.Producer({**WRITER_SETTINGS, "bootstrap.servers": cluster.bootstrap})
    probe = ProbeWriter(cluster, topic)
    before: list[float] = []
    after: list[float] = []

    def send_until(done: Callable[[], bool], acknowledged: list[float]) -> None:
        def note(error: ck.KafkaError | None, _: ck.Message) -> None:
            if error is None:
                acknowledged.append(time.perf_counter())

        deadline = time.monotonic() + WAIT_SECONDS
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing was acknowledged within {WAIT_SECONDS:.0f} s")
            producer.produce(topic, _VALUE, partition=0, on_delivery=note)
            producer.poll(_PACE_SECONDS)

    probe.begin()
    try:
        ends = time.monotonic() + _BEFORE_SECONDS
        send_until(lambda: bool(before) and time.monotonic() > ends, before)
        struck = time.perf_counter()
        strike()
        send_until(lambda: bool(after) and probe.since(struck) is not None, after)
    finally:
        producer.purge()
        producer.flush(5)
        probe.stop()
    plain = probe.since(struck)
    assert plain is not None
    return plain, after[0] - struck


def catching_up(item: Up, plan: ClusterPlan, round_number: int) -> Iterator[Sample]:
    """From the start of a broker's process until it is in sync again; it was away while records were written."""
    cluster = item.cluster
    controller = controller_of(cluster)
    victim, *rest = sorted(BROKERS, key=lambda broker: broker == controller)
    placements = [(*rest, victim), (*reversed(rest), victim)]
    with led_topic(cluster, placements) as topic:
        try:
            cluster.terminate(victim)
            count = plan.missed_mb * 1_000_000 // _MISSED_VALUE_BYTES
            load.run_producer(
                cluster.bootstrap, topic, count=count, value_bytes=_MISSED_VALUE_BYTES, acks="all"
            )
            os.sync()
            with BlockingClient(cluster.address(controller)) as asker:
                started = time.perf_counter()
                cluster.launch(victim)
                until(
                    lambda: all_in_sync(asker, topic, len(placements)),
                    "catching up",
                    seconds_max=WAIT_SECONDS,
                )
                seconds = time.perf_counter() - started
            cluster.wait_until_ready(victim)
        finally:
            revive(cluster)
    figures: dict[str, tuple[float, Better]] = {"s": (seconds, "lower")}
    condition = f"{plan.missed_mb:,} MB missed, process start included"
    yield from item.samples("restart of a broker to full ISR", condition, round_number, figures)


def revive(cluster: Cluster) -> None:
    """Start again who does not run."""
    for broker in cluster.missing():
        cluster.launch(broker)
        cluster.wait_until_ready(broker)


def in_sync(cluster: Cluster, topic: str | None, count: int) -> None:
    """Return when every broker says that the partitions are led and in sync."""
    for broker in BROKERS:
        with BlockingClient(cluster.address(broker)) as asker:
            until(
                lambda asker=asker: all_in_sync(asker, topic, count),  # type: ignore[misc]
                "getting everyone in sync",
                seconds_max=WAIT_SECONDS,
            )
