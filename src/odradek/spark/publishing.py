"""Publishes a query's position as committed offsets of a consumer group: every tool that shows lag shows the query's.

Spark asks for the next end with the end of the last batch that it has finished, and does so again and again while there is
nothing to read. So what the planner is asked with is what the query has done, whatever its sink.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID

from odradek.client.groups.values import OffsetAndMetadata, OffsetsToCommit
from odradek.model.errors import OdradekError
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.runtime.ports import Clock
from odradek.spark.reading.offsets import StreamOffset

log: Final = logging.getLogger("odradek.spark")

RETRY_S: Final = 10.0
"""The pause after a commit that failed: the query's own requests come first."""
REFRESH_S: Final = 3_600.0
"""The interval for committing unchanged offsets again: brokers forget offsets that no client commits for days."""


class OffsetPublisher:
    """Publishes the position of one query. A commit that fails is logged, and tried again; it never ends the query."""

    def __init__(self, group: str, commit: Callable[[str, OffsetsToCommit], None], clock: Clock) -> None:
        self._group = group
        self._commit = commit
        self._clock = clock
        self._published: dict[TopicPartition, tuple[int, UUID]] = {}
        self._refresh_at = 0.0
        self._retry_at = 0.0
        self._is_failing = False

    def publish(self, reached: StreamOffset) -> None:
        """Commits a position. `reached`: the next offset of each partition after all batches that are finished.

        An offset of a topic that was made again since then is not committed for the new one.
        """
        now = self._clock.monotonic()
        if now < self._retry_at:
            return
        if now >= self._refresh_at:
            self._published.clear()
        news = {
            partition: (offset, reached.topic_ids.get(partition.topic, ZERO_UUID))
            for partition, offset in reached.next_offsets.items()
        }
        news = {at: tied for at, tied in news.items() if self._published.get(at) != tied}
        if not news:
            return
        try:
            self._commit(
                self._group,
                {
                    at: offset if topic_id == ZERO_UUID else OffsetAndMetadata(offset, topic_id=topic_id)
                    for at, (offset, topic_id) in news.items()
                },
            )
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
