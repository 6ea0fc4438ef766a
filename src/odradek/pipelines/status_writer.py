"""Statuses on their way to the topic: no one waits for a broker that is away, and what did not arrive is known."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Final

from odradek.client import Producer
from odradek.client.producer.delivery import Delivery
from odradek.model.errors import OdradekError
from odradek.pipelines.status import STATUS_TOPIC, PipelineStatus
from odradek.pipelines.tables import partition_of
from odradek.runtime.ports import Clock
from odradek.telemetry import events

BLOCK_MS: Final = 1_000
"""The longest time that one status may wait for metadata."""
QUIET_S: Final = 5.0
"""The time after a failure in which nothing is sent: fifty pipelines would wait fifty times."""
CLOSE_S: Final = 5.0
_REQUEST_MS: Final = 10_000
_DELIVERY_MS: Final = 15_000
_log = events.get("pipelines")


class StatusWriter:
    """Writes statuses of pipelines to their topic.

    `publish`, `unsent` and `close` are called from one thread.
    """

    def __init__(self, servers: str, clock: Clock, **settings: Any) -> None:
        self._clock = clock
        self._quiet_until = float("-inf")
        self._lock = threading.Lock()
        self._unsent: set[str] = set()
        # Without idempotence no error ends the producer; one request at a time keeps the order.
        self._producer = Producer(
            servers,
            linger_ms=0,
            max_block_ms=BLOCK_MS,
            request_timeout_ms=_REQUEST_MS,
            delivery_timeout_ms=_DELIVERY_MS,
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
            **settings,
        )

    def publish(self, name: str, status: PipelineStatus | None) -> None:
        """Publishes a status. Never raises for brokers: statuses that they did not take are among the `unsent`."""
        partition = partition_of(STATUS_TOPIC)
        if self._clock.monotonic() < self._quiet_until:
            self._failed(name)
            return
        value = None if status is None else status.to_bytes()
        try:
            delivery = self._producer.send(
                partition.topic, value, key=name.encode(), partition=partition.partition
            )
        except OdradekError as error:
            self._failed(name)
            self._be_quiet(error)
        else:
            delivery.add_done_callback(partial(self._delivered, name))

    def unsent(self) -> frozenset[str]:
        """Returns the pipelines whose statuses did not arrive, each once. Nothing while it would not help to send them
        again."""
        if self._clock.monotonic() < self._quiet_until:
            return frozenset()
        with self._lock:
            names, self._unsent = frozenset(self._unsent), set()
        return names

    def close(self) -> None:
        """Closes the writer, and drops statuses that are not delivered within `CLOSE_S`."""
        try:
            self._producer.close(CLOSE_S)
        except OdradekError as error:
            _log.warning("statuses_unsent", reason=str(error))

    def _delivered(self, name: str, delivery: Delivery) -> None:
        """Notes a status that did not arrive; runs on the client's thread."""
        if delivery.exception(0) is not None:
            self._failed(name)

    def _failed(self, name: str) -> None:
        with self._lock:
            self._unsent.add(name)

    def _be_quiet(self, error: OdradekError) -> None:
        self._quiet_until = self._clock.monotonic() + QUIET_S
        _log.warning("statuses_unsent", reason=str(error))
