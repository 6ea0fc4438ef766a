"""`python -m benchmarks.scale.check`: mixed work on 1, 3, 6 and 9 real brokers, beside the prediction.

The constants come from one kind of request at a time; here batches of 16 KiB are written and each is read three times, all at
once. Leaders are spread over all brokers; each partition has three replicas where there are three brokers or more. Prints the
CPU of all brokers for one batch, measured and predicted, in microseconds. The prediction includes what brokers at rest would
have taken meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from benchmarks.broker import plain_requests
from benchmarks.broker.plain_requests import Frame
from benchmarks.cluster.blocking_client import BlockingClient
from benchmarks.cluster.nodes import OdradekCluster
from benchmarks.cluster.plan import led_topic
from benchmarks.measures import work_directory
from benchmarks.odradek_node import OdradekNode
from benchmarks.scale.model import HERE
from benchmarks.watch import cpu_seconds
from odradek.protocol.messages.topics.create_topics import CreatableTopic

BATCH_BYTES: Final = 16_384
READERS: Final = 3
PARTITIONS: Final = 18
"""Each number of brokers divides this one, so every broker leads as many partitions as the others."""
BATCHES: Final = 2000
"""Led by each broker."""
IN_FLIGHT: Final = 64
"""Requests at each leader at a time; a quarter of them are writes, as many as when the constants were measured."""
SIZES: Final = (1, 3, 6, 9)
_REPLICAS: Final = 3
_SECONDS_MAX: Final = 60.0
_SESSION_MS: Final = 9000


class Spent(NamedTuple):
    """What a run took: microseconds of CPU of all brokers for each batch, and seconds from start to end."""

    batch_us: float
    seconds: float


def predicted(costs: Mapping[str, float], brokers: int, seconds: float) -> float:
    """Returns the microseconds of CPU that one batch, written once and read three times, costs all brokers."""
    followers = min(brokers, _REPLICAS) - 1
    if followers:
        kind = "produce request, acks=all, three replicas"
        byte = "byte in, three replicas"
        produced = costs[f"{kind}: leader"] + followers * costs[f"{kind}: a follower"]
        written = costs[f"{byte}: leader"] + followers * costs[f"{byte}: a follower"]
    else:
        produced, written = costs["produce request, acks=all"], costs["byte in"]
    read = READERS * (costs["fetch request"] + BATCH_BYTES * costs["byte out"])
    at_rest = costs["broker at rest, a second"] * seconds / BATCHES
    return produced + BATCH_BYTES * written + read + at_rest


def measured(
    led: Mapping[str, Sequence[int]],
    topic: str,
    pids: Callable[[], Sequence[int]],
    in_flight: int = IN_FLIGHT,
) -> Spent:
    """Returns what brokers that run spend. `led` has the partitions of each leader by its address."""
    records = plain_requests.batch(BATCH_BYTES)
    frames: dict[str, list[Frame]] = {}
    for address, indexes in led.items():
        writes = [plain_requests.produce(topic, [index], records, "all") for index in indexes]
        plain_requests.until_accepted(address, writes, seconds_max=_SECONDS_MAX)
        frames[address] = []
        for index, write in zip(indexes, writes, strict=True):
            frames[address] += [write, *[plain_requests.fetch(topic, index)] * READERS]

    def drive(address: str, count: int) -> None:
        with plain_requests.connected(address, in_flight) as sockets:
            plain_requests.drive(sockets, frames[address], in_flight=in_flight, count=count)

    with ThreadPoolExecutor(len(led)) as clients:
        list(clients.map(drive, led, [len(own) * 4 for own in frames.values()]))
        before, started = sum(map(cpu_seconds, pids())), time.perf_counter()
        list(clients.map(drive, led, [BATCHES * (1 + READERS)] * len(led)))
        seconds = time.perf_counter() - started
    return Spent(1e6 * (sum(map(cpu_seconds, pids())) - before) / (BATCHES * len(led)), seconds)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--brokers", type=int, action="append", choices=SIZES, help="may be given several times"
    )
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT, help="requests at each leader")
    options = parser.parse_args(argv)
    costs = json.loads((HERE / "constants.json").read_text(encoding="utf-8"))["costs"]
    rows = []
    for brokers in options.brokers or SIZES:
        spent = _of_one(options.in_flight) if brokers == 1 else _of_cluster(brokers, options.in_flight)
        rows.append(_row(brokers, spent, predicted(costs, brokers, spent.seconds)))
        print(json.dumps(rows[-1]), file=sys.stderr)
    print(json.dumps(rows, indent=1))
    return 0


def _of_one(in_flight: int) -> Spent:
    with work_directory() as directory, OdradekNode(directory=directory) as node:
        host, _, port = node.bootstrap.rpartition(":")
        with BlockingClient((host, int(port))) as asker:
            asker.create([CreatableTopic(name="mixed", num_partitions=PARTITIONS, replication_factor=1)])
        return measured({node.bootstrap: range(PARTITIONS)}, "mixed", lambda: [node.pid], in_flight)


def _of_cluster(brokers: int, in_flight: int) -> Spent:
    placements = [
        tuple((first + step) % brokers + 1 for step in range(_REPLICAS)) for first in range(PARTITIONS)
    ]
    led: dict[str, list[int]] = {}
    with work_directory() as directory:
        cluster = OdradekCluster(directory, _SESSION_MS, brokers=brokers)
        cluster.start()
        try:
            with led_topic(cluster, placements) as topic:
                for index, (leader, *_) in enumerate(placements):
                    host, port = cluster.address(leader)
                    led.setdefault(f"{host}:{port}", []).append(index)
                return measured(led, topic, cluster.pids, in_flight)
        finally:
            cluster.stop()


def _row(brokers: int, spent: Spent, expected: float) -> dict[str, Any]:
    return {
        "brokers": brokers,
        "measured_us": round(spent.batch_us),
        "predicted_us": round(expected),
        "measured / predicted": round(spent.batch_us / expected, 2),
        "seconds": round(spent.seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
