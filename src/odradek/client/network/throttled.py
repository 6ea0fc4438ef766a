"""Throttling: a broker asks a client over its quota to send nothing for a while (`throttle_time_ms`, KIP-219).

Since Kafka 2.0 a broker answers at once and then reads nothing from the connection for that time. A client that kept sending
would fill its buffers; one that counted the time against its requests would give up connections that are well.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from odradek.client.network.requests import OutgoingRequest
from odradek.model.errors import KafkaError
from odradek.runtime.ports import Clock

MUTE_S_MAX: Final = 60.0
"""The longest pause that is accepted at a time. Brokers ask for at most their quota's window, 11 s by
default."""


class ThrottleState:
    """The time until which nothing is sent to a broker."""

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


class SendGate:
    """A gate in front of a connection: requests pass it in order, to `transmit`. It is closed during a broker's throttle
    time, and during a login."""

    def __init__(
        self, clock: Clock, transmit: Callable[[OutgoingRequest], None], *, on_open: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._transmit = transmit
        self._on_open = on_open
        self._throttle = ThrottleState()
        self._end_of_throttle: asyncio.TimerHandle | None = None
        self._is_logging_in = False
        self._held: deque[OutgoingRequest] = deque()

    def __len__(self) -> int:
        """Returns the number of requests that wait."""
        return len(self._held)

    @property
    def is_open(self) -> bool:
        return self._end_of_throttle is None and not self._is_logging_in

    def submit(self, request: OutgoingRequest) -> None:
        """Transmit the request now, or when the gate opens. KafkaError as `transmit` raises it."""
        if self.is_open:
            self._transmit(request)
        else:
            self._held.append(request)

    def throttle(self, throttle_ms: int) -> float:
        """Leave the broker alone for so long; returns by how many seconds the pause is longer now."""
        now = self._clock.monotonic()
        longer_s = self._throttle.record(throttle_ms, now)
        if longer_s > 0 and self._end_of_throttle is None:
            self._wait_out_throttle(now)
        return longer_s

    def begin_login(self) -> None:
        """Holds requests back until `end_login`."""
        self._is_logging_in = True

    def end_login(self) -> None:
        self._is_logging_in = False
        if self.is_open:
            self._open()

    def close(self) -> list[asyncio.Future[object]]:
        """Ends all transmission. Returns the futures of the requests that waited."""
        if self._end_of_throttle is not None:
            self._end_of_throttle.cancel()
            self._end_of_throttle = None
        held = [request.answer for request in self._held if request.answer is not None]
        self._held.clear()
        return held

    def _wait_out_throttle(self, now: float) -> None:
        left_s = self._throttle.left_s(now)
        self._end_of_throttle = asyncio.get_running_loop().call_later(left_s, self._end_throttle)

    def _end_throttle(self) -> None:
        self._end_of_throttle = None
        now = self._clock.monotonic()
        if self._throttle.left_s(now) > 0:
            self._wait_out_throttle(now)
        elif self.is_open:
            self._open()

    def _open(self) -> None:
        while self._held:
            request = self._held.popleft()
            if request.answer is not None and request.answer.done():
                continue  # nothing waits for it any more
            try:
                self._transmit(request)
            except KafkaError as error:
                if request.answer is not None:
                    request.answer.set_exception(error)
        self._on_open()
