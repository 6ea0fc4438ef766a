"""Requests of one record each: fifty producers without batching, of which each waits for its acknowledgement.

What a broker costs here is what it does for a request, not for its bytes. The client is `plain_requests`, so that the broker is
the busier of the two.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from benchmarks import load
from benchmarks.broker import plain_requests
from benchmarks.measures import PARTITIONS, Plan, Running
from benchmarks.samples import Better, Sample
from benchmarks.watch import cpu_seconds

PRODUCERS: Final = 50
VALUE_BYTES: Final = 100
TOPIC: Final = "small-requests"
_WARM_UP_REQUESTS: Final = 5000
_SECONDS_MAX: Final = 30.0


def seconds_of(plan: Plan) -> float:
    return 0.5 if plan.rounds == 1 else 4.0


def small_requests(running: Running, plan: Plan, round_number: int, acks: str) -> Iterator[Sample]:
    """Requests a second, and the broker's CPU for ten thousand of them."""
    load.create_topic(running.node.bootstrap, TOPIC, PARTITIONS)
    try:
        records = plain_requests.batch(VALUE_BYTES)
        frames = [plain_requests.produce(TOPIC, [index], records, acks) for index in range(PARTITIONS)]
        plain_requests.until_accepted(running.node.bootstrap, frames, seconds_max=_SECONDS_MAX)
        first = load.end_offsets(running.node.bootstrap, TOPIC, PARTITIONS)
        with plain_requests.connected(running.node.bootstrap, PRODUCERS) as sockets:
            warm = plain_requests.drive(sockets, frames, in_flight=PRODUCERS, count=_WARM_UP_REQUESTS)
            os.sync()
            before = cpu_seconds(running.node.pid)
            driven = plain_requests.drive(sockets, frames, in_flight=PRODUCERS, seconds=seconds_of(plan))
            spent = cpu_seconds(running.node.pid) - before
        written = load.end_offsets(running.node.bootstrap, TOPIC, PARTITIONS) - first
    finally:
        load.delete_topic(running.node.bootstrap, TOPIC)
    if written != warm.requests + driven.requests:
        raise RuntimeError(
            f"{warm.requests + driven.requests} records were acknowledged, and {written} are in the log"
        )
    figures: dict[str, tuple[float, Better]] = {
        "requests/s": (driven.requests / driven.seconds, "higher"),
        "broker CPU s per 10,000 requests": (10_000 * spent / driven.requests, "lower"),
    }
    condition = f"{PRODUCERS} producers, one record of {VALUE_BYTES} B each, acks={acks}"
    yield from running.samples("small requests", condition, round_number, figures)
