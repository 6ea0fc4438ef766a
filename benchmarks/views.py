"""Views of tables: `python -m benchmarks.views [--keys 1000000] [--rounds 3] [--gets 10000] [--json FILE]`.

One broker process and one view. Measured are

- *restore*: a topic of so many keys (random order, 4 partitions, JSON values of 90 bytes) into an empty view, from `open` to
  its return, on disk and in memory: keys a second, and CPU of both processes for a million keys;
- *reopen*: the same view, closed and opened again;
- *get*: random keys through Python, and through HTTP (one kept connection, server in a process of its own): p50 and p99;
- *memory*: the resident size of the view's process with the table on disk, at most.

The CPU figures say more than the rates on a machine that does other things, too; `load` is its load average before each round.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.kit.commands import RunningCommand

from benchmarks.odradek_node import OdradekNode, serve_environment
from benchmarks.watch import PeakMemory, cpu_seconds
from odradek import Admin, NewTopic, Producer
from odradek.views import TableView

TOPIC: Final = "views"
PARTITIONS: Final = 4
_FILLER: Final = "x" * 48


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gets", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    samples: list[dict[str, Any]] = []
    with OdradekNode(settings={"log.cleaner.enable": "false"}) as node:
        fill(node.bootstrap, arguments.keys)
        for number in range(arguments.rounds):
            samples += _round(node, arguments.keys, arguments.gets, number)
    for what in dict.fromkeys(sample["what"] for sample in samples):
        of_this = [sample for sample in samples if sample["what"] == what]
        figures = {
            name: statistics.median(sample[name] for sample in of_this)
            for name in of_this[0]
            if name not in ("what", "round")
        }
        print(f"{what:24}", "  ".join(f"{name} {value:,.2f}" for name, value in figures.items()))
    if arguments.json is not None:
        conditions = {"keys": arguments.keys, "cpus": os.cpu_count(), "python": sys.version.split()[0]}
        arguments.json.write_text(json.dumps({"conditions": conditions, "samples": samples}, indent=1) + "\n")


def key(number: int) -> bytes:
    return b"user-%09d" % number


def fill(servers: str, key_count: int) -> None:
    """Make the topic, with so many keys in random order."""
    order = list(range(key_count))
    random.Random(1).shuffle(order)
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, configs={"cleanup.policy": "compact"})])
    with Producer(servers, batch_size=1 << 18, linger_ms=20) as producer:
        for number in order:
            value = b'{"n": %d, "sum": 12.5, "name": "%b"}' % (number, _FILLER.encode())
            producer.send(TOPIC, value, key=key(number))


def _round(node: OdradekNode, key_count: int, get_count: int, number: int) -> list[dict[str, Any]]:
    samples = []

    def note(what: str, **figures: float) -> None:
        samples.append({"what": what, "round": number, "load": os.getloadavg()[0], **figures})

    with tempfile.TemporaryDirectory(prefix="odradek-views-") as directory:
        note("restore in memory", **_opened(node, key_count, None))
        with PeakMemory(os.getpid()) as memory:
            note("restore on disk", **_opened(node, key_count, Path(directory) / TOPIC))
        note("memory, on disk", peak_mib=memory.peak.rss_bytes / (1 << 20))
        note("reopen", **_opened(node, key_count, Path(directory) / TOPIC))
        numbers = random.Random(number)
        with TableView.open(node.bootstrap, TOPIC, directory=Path(directory) / TOPIC) as view:
            note(
                "get, Python",
                **_latencies(get_count, lambda: view[key(numbers.randrange(key_count)).decode()]),
            )
        note("get, HTTP", **_over_http(node, directory, numbers, key_count, get_count))
    return samples


def _opened(node: OdradekNode, key_count: int, directory: Path | None) -> dict[str, float]:
    broker_before, own_before, begin = cpu_seconds(node.pid), time.process_time(), time.perf_counter()
    with TableView.open(node.bootstrap, TOPIC, directory=directory):
        seconds = time.perf_counter() - begin
        own, broker = time.process_time() - own_before, cpu_seconds(node.pid) - broker_before
    return {
        "seconds": seconds,
        "keys_per_second": key_count / seconds,
        "view_cpu_s_per_million": own / key_count * 1e6,
        "broker_cpu_s_per_million": broker / key_count * 1e6,
    }


@contextmanager
def served(node: OdradekNode, directory: str) -> Iterator[str]:
    """`odradek table serve` with the topic, in a process of its own; its URL."""
    words = ["table", "serve", TOPIC, "--dir", directory, "--listen", "127.0.0.1:0", "-b", node.bootstrap]
    with RunningCommand(*words, environment=serve_environment()) as server:
        yield server.address


def _over_http(
    node: OdradekNode, directory: str, numbers: random.Random, key_count: int, get_count: int
) -> dict[str, float]:
    with served(node, directory) as address:
        place = urllib.parse.urlsplit(address)
        connection = http.client.HTTPConnection(place.hostname or "", place.port or 0, timeout=60)

        def ask(path: str) -> Any:
            connection.request("GET", f"{path}?freshness=brief")
            response = connection.getresponse()
            body = response.read()
            if response.status != 200:
                raise RuntimeError(body.decode())
            return json.loads(body)

        def get() -> None:
            ask(f"/tables/{TOPIC}/{key(numbers.randrange(key_count)).decode()}")

        while ask("/tables")["tables"][0]["freshness"]["status"] != "live":
            time.sleep(0.05)

        return _latencies(get_count, get)


def _latencies(get_count: int, get: Callable[[], object]) -> dict[str, float]:
    milliseconds = []
    for _ in range(get_count):
        begin = time.perf_counter()
        get()
        milliseconds.append((time.perf_counter() - begin) * 1000)
    milliseconds.sort()
    return {
        "p50_ms": milliseconds[get_count // 2],
        "p99_ms": milliseconds[get_count * 99 // 100],
        "max_ms": milliseconds[-1],
    }


if __name__ == "__main__":
    main()
