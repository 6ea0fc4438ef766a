"""What metrics cost a broker: a sample on a request's path, traces, a scrape of many partitions, a loaded broker.

    python -m benchmarks.watching.metrics_cost [--partitions 10000] [--pairs 24] [--only-load] [--control]

The scrape runs in this process, on a broker of its own, so that the longest time for which it holds the loop can be seen. The
load runs beside itself, in pairs of rounds with and without a scrape each second (`paired_rounds.py`). Costs are CPU time,
which a busy machine leaves nearly alone, the longest hold of the loop as well; intervals that see 1 % need a quiet one.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from benchmarks.load import create_topic
from benchmarks.watching.paired_rounds import LoadedBroker, Pair, nothing, report
from odradek.broker.app import Broker
from odradek.broker.instruments.record_traces import RecordTraces
from odradek.broker.instruments.requests import RequestFigures
from odradek.broker.metrics.collection import MetricsCollection
from odradek.config.loading import load_broker_config
from odradek.config.server import OtlpConfig
from odradek.model.ids import TopicPartition
from odradek.net.connection_owner import ConnectionFigures
from odradek.records import BatchBuilder, read_header
from odradek.runtime.ports import Buffer
from odradek.runtime.real import real_runtime
from odradek.storage.log.results import AppendResult
from odradek.telemetry.exposition import written
from odradek.telemetry.metrics import Family, Histogram
from odradek.telemetry.spans import FinishedSpan
from odradek.telemetry.trace_context import TraceContext

_REQUESTS = 200_000
_BATCHES = 5_000
_PARTITIONS_OF_A_TOPIC = 100
_METRICS_PORT = 19464


def sample_microseconds() -> dict[str, float]:
    """Returns the CPU time of one sample of a histogram, and all that is counted for one request that is answered at once."""
    times = Histogram()
    began = time.thread_time()
    for _ in range(_REQUESTS):
        times.add(0.0007)
    sample_s = (time.thread_time() - began) / _REQUESTS
    figures = RequestFigures(time.monotonic)
    connection: Any = SimpleNamespace(
        client_software=("x", "1"), figures=ConnectionFigures(), peer="127.0.0.1:1"
    )
    frame = bytes(2) + b"\x00\x09" + bytes(100)
    reply: list[Buffer] = [b"x"]
    began = time.thread_time()
    for _ in range(_REQUESTS):
        figures.answered(connection, frame, reply, time.monotonic())
        connection.figures.served.sent(0.0, 0.0)
    request_s = (time.thread_time() - began) / _REQUESTS
    return {"sample": sample_s * 1e6, "request": request_s * 1e6}


class _NoSpans:
    """A `SpanSink` that keeps nothing."""

    def add(self, span: FinishedSpan) -> None: ...


def trace_microseconds() -> dict[str, float]:
    """Returns the CPU time that tracing takes for each appended batch of 16 KB: off, without and with a traced record."""
    config = OtlpConfig(traced_records_per_second_max=1 << 30)
    name = TopicPartition("t", 0)
    leader = SimpleNamespace(acknowledgement=lambda offset: None)
    partition: Any = _Traced(name=name, leader=lambda: leader)
    context = TraceContext(trace_id=1, span_id=2, is_sampled=True)
    costs = {}
    for label, headers in (("untraced", ()), ("traced", (("traceparent", context.header),))):
        traces = RecordTraces(_NoSpans(), real_runtime(), config, broker_id=1)
        builder = BatchBuilder()
        for number in range(150):
            builder.append(1_700_000_000_000, b"k", b"v" * 100, headers if number == 0 else ())
        batch = memoryview(builder.build())
        batches = [(read_header(batch), batch)]
        appended = AppendResult(0, 149, -1, False)
        began = time.thread_time()
        for _ in range(_BATCHES):
            traces.appended(partition, batches, appended, began=time.monotonic(), client_id="c")
        costs[label] = (time.thread_time() - began) / _BATCHES * 1e6
    context_without: Any = SimpleNamespace(traces=None)
    began = time.thread_time()
    for _ in range(_REQUESTS):
        if context_without.traces is not None:
            raise AssertionError
    return {"off": (time.thread_time() - began) / _REQUESTS * 1e6, **costs}


class _Traced(SimpleNamespace):
    """What tracing needs of a partition; it can be a key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


