"""Waiting for records while a query has read everything: one look at the brokers for all queries of a process.

A query that asks for offsets at each trigger costs CPU whether records come or not. With the option `idleWaitMs` a look that
brings nothing new waits instead, until a topic of the query ends elsewhere or the time is up. All that wait in one process are
served by one thread, which asks where all their topics end in one request. Less often it asks which topics have more partitions
now, or were made again under their names: a long wait delays neither.

A wait that ends returns what the look has seen. Fifty queries that wake for one record need not ask fifty times.
"""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.model.errors import OdradekError
from odradek.model.ids import TopicPartition
from odradek.spark.options.positions import LATEST
from odradek.spark.reading.catalog import Catalog

log: Final = logging.getLogger("odradek.spark")
LOOK_EVERY_S: Final = 0.2
SHAPES_EVERY_LOOKS: Final = 25
"""One look in this number asks for the shapes of topics, too: every 5 s."""
Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShape:
    """What a query knows of a topic that it reads. `partition_count` is None where the query reads partitions that it names."""

    topic_id: UUID | None
    """The id of the topic; None where brokers have no ids."""
    partition_count: int | None

    def is_still(self, present: TopicShape) -> bool:
        """Tells whether the topic is the same and has no other partitions now."""
        return self.topic_id == present.topic_id and self.partition_count in (None, present.partition_count)


Shapes = Mapping[str, TopicShape]


class QueryEnds:
    """The ends of one query's topics when each of its sources looked last. Its sources may be on different threads.

    A source must not wait while another one of its query has something to read: Spark asks one after another, and begins the
    batch when it has asked all.
    """

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._with_news: Final[weakref.WeakSet[object]] = weakref.WeakSet()
        """The sources whose last look found something to read."""
        self._of_sources: Final[weakref.WeakKeyDictionary[object, tuple[Offsets, Shapes]]] = (
            weakref.WeakKeyDictionary()
        )

    def note(self, source: object, ends: Offsets, shapes: Shapes, *, has_news: bool = False) -> None:
        """Records what a source has seen, and whether it found something to read. Its entry goes when the source does."""
        with self._lock:
            self._of_sources[source] = ends, shapes
            if has_news:
                self._with_news.add(source)
            else:
                self._with_news.discard(source)

    @property
    def has_news(self) -> bool:
        """Tells whether the last look of any source found something to read."""
        with self._lock:
            return bool(self._with_news)

    def known(self) -> dict[TopicPartition, int]:
        """Returns the end of each partition that every source has seen that reads it."""
        known: dict[TopicPartition, int] = {}
        for ends, _ in self._noted():
            for partition, end in ends.items():
                known[partition] = min(end, known.get(partition, end))
        return known

    def shapes(self) -> list[tuple[str, TopicShape]]:
        """Returns the topics as each source has seen them: two sources of one topic may differ."""
        return [(topic, shape) for _, shapes in self._noted() for topic, shape in shapes.items()]

    def _noted(self) -> list[tuple[Offsets, Shapes]]:
        with self._lock:
            return list(self._of_sources.values())


@dataclass(slots=True, eq=False)
class _Waiting:
    known: Offsets
    shapes: Sequence[tuple[str, TopicShape]]
    moved: threading.Event = field(default_factory=threading.Event)
    seen: Offsets | None = None
    """The ends that the look has seen which ended the wait, if all topics had their shapes after it."""

    def has_moved(self, ends: Offsets) -> bool:
        return any(ends.get(partition) != end for partition, end in self.known.items())

    def has_shapes(self, present: Shapes) -> bool:
        """Tells whether the topics exist and are what they were when the wait began."""
        return all(topic in present and shape.is_still(present[topic]) for topic, shape in self.shapes)

    def topics(self) -> set[str]:
        return {topic for topic, _ in self.shapes}


