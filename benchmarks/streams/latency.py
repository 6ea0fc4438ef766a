"""How long a record takes through a stateless program, from the producer's call to a consumer that reads committed records."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.streams.watching import OutputWatch
from odradek.client import Producer

EVERY_S: Final = 0.05
_OVERDUE_S: Final = 60.0


class RecordLostError(Exception):
    """A record did not come out."""


def latencies(servers: str, topic: str, watch: OutputWatch, count: int) -> dict[str, float]:
    """Milliseconds. A record every 50 ms and a bit, so that no timer of either side is met at the same place each time."""
    waits_ms: list[float] = []
    sent: dict[bytes, float] = {}
    with Producer(servers, linger_ms=0) as producer:
        due = time.monotonic()
        deadline = due + count * EVERY_S * 2 + _OVERDUE_S
        number = 0
        while len(waits_ms) < count:
            now = time.monotonic()
            if now > deadline:
                raise RecordLostError(f"{len(waits_ms)} of {count} records came out of {topic}")
            if number < count and now >= due:
                key = b"r%d-%d" % (time.monotonic_ns(), number)
                sent[key] = now
                producer.send(topic, b"yes", key=key)
                number += 1
                due += EVERY_S + 0.0037 * (number % 7)
            wait_s = 0.005 if number == count else max(0.001, min(0.005, due - time.monotonic()))
            rows = watch.read(wait_s)
            arrived = time.monotonic()
            waits_ms += [(arrived - sent.pop(key)) * 1_000 for key in rows["key"].to_pylist() if key in sent]
    waits_ms.sort()
    return {"p50 ms": waits_ms[count // 2], "p99 ms": waits_ms[count * 99 // 100]}
