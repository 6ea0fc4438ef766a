"""How far a query has come, as committed offsets of a consumer group: every tool that shows lag shows the query's.

Spark asks for the next end with the end of the last batch that it has finished, and does so again and again while there is
nothing to read. So what the planner is asked with is what the query has done, whatever its sink.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from odradek.model.errors import OdradekError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock

log: Final = logging.getLogger("odradek.spark")

RETRY_S: Final = 10.0
"""How long to leave the brokers alone after a commit that failed: the query's own work comes first."""
REFRESH_S: Final = 3_600.0
"""How often to commit again what did not change: brokers forget offsets that no one commits for days."""

Offsets = Mapping[TopicPartition, int]


class OffsetPublisher:
    """Publishes the position of one query. A commit that fails is logged, and tried again; it never ends the query."""

    def __init__(self, group: str, commit: Callable[[str, Offsets], None], clock: Clock) -> None:
        self._group = group
        self._commit = commit
        self._clock = clock
        self._published: dict[TopicPartition, int] = {}
        self._refresh_at = 0.0
        self._retry_at = 0.0
        self._is_failing = False

    def publish(self, reached: Offsets) -> None:
        """`reached`: the next offset of each partition after all batches that are finished."""
        now = self._clock.monotonic()
        if now < self._retry_at:
            return
        if now >= self._refresh_at:
            self._published.clear()
        news = {
            partition: offset
            for partition, offset in reached.items()
            if self._published.get(partition) != offset
        }
        if not news:
            return
        try:
            self._commit(self._group, news)
        except (OdradekError, OSError) as error:
            self._retry_at = self._clock.monotonic() + RETRY_S
            if not self._is_failing:
                log.warning("publishOffsets: group %s gets no offsets for now: %s", self._group, error)
            self._is_failing = True
            return
        if not self._published:
            self._refresh_at = now + REFRESH_S
        self._published.update(news)
        self._is_failing = False