class EndsWatch:
    """Looks where topics end for all that wait, on a thread that lives while anything waits."""

    def __init__(self, catalog: Catalog, pause: Callable[[float], None]) -> None:
        """`pause` sleeps, for a number of seconds, between two looks."""
        self._catalog: Final = catalog
        self._pause: Final = pause
        self._lock: Final = threading.Lock()
        self._waiting: Final[set[_Waiting]] = set()
        self._is_polling = False
        self._last_ends: Offsets = {}
        """What the last look has seen; empty while nothing looks."""

    def wait(
        self, known: Offsets, timeout_s: float, shapes: Sequence[tuple[str, TopicShape]] = ()
    ) -> Offsets | None:
        """Waits until one of these partitions ends elsewhere or was deleted, one of these topics has another shape, no broker
        answers, or `timeout_s` is over.

        Returns the ends of the partitions, where a look that began after the wait has seen them, and the topics still had their
        shapes after it: then these are ends of the same topics. Otherwise None.
        """
        waiting = _Waiting(known, shapes)
        with self._lock:
            self._waiting.add(waiting)
            if not self._is_polling:
                self._is_polling = True
                threading.Thread(target=self._poll, name="odradek-ends", daemon=True).start()
        try:
            waiting.moved.wait(timeout_s)
        finally:
            with self._lock:
                self._waiting.discard(waiting)
        return waiting.seen

    def recent(self) -> Offsets:
        """Returns the ends that the last look has seen; empty while nothing waits. They are about LOOK_EVERY_S old at most."""
        with self._lock:
            return self._last_ends

    def _poll(self) -> None:
        for look in itertools.count(1):
            self._pause(LOOK_EVERY_S)
            with self._lock:
                waiting = list(self._waiting)
                if not waiting:
                    self._is_polling = False
                    self._last_ends = {}
                    return
            try:
                self._check(waiting, with_shapes=look % SHAPES_EVERY_LOOKS == 0)
            except Exception:  # without this thread, records would wake no query of the process
                log.exception("a look where topics end has failed: queries ask themselves")
                self._wake(waiting)

    def _check(self, all_waiting: list[_Waiting], *, with_shapes: bool) -> None:
        partitions = {partition for waiting in all_waiting for partition in waiting.known}
        shapes: Shapes = {}
        try:
            ends = self._catalog.offsets(dict.fromkeys(partitions, LATEST)) if partitions else {}
            moved = {waiting for waiting in all_waiting if waiting.has_moved(ends)}
            asking = all_waiting if with_shapes else moved
            topics = sorted({topic for waiting in asking for topic in waiting.topics()})
            if topics:
                shapes = self._shapes(topics)
        except (OdradekError, OSError) as error:
            log.debug(
                "no broker tells where topics end: %s", error
            )  # each query asks itself, and reports what is wrong
            self._wake(all_waiting)
            return
        self._note(ends)
        for waiting in all_waiting:
            if waiting in moved:
                if waiting.shapes and waiting.has_shapes(shapes):
                    waiting.seen = {at: ends[at] for at in waiting.known if at in ends}
                waiting.moved.set()
            elif not all(shape.is_still(shapes.get(topic, shape)) for topic, shape in waiting.shapes):
                waiting.moved.set()

    def _wake(self, all_waiting: Iterable[_Waiting]) -> None:
        """Ends waits after a look that has seen nothing."""
        self._note({})
        for waiting in all_waiting:
            waiting.moved.set()

    def _note(self, ends: Offsets) -> None:
        with self._lock:
            self._last_ends = ends

    def _shapes(self, topics: Sequence[str]) -> Shapes:
        """Returns the shapes of the topics that exist."""
        ids = self._catalog.topic_ids(topics)
        counts = self._catalog.partition_counts(topics)
        return {
            topic: TopicShape(topic_id=ids.get(topic), partition_count=count)
            for topic, count in counts.items()
        }


class IdleWaits:
    """The watches of a process, one for each cluster and login, and the queries that wait."""

    def __init__(self, watch_of: Callable[[Mapping[str, str]], EndsWatch]) -> None:
        self._watch_of: Final = watch_of
        self._lock: Final = threading.Lock()
        self._watches: Final[dict[frozenset[tuple[str, str]], EndsWatch]] = {}
        self._queries: Final[
            weakref.WeakValueDictionary[tuple[frozenset[tuple[str, str]], str], QueryEnds]
        ] = weakref.WeakValueDictionary()

    def of(self, client: Mapping[str, str], query: str | None, wait_s: float) -> IdleWait:
        """Returns the wait of one source. `query`: a name that the sources of a query share; None: the source is alone."""
        cluster = frozenset(client.items())
        with self._lock:
            watch = self._watches.get(cluster)
            if watch is None:
                watch = self._watches[cluster] = self._watch_of(client)
            ends = None if query is None else self._queries.get((cluster, query))
            if ends is None:
                ends = QueryEnds()
                if query is not None:
                    self._queries[cluster, query] = ends
        return IdleWait(watch=watch, ends=ends, wait_s=wait_s)


PROCESS_WAITS: Final[list[IdleWaits]] = []
_making: Final = threading.Lock()


def waits_of_process(watch_of: Callable[[Mapping[str, str]], EndsWatch]) -> IdleWaits:
    """Returns the waits of this process, the same ones for all threads: sources that begin at once must share them."""
    with _making:
        if not PROCESS_WAITS:
            PROCESS_WAITS.append(IdleWaits(watch_of))
        return PROCESS_WAITS[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleWait:
    """The wait of one source of a query."""

    watch: EndsWatch
    ends: QueryEnds
    wait_s: float

    def note(self, source: object, ends: Offsets, shapes: Shapes, *, has_news: bool) -> None:
        """Records what a look of a source has seen, and whether it found something to read."""
        self.ends.note(source, ends, shapes, has_news=has_news)

    def note_batch(self) -> None:
        """Does nothing: the sources of a query know of each other's news."""

    def wait(self, source: object, ends: Offsets, shapes: Shapes) -> Offsets | None:
        """Waits while the topics of the query are as its sources have seen them, and none of these has found something to read.

        `ends`, `shapes`: what this source saw last. Returns the ends as they are now, where the topics are still the same;
        otherwise None, and the source has to ask.
        """
        self.ends.note(source, ends, shapes)
        recent = self.watch.recent()
        has_moved = any(recent.get(partition, end) > end for partition, end in ends.items())
        if has_moved or self.ends.has_news:
            return None
        return self.watch.wait(self.ends.known(), self.wait_s, self.ends.shapes())

    def has_no_news(self, ends: Offsets) -> bool:
        """Tells whether the last look of all queries, a moment ago, has seen just these ends: then a source need not ask.

        What came since ends its next wait. False while no query waits.
        """
        recent = self.watch.recent()
        return bool(ends) and all(recent.get(partition) == end for partition, end in ends.items())
