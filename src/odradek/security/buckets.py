"""Rate limits as buckets of tokens. Pure: `now` comes in as seconds.

The bucket answers one question: for how long must this client be silent so that it is back within its limit? Tokens come at
the limit's rate, and what is not used is saved up to what some seconds bring (the burst). A client may take more than there
is; then the bucket is below zero, and the delay is the time until it is not.

Kafka measures bytes and requests over a window of samples instead, and saves up the same. The bucket's long-run rate is the
limit exactly, whatever the sizes of requests, where a window that forgets whole samples lets a client of large requests go
faster (by a third with requests of three samples each). It is also one number instead of eleven.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_DEBT_BURSTS: Final = 10
"""The most bursts that are owed when the next amount is added: a client that ignores its delays, and the clients that share
its limit, are back to normal a few minutes after it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time for which unused tokens are saved up, in the words of Kafka's settings: `sample_count` samples of
    `sample_seconds` each."""

    sample_count: int = 11
    sample_seconds: float = 1.0

    @property
    def seconds(self) -> float:
        return self.sample_count * self.sample_seconds

    @property
    def settled_seconds(self) -> float:
        """All samples but the one that is being filled."""
        return max(self.sample_count - 1, 1) * self.sample_seconds


class Bucket:
    """A token bucket, which measures one client against one limit. `limit` is tokens per second, `burst_seconds` how long
    tokens are saved up."""

    __slots__ = ("_taken", "_updated_at")

    def __init__(self) -> None:
        self._taken = 0.0
        self._updated_at = float("-inf")

    def record(self, amount: float, limit: float, burst_seconds: float, now: float) -> None:
        self._refill(limit, now)
        owed_max = limit * burst_seconds * (1 + _DEBT_BURSTS)
        self._taken = min(self._taken, owed_max) + amount

    def delay(self, limit: float, burst_seconds: float, now: float) -> float:
        """Seconds until the bucket is not below zero; 0 when it is not."""
        self._refill(limit, now)
        return max(0.0, self._taken / limit - burst_seconds)

    def is_full(self, limit: float, now: float) -> bool:
        """Tells whether the bucket is full, as a new one is."""
        self._refill(limit, now)
        return self._taken <= 0.0

    def _refill(self, limit: float, now: float) -> None:
        if now > self._updated_at:
            self._taken = max(0.0, self._taken - (now - self._updated_at) * limit)
            self._updated_at = now
