"""What every client is asked to do, and the watch that it starts itself."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

LINGER_MS: Final = 5
BATCH_BYTES: Final = 131_072
POLL_RECORDS: Final = 500
STALLED_SECONDS: Final = 30.0
FETCH_WAIT_MS: Final = 5
"""How long a broker may wait at the end of a log: a client that has fetched all ahead is not to be held there by the rewind."""
OURS: Final = "odradek"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One topic to fill or to read."""

    bootstrap: str
    topic: str
    value_bytes: int
    record_count: int

    @property
    def value(self) -> bytes:
        return bytes(range(256)) * (self.value_bytes // 256) + bytes(self.value_bytes % 256)


class Spent(NamedTuple):
    """The seconds that the client process took, by the clock and of a processor."""

    wall: float
    user: float
    system: float


class Watch:
    """Wall and CPU time of this process from `start` on, and how many records are not to be counted."""

    def __init__(self) -> None:
        self.start(0)

    def start(self, already: int = 1) -> None:
        """Starts to measure, `already` records being done."""
        self.already = already
        self._begun = _now()

    def read(self) -> Spent:
        return Spent(*(end - begun for end, begun in zip(_now(), self._begun, strict=True)))


def _now() -> Spent:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Spent(time.perf_counter(), usage.ru_utime, usage.ru_stime)


Work = Callable[[Job, Watch], None]


def poll_all(
    job: Job,
    watch: Watch,
    poll: Callable[[int], int],
    rewind: Callable[[], object],
    poll_records: int = POLL_RECORDS,
) -> None:
    """Polls until all have come, `poll_records` at a time (librdkafka waits until it has that many).

    The first poll is not measured. `rewind` then seeks to the start, so that nothing that is measured was fetched before."""
    poll(1)
    rewind()
    watch.start(0)
    left = job.record_count
    while left > 0:
        came = poll(min(left, poll_records))
        if not came:
            raise RuntimeError(f"{left} records did not come within {STALLED_SECONDS} s")
        left -= came
