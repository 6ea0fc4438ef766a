"""Brokers that send nothing to the controller although their sessions live: the two are cut off from each
other. Pure.

Such a broker stays leader and, without the controller, cannot shrink an ISR: meanwhile no client could write to
its partitions, although everyone else may reach it. So it is treated like one that leaves: others lead where
they can, and where no one else is in sync nothing changes.

Where half of the brokers or more are silent it is rather the controller that is cut off, and nothing follows from it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from odradek.model.ids import BrokerId

_OBSERVED_SECONDS_MAX: Final = 2.0
"""The most seconds that one check counts: a controller that was held up has not listened in the meantime."""


class HeartbeatMonitor:
    """Counts the seconds for which each broker was silent while the controller listened."""

    __slots__ = ("_looked_at", "_seconds")

    def __init__(self) -> None:
        self._seconds: dict[BrokerId, float] = {}
        self._looked_at: float | None = None

    def heard(self, broker: BrokerId) -> None:
        """Notes that a broker was heard."""
        if broker in self._seconds:
            self._seconds[broker] = 0.0

    def silent_brokers(self, brokers: Collection[BrokerId], now: float, limit_s: float) -> list[BrokerId]:
        """Returns brokers that have been silent for longer than `limit_s`; none if that is half of the brokers in service or
        more."""
        since = 0.0 if self._looked_at is None else min(now - self._looked_at, _OBSERVED_SECONDS_MAX)
        self._looked_at = now
        self._seconds = {broker: self._seconds.get(broker, 0.0) + since for broker in brokers}
        silent = [broker for broker in brokers if self.is_silent(broker, limit_s)]
        return silent if 2 * len(silent) < len(brokers) else []

    def is_silent(self, broker: BrokerId, limit_s: float) -> bool:
        """Returns whether a broker was silent too long at the last check and was not heard since."""
        return self._seconds.get(broker, 0.0) > limit_s
