"""Waiting for records within a trigger: a batch begins when they come, and not at the trigger after that.

Spark asks for offsets at each trigger. With triggers half a second apart, a record waits a quarter of a second on average
until one comes. With the option `triggerWaitMs`, a look that brings nothing new continues for that time, which must be
less than the interval: then triggers stay where they are, and a query that always has records to read has as many batches as
before.

The source looks often when there were records a moment ago, and seldom when the query has been at rest for a while: looking
costs CPU whether records come or not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from odradek.model.errors import OdradekError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock
from odradek.spark.options.positions import LATEST
from odradek.spark.reading.catalog import Catalog
from odradek.spark.reading.idle import LOOK_EVERY_S, Offsets, Shapes

log: Final = logging.getLogger("odradek.spark")
LOOK_EVERY_LEAST_S: Final = 0.02
QUIET_SHARE: Final = 1 / 50
"""The time between two looks, as a share of the time since records came."""
GATHER_S: Final = 0.01
"""The time from the first news to the next look, which decides what the batch reads: the partitions of one transaction become
readable one after another, and belong into one batch.
"""
_SHAPES_EVERY_S: Final = 10.0


class TriggerWait:
    """The wait of one source, for its own records and for records of other topics of its query.

    Spark asks the sources of a query one after another. So one of them waits for all, and the others do not wait. They may
    be in processes of their own: only the batches that the query begins show that they have records left from earlier ones.
    """

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        pause: Callable[[float], None],
        *,
        wait_s: float,
        topics_beside: Sequence[str] = (),
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._pause = pause
        self._wait_s = wait_s
        self._topics_beside = topics_beside
        self._beside: list[TopicPartition] = []
        self._shapes_at: float | None = None
        self._news_at = clock.monotonic()
        self._expects_batch = False
        """This source has something to read, or records have come to another topic of the query."""
        self._may_be_behind = False
        """The query has begun a batch for which this source has seen no reason."""
        self._seen: Offsets = {}
        """The ends that the last look has seen."""

    def note(self, source: object, ends: Offsets, shapes: Shapes, *, has_news: bool) -> None:
        """Records whether a look found something to read."""
        if has_news:
            self._note_news()

    def note_batch(self) -> None:
        """Records that the query has begun a batch. Unless records came for it, another source has more than a batch reads."""
        self._may_be_behind = not self._expects_batch
        self._expects_batch = False

    def _note_news(self) -> None:
        self._news_at = self._clock.monotonic()
        self._expects_batch = True

    def has_no_news(self, ends: Offsets) -> bool:
        """Returns False: no other query looks for this one."""
        return False

    def wait(self, source: object, ends: Offsets, shapes: Shapes) -> None:
        """Returns soon after a partition of `ends`, or of the query's other topics, ends elsewhere; after the wait; or when no
        broker answers: the source then asks itself, and reports what is wrong. Returns at once while another source has more.
        """
        may_be_behind, self._may_be_behind, self._expects_batch = self._may_be_behind, False, False
        deadline = self._clock.monotonic() + self._wait_s
        try:
            partitions = [*ends, *self._partitions_beside()]
            seen_before, present = self._seen, self._present_ends(partitions)
            if may_be_behind and present == seen_before:
                return
            known = {**present, **ends}
            while present == known and self._pause_until(deadline):
                present = self._present_ends(partitions)
            if present != known:
                self._note_news()
                self._pause(GATHER_S)
        except (OdradekError, OSError) as error:
            log.debug("no broker tells where topics end: %s", error)

    def _present_ends(self, partitions: Iterable[TopicPartition]) -> Offsets:
        self._seen = self._catalog.offsets(dict.fromkeys(partitions, LATEST))
        return self._seen

    def _pause_until(self, deadline: float) -> bool:
        """Pauses until the next look; returns whether there is one before the deadline."""
        now = self._clock.monotonic()
        next_s = min(LOOK_EVERY_S, max(LOOK_EVERY_LEAST_S, (now - self._news_at) * QUIET_SHARE))
        self._pause(max(0.0, min(next_s, deadline - now)))
        return now + next_s < deadline

    def _partitions_beside(self) -> list[TopicPartition]:
        """Returns the partitions of the query's other topics."""
        now = self._clock.monotonic()
        if self._topics_beside and (self._shapes_at is None or now - self._shapes_at >= _SHAPES_EVERY_S):
            counts = self._catalog.partition_counts(self._topics_beside)
            self._beside = [
                TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)
            ]
            self._shapes_at = now
        return self._beside
