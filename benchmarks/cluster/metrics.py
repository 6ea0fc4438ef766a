"""What metrics cost: a sample on a request's path, and a scrape of many partitions.

    python -m benchmarks.cluster.metrics --partitions 10000

Printed: nanoseconds of a counter and of a histogram's sample; milliseconds of a scrape as a scraper sees it, of reading on the
loop, of writing the text, and the longest time for which a timer of the loop came late meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from statistics import median

import click

from odradek.broker.app import Broker
from odradek.broker.metrics.collection import collected
from odradek.broker.metrics.listener import MetricsListener
from odradek.cluster.planning import TopicSpec
from odradek.config.loading import load_broker_config
from odradek.runtime.real import real_runtime
from odradek.telemetry.exposition import written
from odradek.telemetry.metrics import Histogram

_BEAT_SECONDS = 0.001
_TOPIC_PARTITIONS = 500


class Counted:
    """A counter as a part of the broker keeps one."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


def sample_costs_ns(count: int = 500_000) -> dict[str, float]:
    """Nanoseconds of a sample, the loop around it included."""
    counted, filled = Counted(), Histogram()

    def add_to_counter() -> None:
        counted.count += 1

    def add_to_histogram() -> None:
        filled.add(0.003)

    def cost(sample: Callable[[], None]) -> float:
        return min(timeit.repeat(sample, number=count, repeat=5)) / count * 1e9

    return {"counter": cost(add_to_counter), "histogram": cost(add_to_histogram)}


async def _lateness(late: list[float]) -> None:
    while True:
        due = time.perf_counter() + _BEAT_SECONDS
        await asyncio.sleep(_BEAT_SECONDS)
        late.append(time.perf_counter() - due)


async def _read_page(port: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    size = len(await reader.read())
    writer.close()
    return size


async def scrape_costs(partition_count: int, directory: str, scrapes: int = 5) -> dict[str, float]:
    """Milliseconds, as described above."""
    config, _ = load_broker_config(
        {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory, "metrics.listeners": "127.0.0.1:0"}
    )
    broker = Broker(config, real_runtime())
    await broker.start()
    listener = MetricsListener(broker, config)
    try:
        listener.start()
        for number in range(-(-partition_count // _TOPIC_PARTITIONS)):
            size = min(_TOPIC_PARTITIONS, partition_count - number * _TOPIC_PARTITIONS)
            await broker.context.cluster.create_topics(
                [TopicSpec(name=f"topic-{number}", partition_count=size)]
            )
        while len(broker.context.replicas.partitions) < partition_count:
            await asyncio.sleep(0.1)
        began = time.perf_counter()
        families = await collected(broker)
        on_loop_ms = (time.perf_counter() - began) * 1000
        began = time.perf_counter()
        written(families)
        text_ms = (time.perf_counter() - began) * 1000
        late: list[float] = []
        beat = asyncio.get_running_loop().create_task(_lateness(late))
        durations = []
        size_bytes = 0
        for _ in range(scrapes):
            began = time.perf_counter()
            size_bytes = await _read_page(listener.addresses[0][1])
            durations.append((time.perf_counter() - began) * 1000)
        beat.cancel()
        series = sum(family.series_count for family in families)
        return {
            "series": series,
            "bytes": size_bytes,
            "scrape_ms": median(durations),
            "on_loop_ms": on_loop_ms,
            "text_ms": text_ms,
            "loop_late_ms_max": max(late) * 1000,
        }
    finally:
        listener.close()
        await broker.stop()


@click.command(help=__doc__)
@click.option("--partitions", default=10_000, show_default=True)
def main(partitions: int) -> None:
    for name, cost_ns in sample_costs_ns().items():
        sys.stdout.write(f"{name}: {cost_ns:.0f} ns a sample\n")
    with tempfile.TemporaryDirectory() as directory:
        for name, value in asyncio.run(scrape_costs(partitions, directory)).items():
            sys.stdout.write(f"{name}: {value:.1f}\n")


if __name__ == "__main__":
    main()
