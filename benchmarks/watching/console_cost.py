"""The cost to a broker of being watched by the console.

    python -m benchmarks.watching.console_cost [--topics 1000] [--rounds 6] [--records 3000000]

One broker with so many topics of four partitions, one producer at full speed, and `odradek console` with a browser that asks
for the overview and the topics once a second. Rounds with the console alternate with rounds in which it is stopped (SIGSTOP).
Two costs are printed, each as a ratio of a pair of rounds, with its spread: the broker's CPU for a record, which is what a
console on another machine costs, and the time that the records took, to which the console's own CPU counts here.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psutil
from tests.kit.commands import RunningCommand

from benchmarks.load import create_topic, delete_topic, run_producer
from benchmarks.odradek_node import OdradekNode, serve_environment
from odradek import Admin, NewTopic

PARTITIONS = 4
TOPICS_AT_ONCE = 100
PAGES = ("/", "/topics")
SETTLE_S = 3.0


class Round(NamedTuple):
    """One round of the load: its seconds, and the CPU seconds of broker and console in it."""

    seconds: float
    broker_cpu_s: float
    console_cpu_s: float


@contextmanager
def console_of(bootstrap: str) -> Iterator[tuple[psutil.Process, str]]:
    """Yields the console's process and its address."""
    words = ("console", "--bootstrap", bootstrap, "--listen", "127.0.0.1:0")
    with RunningCommand(*words, environment=serve_environment()) as console:
        try:
            yield psutil.Process(console.pid), console.address
        finally:
            console.process.send_signal(signal.SIGCONT)


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def look(address: str) -> None:
    """Asks for each page once."""
    for page in PAGES:
        with urllib.request.urlopen(address.rstrip("/") + page, timeout=60) as page_body:
            page_body.read()


def look_each_second(address: str, stop: threading.Event) -> None:
    while not stop.wait(1.0):
        look(address)


def one_round(
    node: OdradekNode, console: psutil.Process, address: str, records: int, *, is_watched: bool
) -> Round:
    """Sends the records to a new topic, with the console at work or stopped."""
    stop = threading.Event()
    browser = threading.Thread(target=look_each_second, args=(address, stop))
    if is_watched:
        console.resume()
        browser.start()
    else:
        console.suspend()
    broker = psutil.Process(node.pid)
    create_topic(node.bootstrap, "load", 8)
    time.sleep(SETTLE_S)
    before = cpu_s(broker), cpu_s(console)
    loaded = run_producer(node.bootstrap, "load", count=records, value_bytes=100, acks="all")
    after = cpu_s(broker), cpu_s(console)
    delete_topic(node.bootstrap, "load")
    stop.set()
    if is_watched:
        browser.join()
    return Round(loaded.seconds, after[0] - before[0], after[1] - before[1])


def fill(bootstrap: str, topics: int) -> None:
    with Admin(bootstrap) as admin:
        for first in range(0, topics, TOPICS_AT_ONCE):
            names = range(first, min(first + TOPICS_AT_ONCE, topics))
            admin.create_topics([NewTopic(f"quiet-{number}", PARTITIONS, 1) for number in names])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--records", type=int, default=3_000_000)
    options = parser.parse_args()
    with OdradekNode() as node:
        fill(node.bootstrap, options.topics)
        with console_of(node.bootstrap) as (console, address):
            look(address)
            one_round(node, console, address, options.records, is_watched=True)
            pairs = []
            for number in range(options.rounds):
                order = (False, True) if number % 2 else (True, False)
                rounds = {
                    is_watched: one_round(node, console, address, options.records, is_watched=is_watched)
                    for is_watched in order
                }
                pairs.append((rounds[True], rounds[False]))
            console.resume()
            memory_mb = console.memory_info().rss / 1e6
    print(
        f"{options.topics:,} topics of {PARTITIONS} partitions; {options.records:,} records a round; console {memory_mb:.0f} MB"
    )
    show("the broker's CPU", [watched.broker_cpu_s / alone.broker_cpu_s for watched, alone in pairs])
    show("time of the records", [watched.seconds / alone.seconds for watched, alone in pairs])
    show("the console's CPU, s a second", [watched.console_cpu_s / watched.seconds for watched, _ in pairs])


def show(what: str, ratios: list[float]) -> None:
    print(f"{what:32} {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
