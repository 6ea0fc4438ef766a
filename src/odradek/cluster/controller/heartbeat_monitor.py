"""Brokers that say nothing to the controller although their sessions live: the two are cut off from each other. Pure.

Such a broker goes on leading and, without the controller, cannot take a follower out of sync: no one could write to what it
leads for as long as that lasts, although everyone else may reach it. So it is treated like one that leaves: others lead where
they can, and where no one else is in sync nothing changes.

Where half of the brokers or more are silent it is rather the controller that is cut off, and nothing follows from it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from odradek.model.ids import BrokerId

_OBSERVED_SECONDS_MAX: Final = 2.0
"""What one look counts for at most: a controller that was held up has not listened in the meantime."""


class HeartbeatMonitor:
    """For how long each broker has said nothing while someone listened."""

    __slots__ = ("_looked_at", "_seconds")

    def __init__(self) -> None:
        self._seconds: dict[BrokerId, float] = {}
        self._looked_at: float | None = None

    def heard(self, broker: BrokerId) -> None:
        """It said something."""
        if broker in self._seconds:
            self._seconds[broker] = 0.0

    def silent_brokers(self, brokers: Collection[BrokerId], now: float, limit_s: float) -> list[BrokerId]:
        """Those of the brokers in service that have been silent for longer, if they are few."""
        since = 0.0 if self._looked_at is None else min(now - self._looked_at, _OBSERVED_SECONDS_MAX)
        self._looked_at = now
        self._seconds = {broker: self._seconds.get(broker, 0.0) + since for broker in brokers}
        silent = [broker for broker in brokers if self.is_silent(broker, limit_s)]
        return silent if 2 * len(silent) < len(brokers) else []

    def is_silent(self, broker: BrokerId, limit_s: float) -> bool:
        """As of the last look, and of what was heard since."""
        return self._seconds.get(broker, 0.0) > limit_s
