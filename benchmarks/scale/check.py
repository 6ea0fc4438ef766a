"""`python -m benchmarks.scale.check`: seconds of mixed work on one and three real brokers, beside the prediction.

The constants come from one kind of request at a time; here batches of 16 KiB are written and each is read three times, all at
once. Prints the CPU of all brokers for one batch, measured and predicted, in microseconds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from benchmarks.broker import plain_requests
from benchmarks.broker.plain_requests import Frame
from benchmarks.cluster.blocking_client import BlockingClient
from benchmarks.cluster.nodes import BROKERS, OdradekCluster
from benchmarks.cluster.plan import led_topic
from benchmarks.measures import work_directory
from benchmarks.odradek_node import OdradekNode
from benchmarks.scale.model import HERE
from benchmarks.watch import cpu_seconds
from odradek.protocol.messages.topics.create_topics import CreatableTopic

BATCH_BYTES: Final = 16_384
READERS: Final = 3
PARTITIONS: Final = 16
BATCHES: Final = 5000
_SECONDS_MAX: Final = 60.0
_SESSION_MS: Final = 9000


def predicted(costs: dict[str, float], replicas: int) -> float:
    """Returns the microseconds of CPU that one batch, written once and read three times, costs all brokers."""
    followers = replicas - 1
    if followers:
        kind = "produce request, acks=all, three replicas"
        byte = "byte in, three replicas"
        produced = costs[f"{kind}: leader"] + followers * costs[f"{kind}: a follower"]
        written = costs[f"{byte}: leader"] + followers * costs[f"{byte}: a follower"]
    else:
        produced, written = costs["produce request, acks=all"], costs["byte in"]
    read = READERS * (costs["fetch request"] + BATCH_BYTES * costs["byte out"])
    return produced + BATCH_BYTES * written + read


def measured(bootstrap: str, topic: str, pids: Callable[[], Sequence[int]]) -> float:
    """Returns the same of brokers that run."""
    records = plain_requests.batch(BATCH_BYTES)
    writes = [plain_requests.produce(topic, [index], records, "all") for index in range(PARTITIONS)]
    plain_requests.until_accepted(bootstrap, writes, seconds_max=_SECONDS_MAX)
    frames: list[Frame] = []
    for index, write in enumerate(writes):
        frames += [write, *[plain_requests.fetch(topic, index)] * READERS]
    with plain_requests.connected(bootstrap, PARTITIONS) as sockets:
        plain_requests.drive(sockets, frames, in_flight=PARTITIONS, count=len(frames) * 4)
        before = sum(map(cpu_seconds, pids()))
        plain_requests.drive(sockets, frames, in_flight=PARTITIONS, count=BATCHES * (1 + READERS))
        return 1e6 * (sum(map(cpu_seconds, pids())) - before) / BATCHES


def main() -> int:
    costs = json.loads((HERE / "constants.json").read_text(encoding="utf-8"))["costs"]
    rows: list[dict[str, Any]] = []
    with work_directory() as directory, OdradekNode(directory=directory) as node:
        host, _, port = node.bootstrap.rpartition(":")
        with BlockingClient((host, int(port))) as asker:
            asker.create([CreatableTopic(name="mixed", num_partitions=PARTITIONS, replication_factor=1)])
        rows.append(_row(1, measured(node.bootstrap, "mixed", lambda: [node.pid]), predicted(costs, 1)))
    with work_directory() as directory:
        cluster = OdradekCluster(directory, _SESSION_MS)
        cluster.start()
        try:
            placements: list[tuple[int, ...]] = [tuple(BROKERS)] * PARTITIONS
            with led_topic(cluster, placements) as topic:
                host, number = cluster.address(BROKERS[0])
                spent = measured(f"{host}:{number}", topic, cluster.pids)
            rows.append(_row(3, spent, predicted(costs, 3)))
        finally:
            cluster.stop()
    print(json.dumps(rows, indent=1))
    return 0


def _row(brokers: int, spent: float, expected: float) -> dict[str, Any]:
    return {
        "brokers": brokers,
        "measured_us": round(spent),
        "predicted_us": round(expected),
        "measured / predicted": round(spent / expected, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
