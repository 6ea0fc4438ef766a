"""What a broker over its quota asks of a client: to leave it alone for a while (`throttle_time_ms`, KIP-219). No I/O.

Since Kafka 2.0 a broker answers at once and then reads nothing from the connection for that time. A client that kept sending
would fill its buffers; one that counted the time against its requests would give up connections that are well.
"""

from __future__ import annotations

from typing import Final

MUTE_S_MAX: Final = 60.0
"""The longest pause that is believed at a time. Brokers ask for no more than their quota's window, 11 s by default."""


class ThrottleState:
    """Until when a broker is to be left alone."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = 0.0

    def record(self, throttle_ms: int, now: float) -> float:
        """Take note of an answer's `throttle_time_ms`; returns by how many seconds it prolongs the mute."""
        until = now + min(throttle_ms / 1000, MUTE_S_MAX)
        before = max(self._until, now)
        self._until = max(until, before)
        return self._until - before

    def left_s(self, now: float) -> float:
        """Seconds to wait before the next request; 0 when it may be sent."""
        return max(0.0, self._until - now)
