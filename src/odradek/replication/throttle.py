"""Limits the copying of throttled replicas (KIP-73). Pure: `now` comes in as monotonic seconds.

There is one throttle for each side. A topic's `leader.` and `follower.replication.throttled.replicas` name
the replicas as PARTITION:BROKER, or all with `*`; the broker's rates limit its own marked replicas, together.
Replicas in sync are never held back: they would fall out of the ISR. All bytes that are copied of marked
replicas count.

Most brokers have no rate. Then nothing here costs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from odradek.config.definition import LONG_MAX
from odradek.model.ids import BrokerId
from odradek.security.buckets import Bucket, Window

_ALL: Final = "*"


class ReplicationThrottle:
    """The replication throttle of one side, leader or follower. `rate` returns the bytes a second that are allowed now."""

    def __init__(self, me: BrokerId, rate: Callable[[], int], window: Callable[[], Window]) -> None:
        self._me = me
        self._rate = rate
        self._window = window
        self._bucket = Bucket()

    @property
    def is_active(self) -> bool:
        return self._rate() < LONG_MAX

    def covers(self, index: int, replicas: Sequence[str]) -> bool:
        """Returns whether the topic's setting contains this broker's replica of the partition."""
        return bool(replicas) and (_ALL in replicas or f"{index}:{self._me}" in replicas)

    def copied(self, size_bytes: int, now: float) -> None:
        """Counts the bytes that were copied of throttled replicas."""
        self._bucket.record(size_bytes, max(self._rate(), 1), self._window().settled_seconds, now)

    def pause_s(self, now: float) -> float:
        """Returns for how many seconds no more of throttled replicas may be copied; 0 when more may be."""
        if not self.is_active:
            return 0.0
        return self._bucket.delay(max(self._rate(), 1), self._window().settled_seconds, now)