async def scrape_of(partitions: int) -> dict[str, float]:
    """Returns milliseconds of CPU of a scrape of so many partitions, and the most that one callback of the loop took."""
    with tempfile.TemporaryDirectory(prefix="odradek-metrics-") as folder:
        config, _ = load_broker_config({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": folder})
        broker = Broker(config, real_runtime())
        await broker.start()
        try:
            for first in range(0, partitions, _PARTITIONS_OF_A_TOPIC):
                await asyncio.to_thread(create_topic, broker.address, f"t{first}", _PARTITIONS_OF_A_TOPIC)
            collection = MetricsCollection(broker)
            await collection.collected()
            totals, writes, gaps = [], [], []
            for _ in range(5):
                began = time.thread_time()
                with _longest_hold() as hold:
                    families = await collection.collected()
                totals.append(time.thread_time() - began)
                gaps.append(hold[0])
                writes.append(await asyncio.to_thread(_written_in, families))
            series = sum(family.series_count for family in families)
        finally:
            await broker.stop()
    return {
        "collect_ms": statistics.median(totals) * 1e3,
        "write_ms": statistics.median(writes) * 1e3,
        "longest_hold_ms": statistics.median(gaps) * 1e3,
        "series": series,
    }


def _written_in(families: list[Family]) -> float:
    began = time.thread_time()
    written(families)
    return time.thread_time() - began


@contextmanager
def _longest_hold() -> Iterator[list[float]]:
    """Yields a list with the most CPU time that one callback of the loop takes meanwhile: other processes do not count."""
    real, thread = asyncio.Handle._run, threading.get_ident()
    longest = [0.0]

    def run(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        real(handle)
        if threading.get_ident() == thread:
            longest[0] = max(longest[0], time.thread_time() - began)

    asyncio.Handle._run = run  # type: ignore[method-assign, assignment]
    try:
        yield longest
    finally:
        asyncio.Handle._run = real  # type: ignore[method-assign]


def scraped_pairs(options: argparse.Namespace) -> tuple[list[Pair], int]:
    """Returns the pairs of rounds, of which one is scraped, and the records of a round."""
    settings = {"metrics.listeners": f"127.0.0.1:{_METRICS_PORT}"}
    with LoadedBroker(settings) as loaded:
        for first in range(0, options.quiet_partitions, _PARTITIONS_OF_A_TOPIC):
            left = options.quiet_partitions - first
            create_topic(loaded.node.bootstrap, f"quiet-{first}", min(left, _PARTITIONS_OF_A_TOPIC))
        records = loaded.records_in(options.seconds)
        watch = nothing if options.control else partial(scraping, options.pause)
        return list(loaded.pairs(options.pairs, records, watch)), records


@contextmanager
def scraping(pause_s: float) -> Iterator[None]:
    """Scrapes on a thread, first after half a pause: a round of three pauses has three scrapes."""
    stop = threading.Event()
    failures: list[Exception] = []
    scraper = threading.Thread(target=_scrape, args=(pause_s, stop, failures))
    scraper.start()
    try:
        yield
    finally:
        stop.set()
        scraper.join()
    if failures:
        raise failures[0]


def _scrape(pause_s: float, stop: threading.Event, failures: list[Exception]) -> None:
    wait_s = pause_s / 2
    while not stop.wait(wait_s):
        began = time.monotonic()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{_METRICS_PORT}/metrics", timeout=30) as page:
                page.read()
        except OSError as error:
            failures.append(error)
            return
        wait_s = max(0.0, pause_s - (time.monotonic() - began))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--pairs", type=int, default=24, help="pairs of rounds; 0: no loaded broker")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a round")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds from one scrape to the next")
    parser.add_argument(
        "--quiet-partitions", type=int, default=0, help="partitions of the loaded broker besides its eight"
    )
    parser.add_argument(
        "--control", action="store_true", help="scrape in no round: how far the figure is from 0"
    )
    parser.add_argument("--only-load", action="store_true", help="measure the loaded broker alone")
    options = parser.parse_args()
    if not options.only_load:
        show_parts(options.partitions)
    if options.pairs:
        pairs, records = scraped_pairs(options)
        scraped = "no scrape (control)" if options.control else f"a scrape every {options.pause:g} s"
        print(f"a broker with {8 + options.quiet_partitions} partitions under full load, {scraped}:")
        print(report(pairs, records))


def show_parts(partitions: int) -> None:
    """Measures and prints what needs no load."""
    cost = sample_microseconds()
    print(f"a sample: {cost['sample']:.2f} µs; all of a request, five samples: {cost['request']:.2f} µs")
    traced = trace_microseconds()
    print(
        f"tracing, for each batch of 16 KB: off {traced['off']:.2f} µs, without a traced record {traced['untraced']:.1f} µs, "
        f"with one {traced['traced']:.0f} µs"
    )
    scrape = asyncio.run(scrape_of(partitions))
    print(
        f"a scrape of {partitions:,} partitions ({scrape['series']:,} series): {scrape['collect_ms']:.0f} ms on the loop, "
        f"longest hold {scrape['longest_hold_ms']:.1f} ms; {scrape['write_ms']:.0f} ms to write on a thread"
    )


if __name__ == "__main__":
    main()
