"""What the four examples share: a broker, numbered orders, a worker process that dies twice, and the count at the end.

An example is a script with one function, `work`. Run without arguments it plays the scene: it starts a broker of its own,
fills the topic `orders`, and starts itself again as a worker, which calls `work`. The worker kills itself (`os._exit`: no
cleanup, no farewell, like a power cut of the process) where the example says that it hurts most, and is started again
until it has reached the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek import Admin, Consumer, NewTopic, Producer, TopicPartition
from odradek.testing import LocalBroker

ORDERS = "orders"
RECEIPTS = "receipts"
PARTITIONS = 3
DIED = 9
LIVES_MAX = 10


class Crash:
    """Ends this process when it has come to the given number of records."""

    def __init__(self, at: int | None) -> None:
        self._at = at
        self._count = 0

    def record(self, count: int = 1) -> None:
        """So many records more were begun."""
        self._count += count

    def here(self) -> None:
        """The worst place to die. Returns if it is not time yet."""
        if self._at is not None and self._count >= self._at:
            os._exit(DIED)


Work = Callable[[str, Path, Crash], None]
"""`work(bootstrap_servers, directory, crash)` handles every order, and returns at the end of the topic."""
Results = Callable[[str, Path], Iterable[int]]
"""The numbers of all orders that were handled, as often as they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of the orders."""

    order_count: int
    death_count: int
    lost_count: int
    doubled_count: int

    @classmethod
    def of(cls, numbers: Iterable[int], order_count: int, death_count: int) -> Outcome:
        times = Counter(numbers)
        return cls(
            order_count=order_count,
            death_count=death_count,
            lost_count=sum(1 for number in range(order_count) if not times[number]),
            doubled_count=sum(1 for count in times.values() if count > 1),
        )

    def rows(self) -> Sequence[tuple[str, int]]:
        return (
            ("orders", self.order_count),
            ("times that the worker was killed", self.death_count),
            ("orders lost", self.lost_count),
            ("orders handled more than once", self.doubled_count),
        )


def play(title: str, script: str, work: Work, results: Results) -> None:
    """The scene, or, with --worker, one life of the worker."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--count", type=int, default=3_000, help="how many orders there are")
    parser.add_argument("--worker", metavar="HOST:PORT", help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--die-at", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        work(chosen.worker, chosen.directory, Crash(chosen.die_at))
        return
    outcome = run_scene(script, results, chosen.count)
    print(title)
    for what, count in outcome.rows():
        print(f"  {what:<34}{count:>8,}")


def run_scene(script: str, results: Results, order_count: int) -> Outcome:
    """Start a broker, let the worker die twice and finish in its third life, and count."""
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with tempfile.TemporaryDirectory(prefix="delivery-") as name, LocalBroker(settings) as broker:
        directory = Path(name)
        take_orders(broker.address, order_count)
        deaths = [order_count // 3, order_count // 4]
        death_count = 0
        for _ in range(LIVES_MAX):
            if not one_life(script, broker.address, directory, deaths.pop() if deaths else None):
                break
            death_count += 1
        else:
            raise RuntimeError("the worker dies without end")
        return Outcome.of(results(broker.address, directory), order_count, death_count)


def one_life(script: str, address: str, directory: Path, die_at: int | None) -> bool:
    """Run the worker; True if it killed itself."""
    words = [sys.executable, script, "--worker", address, "--directory", str(directory)]
    if die_at is not None:
        words += ["--die-at", str(die_at)]
    code = subprocess.run(words, check=False, timeout=120).returncode
    if code not in (0, DIED):
        raise RuntimeError(f"the worker failed with exit code {code}")
    return code == DIED


def take_orders(address: str, count: int) -> None:
    with Admin(address) as admin:
        admin.create_topics([NewTopic(ORDERS, PARTITIONS), NewTopic(RECEIPTS, PARTITIONS)])
    with Producer(address) as producer:
        for number in range(count):
            producer.send(ORDERS, str(number), partition=number % PARTITIONS)


def at_end(consumer: Consumer[Any, Any], ends: dict[TopicPartition, int]) -> bool:
    """Everything that was in the topic when the worker began has been returned by `poll`."""
    positions = consumer.positions()
    return all(positions.get(partition, -1) >= end for partition, end in ends.items())


def order_ends(consumer: Consumer[Any, Any]) -> dict[TopicPartition, int]:
    return consumer.end_offsets([TopicPartition(ORDERS, number) for number in range(PARTITIONS)])


def receipts(address: str, _: Path) -> list[int]:
    """The orders in the topic of receipts, without those of aborted transactions."""
    numbers: list[int] = []
    with Consumer(
        address, auto_offset_reset="earliest", isolation_level="read_committed", value_deserializer=int
    ) as consumer:
        partitions = [TopicPartition(RECEIPTS, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while not at_end(consumer, ends):
            numbers += [record.value for record in consumer.poll() if record.value is not None]
    return numbers
