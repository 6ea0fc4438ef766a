"""What the console's own pages cost: its memory, the time of its pages at 10,000 topics, and how fast it searches records.

    python -m benchmarks.watching.console_pages [--topics 10000] [--records 1000000] [--looks 30]

Pages are of a cluster that exists in answers alone (`tests/interop/console/scripted_cluster.py`): six brokers, one of them
dead, topics of four partitions. Memory is that of the process alone: at rest, of a console of ten topics after a look at each
page; then of one of all topics, the most that it had. Searches are of a real broker
on this machine: JSON records of about 80 bytes in four partitions, a filter that matches none, page by page as in a browser.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from tests.kit.commands import RunningCommand

from benchmarks.load import ROOT, create_topic
from benchmarks.odradek_node import OdradekNode, serve_environment
from benchmarks.watching.paired_rounds import cpu_s
from odradek import Producer

FEW_TOPICS: Final = 10
TOPIC: Final = "purchases"
PARTITIONS: Final = 4
PAUSE_S: Final = 0.3
READ_WITHIN_S: Final = 120.0
PAGES: Final = {
    "overview": "/",
    "topics, first page": "/topics",
    "topics, searched": "/topics?search=team-39",
    "topics by size": "/topics?sort=size",
    "one topic": "/topics/orders.team-0.v0",
}
FILTERS: Final[Mapping[str, Mapping[str, str]]] = {
    "text": {"text": "no such text"},
    "key": {"key": "no-such-key"},
    "a condition on JSON": {"json": "$.customer.id = -1"},
}
_GO_ON: Final = re.compile(r'<a class="button" href="([^"]+)" data-go-on')
_THIN_SPACE: Final = "\u202f"


@contextmanager
def console_of(bootstrap: str) -> Iterator[RunningCommand]:
    words = ("console", "--bootstrap", bootstrap, "--listen", "127.0.0.1:0")
    with RunningCommand(*words, environment=serve_environment()) as console:
        yield console


@contextmanager
def scripted_cluster(topics: int) -> Iterator[str]:
    """Yields the address of a cluster of so many topics."""
    command = [sys.executable, "-m", "tests.interop.console.scripted_cluster", "--topics", str(topics)]
    with subprocess.Popen([*command, "--dead", "4"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as cluster:
        try:
            assert cluster.stdout is not None
            yield cluster.stdout.readline().split()[1]
        finally:
            cluster.terminate()


def page(console: RunningCommand, path: str) -> str:
    with urllib.request.urlopen(console.address.rstrip("/") + path, timeout=60) as body:
        return str(body.read().decode())


def memory_mb(console: RunningCommand, field: str = "VmRSS") -> float:
    """Returns the memory of the process now; with `VmHWM`, the most that it had."""
    status = Path(f"/proc/{console.pid}/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) * 1024 / 1e6


def wait_until_read(console: RunningCommand, topics: int) -> None:
    """Returns once the overview has the number of topics and their sizes."""
    number = f"{topics:,}".replace(",", _THIN_SPACE)
    deadline_s = time.monotonic() + READ_WITHIN_S
    while time.monotonic() < deadline_s:
        text = page(console, "/")
        if number in text and "<svg" in text.partition('id="sizes"')[2]:
            return
        time.sleep(PAUSE_S)
    raise TimeoutError(f"the console has not read {topics} topics within {READ_WITHIN_S:g} s")


def show_pages(topics: int, looks: int) -> None:
    """Prints memory and the time of each page, as one who looks again and again sees it."""
    for count in (FEW_TOPICS, topics):
        with scripted_cluster(count) as bootstrap, console_of(bootstrap) as console:
            wait_until_read(console, count)
            for path in PAGES.values():
                page(console, path)
            if count == FEW_TOPICS:
                time.sleep(READ_WITHIN_S / 12)  # at rest: the garbage of the start is collected
                print(f"the console at rest, {count} topics: {memory_mb(console):.0f} MB")
                continue
            print(f"{count:,} topics, {PARTITIONS * count:,} partitions, milliseconds of a page:")
            for name, path in PAGES.items():
                show_page(name, times_ms(console, path, looks))
            print(f"  memory: {memory_mb(console):.0f} MB, at most {memory_mb(console, 'VmHWM'):.0f} MB")


def times_ms(console: RunningCommand, path: str, looks: int) -> list[float]:
    """Returns how long each look took. Pauses let the console read the cluster in between."""
    times = []
    for _ in range(looks):
        began = time.perf_counter()
        page(console, path)
        times.append((time.perf_counter() - began) * 1e3)
        time.sleep(PAUSE_S)
    return times


def show_page(name: str, times: list[float]) -> None:
    print(
        f"  {name:20} median {statistics.median(times):4.0f}, longest {max(times):4.0f} ({len(times)} looks)"
    )


def show_searches(records: int) -> None:
    """Prints how many records a second a search looks at, with each kind of filter."""
    with OdradekNode() as node:
        create_topic(node.bootstrap, TOPIC, PARTITIONS)
        size = fill(node.bootstrap, records)
        with console_of(node.bootstrap) as console:
            wait_for_topic(console)
            print(f"a search among {records:,} records of {size / records:.0f} bytes:")
            for name, words in FILTERS.items():
                before_s, began = cpu_s(console.pid), time.perf_counter()
                steps = searched(console, words, records)
                seconds, spent_s = time.perf_counter() - began, cpu_s(console.pid) - before_s
                print(
                    f"  by {name:20} {records / seconds:9,.0f} records/s, {size / seconds / 1e6:.0f} MB/s "
                    f"({steps} steps; {spent_s / records * 1e6:.2f} µs of the console's CPU a record)"
                )


def fill(bootstrap: str, records: int) -> int:
    """Writes the records; returns the bytes of their values."""
    size = 0
    with Producer(bootstrap, linger_ms=20) as producer:
        for number in range(records):
            value = json.dumps(
                {
                    "customer": {"id": number % 9973, "name": f"customer {number % 9973}"},
                    "item": "tea",
                    "price": number % 97,
                }
            ).encode()
            size += len(value)
            producer.send(TOPIC, value, key=b"%d" % (number % 9973))
    return size


def wait_for_topic(console: RunningCommand) -> None:
    deadline_s = time.monotonic() + READ_WITHIN_S
    while TOPIC not in page(console, "/topics"):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the console does not show {TOPIC}")
        time.sleep(PAUSE_S)


def searched(console: RunningCommand, words: Mapping[str, str], records: int) -> int:
    """Follows a search to its end; returns the number of its steps. AssertionError if it has not looked at every record."""
    path = f"/topics/{TOPIC}/records?{urlencode({'from': 'beginning', **words})}"
    steps = 1
    while (further := _GO_ON.search(text := page(console, path))) is not None:
        path = unescape(further[1])
        steps += 1
    expected = f"Looked at {records:,} records".replace(",", _THIN_SPACE)
    assert expected in unescape(text), f"the search ended early: {expected!r} is not on its last page"
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=1_000_000, help="records to search; 0: none")
    parser.add_argument("--looks", type=int, default=30)
    options = parser.parse_args()
    show_pages(options.topics, options.looks)
    if options.records:
        show_searches(options.records)


if __name__ == "__main__":
    main()
