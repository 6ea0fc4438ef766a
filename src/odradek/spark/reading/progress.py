"""Decides how far a stream may read: the driver's side of a streaming read. Does not import Spark.

Idle, Spark asks for the latest offset some seventy times a second. A `StreamProgress` asks the brokers
once in `offsetPollIntervalMs`, and more often only when there were records a moment ago. It lets Spark wait in between.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.model.lazy import lazy
from odradek.runtime.ports import Clock
from odradek.spark.options.options import ReadOptions
from odradek.spark.options.positions import EARLIEST, LATEST, AtGroup, AtOffsets
from odradek.spark.reading.catalog import Catalog, log_ranges, resolve, subscribed, subscribed_at_start
from odradek.spark.reading.offsets import StreamOffset
from odradek.spark.reading.planning import TopicIds, advance, lost_records, recreated_topics, without_topics

if TYPE_CHECKING:
    from odradek.spark.reading import idle
else:
    idle = lazy("odradek.spark.reading.idle")

log: Final = logging.getLogger("odradek.spark")
Offsets = Mapping[TopicPartition, int]
QUICK_LOOK_LEAST_S: Final = 0.005
QUICK_LOOK_SHARE: Final = 1 / 5
"""The time between two quick looks, as a share of the time since there was something to read: a record that comes soon after
another one is found soon, and a stream at rest asks no more often than `offsetPollIntervalMs`.
"""
_ID_LOOKUPS_MAX: Final = 3
"""A topic that is made again faster than its end can be asked for is left to the next look."""


def report_loss(losses: list[str], *, fail: bool) -> None:
    """Raises OFFSET_OUT_OF_RANGE, or warns, about records that should have been read and no longer exist."""
    if not losses:
        return
    description = "records were lost before they were read: " + "; ".join(losses)
    if fail:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{description}. They aged out, or their topic was deleted or made again."
            " Set failOnDataLoss=false to go on without them",
        )
    log.warning("%s; going on because failOnDataLoss is false", description)


def report_recreated(topics: Iterable[str], known: TopicIds, present: TopicIds, *, fail: bool) -> None:
    """Raises OFFSET_OUT_OF_RANGE, or warns, about topics whose names other topics have now."""
    changes = [
        f"topic {topic!r} was deleted and made again: the query has read the one with id {known[topic]}, and the name"
        f" now belongs to id {present[topic]}"
        for topic in topics
    ]
    if not changes:
        return
    if fail:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{'; '.join(changes)}. Set failOnDataLoss=false to read the new one from its beginning",
        )
    log.warning(
        "%s; the new one is read from its beginning because failOnDataLoss is false", "; ".join(changes)
    )


class SourceWait(Protocol):
    """How a source waits that has read everything."""

    def note(
        self, source: object, ends: Offsets, shapes: Mapping[str, idle.TopicShape], *, has_news: bool
    ) -> None:
        """Records what a look has seen, and whether it found something to read."""
        ...

    def wait(self, source: object, ends: Offsets, shapes: Mapping[str, idle.TopicShape]) -> Offsets | None:
        """Waits until there may be something to read. `ends`, `shapes`: what the source saw last.

        Returns the ends as they are now, where the topics are still the same; None where the source has to ask.
        """
        ...

    def note_batch(self) -> None:
        """Records that the query has begun a batch, for this source or another one."""
        ...

    def has_no_news(self, ends: Offsets) -> bool:
        """Tells whether a look for all queries has seen just these ends, a moment ago."""
        ...


class StreamProgress:
    """Chooses the end of each micro-batch. One per running query, used by one thread."""

    def __init__(
        self,
        options: ReadOptions,
        catalog: Catalog,
        clock: Clock,
        pause: Callable[[float], None],
        idle: SourceWait | None = None,
    ) -> None:
        """`idle` is the query's wait while it has read everything; None: it looks as often as Spark asks."""
        self._options = options
        self._catalog = catalog
        self._clock = clock
        self._pause = pause
        self._idle = idle
        self._idle_at: StreamOffset | None = None
        """The offset at which the last look found nothing to read; None: it found something."""
        self._initial: StreamOffset | None = None
        self._partitions: list[TopicPartition] = []
        self._discovered_at: float | None = None
        self._latest: dict[TopicPartition, int] = {}
        self._ids: dict[str, UUID] = {}
        """The ids of the topics in `_latest`."""
        self._first_ids: dict[str, UUID] = {}
        """The topics as this query saw them first: what an offset of a former version is an offset of."""
        self._looked_at: float | None = None
        self._advanced_at = clock.monotonic()
        self._target: dict[TopicPartition, int] | None = None
        self._beginnings: dict[tuple[TopicPartition, UUID], int] = {}
        self._warned: set[str] = set()

    def initial(self) -> StreamOffset:
        """Returns the offset where a query without a checkpoint starts; the same for as long as this object lives."""
        if self._initial is None:
            partitions = subscribed_at_start(self._options.topics, self._catalog)
            ids = self._note_ids(sorted({partition.topic for partition in partitions}))
            start = resolve(
                self._options.starting,
                partitions,
                self._catalog,
                "starting",
                topic_ids=ids,
                no_newer_record=self._options.no_newer_record,
            )
            if isinstance(self._options.starting, AtOffsets | AtGroup):
                start = self._within_logs(start)
            self._initial = StreamOffset(next_offsets=start, topic_ids=ids)
        return self._initial

    def _within_logs(self, start: Offsets) -> dict[TopicPartition, int]:
        earliest, latest = log_ranges(start, self._catalog)
        self._report(lost_records(start, earliest, latest))
        return {
            partition: min(max(offset, earliest[partition]), latest[partition])
            for partition, offset in start.items()
            if partition in latest
        }

    def latest(self, start: StreamOffset, limit: int | None, *, everything: bool = False) -> StreamOffset:
        """Returns the end of the next batch, or `start` itself when there is nothing to read.

        `everything`: Spark asks for all there is, whatever minOffsetsPerTrigger is. The first batch of a query runs even
        when it is empty; so its end always shows where it began. After a look that has found nothing, the next one waits, if
        the query may.
        """
        is_fresh = self._idle is not None and self._may_wait and self._share_look(self._idle, start)
        end = self._next_end(start, limit, everything=everything, is_fresh=is_fresh)
        if self._idle is not None:
            self._idle.note(self, self._latest, self._shapes(), has_news=end is not start)
        self._idle_at = start if end is start else None
        return end

    def note_batch(self) -> None:
        """Records that Spark has begun a batch of the query, which may have records of other sources only."""
        if self._idle is not None:
            self._idle.note_batch()

    def _shapes(self) -> dict[str, idle.TopicShape]:
        """Returns what is known of the topics: a wait ends when one has other partitions, or was made again."""
        counts = Counter(partition.topic for partition in self._partitions)
        names_partitions = bool(self._options.topics.partitions)
        return {
            topic: idle.TopicShape(
                topic_id=self._ids.get(topic), partition_count=None if names_partitions else count
            )
            for topic, count in counts.items()
        }

    @property
    def _may_wait(self) -> bool:
        """Returns whether only records end a wait: no time limit of minOffsetsPerTrigger or of a last batch applies."""
        return self._options.min_offsets_per_trigger is None and self._target is None

    def _share_look(self, idle: SourceWait, start: StreamOffset) -> bool:
        """Waits if the last look has found nothing. Tells whether a look for all queries has brought `_latest` up to date."""
        if self._idle_at != start:
            return idle.has_no_news(self._latest) and self._adopt(self._latest, start)
        seen = idle.wait(self, self._latest, self._shapes())
        self._looked_at = None
        return seen is not None and self._adopt(seen, start)

    def _adopt(self, seen: Offsets, start: StreamOffset) -> bool:
        """Takes ends that the look of all queries has seen, of topics that are still the same.

        Returns False where this source has to ask: topics that it reads may have come, or an end before `start` may come from
        a new leader that lags.
        """
        if self._options.archive is not None or not self._has_all_topics():
            return False
        ends = {partition: seen[partition] for partition in self._partitions if partition in seen}
        offsets = self._present_offsets(start)
        if len(ends) < len(self._partitions) or any(
            ends.get(at, -1) < next_ for at, next_ in offsets.items()
        ):
            return False
        self._latest = ends
        return True

    def _has_all_topics(self) -> bool:
        """Tells whether every topic to read existed at the last look-up, and no topics can come that a pattern matches."""
        topics = self._options.topics
        present = {partition.topic for partition in self._partitions}
        return (
            topics.pattern is None
            and present.issuperset(topics.names)
            and set(self._partitions).issuperset(topics.partitions)
        )

    def _next_end(
        self, start: StreamOffset, limit: int | None, *, everything: bool, is_fresh: bool = False
    ) -> StreamOffset:
        """`is_fresh`: the ends in `_latest` have just been seen."""
        available = self._latest if is_fresh else self._available(start)
        is_first = start == self._initial
        living = self._of_present_topics(start)
        beginnings = self._beginnings_of_new(living, available)
        known = {**living.next_offsets, **beginnings}
        self._report(lost_records(living.next_offsets, {}, available))
        ends = advance(known, available, limit)
        if ends == known or (not everything and self._should_wait(known, available)):
            return replace(start, beginnings=start.next_offsets) if is_first else start
        self._advanced_at = self._clock.monotonic()
        if is_first:
            beginnings = {**living.next_offsets, **beginnings}
        topics = {partition.topic for partition in ends}
        ids = {**living.topic_ids, **self._ids}
        return StreamOffset(
            next_offsets=ends,
            beginnings=beginnings,
            topic_ids={topic: topic_id for topic, topic_id in ids.items() if topic in topics},
        )

    def _of_present_topics(self, start: StreamOffset) -> StreamOffset:
        """Returns `start` without the topics that were recreated, which are new to the query. Reports them."""
        known = {**self._first_ids, **start.topic_ids}
        topics = recreated_topics(known, self._ids)
        affected = [topic for topic in topics if any(at.topic == topic for at in start.next_offsets)]
        news = [topic for topic in affected if f"{topic} {self._ids[topic]}" not in self._warned]
        self._warned.update(f"{topic} {self._ids[topic]}" for topic in news)
        report_recreated(news, known, self._ids, fail=self._options.fail_on_data_loss)
        return without_topics(start, topics)

    def known_latest(self) -> StreamOffset | None:
        """Returns the ends of the logs, and the ids of their topics, when they were last asked for."""
        if not self._latest:
            return None
        topics = {partition.topic for partition in self._latest}
        return StreamOffset(
            next_offsets=self._latest,
            topic_ids={topic: topic_id for topic, topic_id in self._ids.items() if topic in topics},
        )

    def prepare_available_now(self) -> None:
        """Limits all later reads to what is available at this moment."""
        self._refresh_ends(StreamOffset(next_offsets={}))
        self._target = dict(self._latest)

    def _available(self, start: StreamOffset) -> Offsets:
        if self._target is not None:
            return self._target
        wait_s = self._until_next_look()
        if wait_s > 0:
            offsets = self._present_offsets(start)
            if any(offset > offsets.get(partition, 0) for partition, offset in self._latest.items()):
                return self._latest
            self._refresh_ends(start, self._await_ends(wait_s))
        else:
            self._refresh_ends(start)
        return self._latest

    def _await_ends(self, wait_s: float) -> Offsets | None:
        """Waits until the next look is due, or ends once a partition ends elsewhere, and returns the ends then.

        A quick look asks for ends only. A topic that was made again, and ends where it did before, is left to the look.
        """
        deadline = self._clock.monotonic() + wait_s
        while True:
            now = self._clock.monotonic()
            next_s = max(QUICK_LOOK_LEAST_S, (now - self._advanced_at) * QUICK_LOOK_SHARE)
            if not self._partitions or now + next_s >= deadline:
                self._pause(max(0.0, deadline - now))
                return None
            self._pause(next_s)
            ends = self._catalog.offsets(dict.fromkeys(self._partitions, LATEST))
            if ends != self._latest:
                return ends

    def _present_offsets(self, start: StreamOffset) -> Offsets:
        """Returns the offsets of `start` in topics that were not made again."""
        return without_topics(
            start, recreated_topics({**self._first_ids, **start.topic_ids}, self._ids)
        ).next_offsets

    def _until_next_look(self) -> float:
        if self._looked_at is None:
            return 0.0
        return self._looked_at + self._options.offset_poll_interval_ms / 1_000 - self._clock.monotonic()

    def _refresh_ends(self, start: StreamOffset, seen: Offsets | None = None) -> None:
        """Asks for the ends of the logs, unless they were `seen` just now. An end before `start` may be a new leader that lags:
        ask again before believing.
        """
        for attempt in range(self._options.offset_retries + 1):
            if attempt:
                self._pause(self._options.offset_retry_interval_ms / 1_000)
            self._discover(again=attempt > 0)
            self._look_up_ends(None if attempt else seen)
            offsets = self._present_offsets(start)
            if all(self._latest.get(partition, -1) >= offset for partition, offset in offsets.items()):
                break
        self._looked_at = self._clock.monotonic()

    def _look_up_ends(self, seen: Offsets | None) -> None:
        """Ends and ids of the same topics: where an id changes meanwhile, the ends are asked for again. `seen`: ends of now."""
        if not self._partitions:
            self._latest = {}
            return
        topics = sorted({partition.topic for partition in self._partitions})
        for _ in range(_ID_LOOKUPS_MAX):
            before = dict(self._ids)
            if seen is None or seen.keys() != set(self._partitions):
                seen = self._catalog.offsets(dict.fromkeys(self._partitions, LATEST))
            self._latest, seen = dict(seen), None
            self._note_ids(topics)
            if not recreated_topics(before, self._ids):
                return
            self._discover(again=True)
        self._latest = {}

    def _note_ids(self, topics: Sequence[str]) -> dict[str, UUID]:
        ids = self._catalog.topic_ids(topics) if topics else {}
        self._ids.update(ids)
        self._first_ids = {**ids, **self._first_ids}
        return ids

    def _discover(self, *, again: bool) -> None:
        now = self._clock.monotonic()
        interval_s = self._options.partition_discovery_interval_ms / 1_000
        if again or self._discovered_at is None or now >= self._discovered_at + interval_s:
            self._partitions = subscribed(self._options.topics, self._catalog)
            self._discovered_at = now

    def _beginnings_of_new(self, start: StreamOffset, available: Offsets) -> dict[TopicPartition, int]:
        """Partitions that appeared since the last batch are read from their first record."""
        new = {
            partition: self._ids.get(partition.topic, ZERO_UUID)
            for partition in available
            if partition not in start.next_offsets
        }
        unseen = [
            partition for partition, topic_id in new.items() if (partition, topic_id) not in self._beginnings
        ]
        if unseen:
            beginnings = self._catalog.offsets(dict.fromkeys(unseen, EARLIEST))
            self._beginnings.update({(at, new[at]): offset for at, offset in beginnings.items()})
            self._report(
                [
                    f"{partition} is new to this query and already begins at offset {offset}"
                    for partition, offset in sorted(beginnings.items())
                    if offset > 0
                ]
            )
        return {at: self._beginnings[at, new[at]] for at in new if (at, new[at]) in self._beginnings}

    def _should_wait(self, start: Offsets, available: Offsets) -> bool:
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        waiting = sum(max(0, offset - start.get(partition, 0)) for partition, offset in available.items())
        waited_ms = (self._clock.monotonic() - self._advanced_at) * 1_000
        return waiting < least and waited_ms < self._options.max_trigger_delay_ms

    def _report(self, losses: list[str]) -> None:
        """Reports each loss once, even if Spark asks again."""
        news = [loss for loss in losses if loss not in self._warned]
        self._warned.update(news)
        report_loss(news, fail=self._options.fail_on_data_loss)
