"""The cost to a broker of being watched by the console.

    python -m benchmarks.watching.console_cost [--topics 1000] [--pairs 20] [--seconds 4] [--control]

One broker with so many topics of four partitions, one producer at full speed, and `odradek console` with a browser that asks
for the overview and the topics once a second. In one round of each pair the console is stopped (SIGSTOP), see
`paired_rounds.py`. Two costs are printed: the broker's CPU for a record, which is what a console on another machine costs, and
the time that the records took, to which the console's own CPU counts here. Both are upper bounds: readings that were due while
the console was stopped begin with the round, so a round has more than its share of them (of those every ten seconds, twice).
"""

from __future__ import annotations

import argparse
import signal
import statistics
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psutil
from tests.kit.commands import RunningCommand

from benchmarks.odradek_node import serve_environment
from benchmarks.watching.paired_rounds import LoadedBroker, cpu_s, nothing, report
from odradek import Admin, NewTopic

PARTITIONS = 4
TOPICS_AT_ONCE = 100
PAGES = ("/", "/topics")


class WatchingConsole(NamedTuple):
    """A console that is stopped unless a round is watched."""

    process: psutil.Process
    address: str
    cpu_spent_s: list[float]
    """The CPU seconds of the console in each watched round."""

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Lets the console read the cluster, and a browser look at it each second, until the end of the round."""
        stop = threading.Event()
        failures: list[Exception] = []
        browser = threading.Thread(target=self._look_each_second, args=(stop, failures))
        before_s = cpu_s(self.process.pid)
        self.process.resume()
        browser.start()
        try:
            yield
        finally:
            self.cpu_spent_s.append(cpu_s(self.process.pid) - before_s)
            stop.set()
            browser.join()
            self.process.suspend()
        if failures:
            raise failures[0]

    def look(self) -> None:
        """Asks for each page once."""
        for page in PAGES:
            with urllib.request.urlopen(self.address.rstrip("/") + page, timeout=60) as page_body:
                page_body.read()

    def _look_each_second(self, stop: threading.Event, failures: list[Exception]) -> None:
        wait_s = 0.5
        while not stop.wait(wait_s):
            wait_s = 1.0
            try:
                self.look()
            except OSError as error:
                failures.append(error)
                return


@contextmanager
def console_of(bootstrap: str) -> Iterator[WatchingConsole]:
    """Yields a console that has read the cluster, and is stopped."""
    words = ("console", "--bootstrap", bootstrap, "--listen", "127.0.0.1:0")
    with RunningCommand(*words, environment=serve_environment()) as running:
        console = WatchingConsole(psutil.Process(running.pid), running.address, [])
        try:
            console.look()
            console.process.suspend()
            yield console
        finally:
            running.process.send_signal(signal.SIGCONT)


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
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a round")
    parser.add_argument(
        "--control",
        action="store_true",
        help="let the console work in no round: how far the figure is from 0",
    )
    options = parser.parse_args()
    with LoadedBroker({}) as loaded:
        fill(loaded.node.bootstrap, options.topics)
        with console_of(loaded.node.bootstrap) as console:
            records = loaded.records_in(options.seconds)
            watch = nothing if options.control else console.at_work
            pairs = list(loaded.pairs(options.pairs, records, watch))
            memory_mb = console.process.memory_info().rss / 1e6
    print(
        f"a broker with {options.topics:,} topics of {PARTITIONS} partitions under full load, "
        f"{'a console that is stopped (control)' if options.control else 'a console and a browser beside it'}:"
    )
    print(report(pairs, records))
    if not options.control:
        shares = [
            spent_s / pair.watched.seconds for spent_s, pair in zip(console.cpu_spent_s, pairs, strict=True)
        ]
        print(
            f"  the console: {memory_mb:.0f} MB, {statistics.median(shares):.3f} of a CPU "
            f"({min(shares):.3f} to {max(shares):.3f})"
        )


if __name__ == "__main__":
    main()
