"""Waiting for records while a query has read everything: one look at the brokers for all queries of a process.

A query that asks for offsets at each trigger costs CPU whether records come or not. With the option `idleWaitMs` a look that
brings nothing new waits instead, until a topic of the query ends elsewhere or the time is up. All that wait in one process are
served by one thread, which asks where all their topics end in one request.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.model.errors import OdradekError
from odradek.model.ids import TopicPartition
from odradek.spark.reading.catalog import Catalog
from odradek.spark.reading.positions import LATEST

log: Final = logging.getLogger("odradek.spark")
LOOK_EVERY_S: Final = 0.2
Offsets = Mapping[TopicPartition, int]


class QueryEnds:
    """The ends of one query's topics when each of its sources looked last. Its sources may be on different threads.

    A source must not wait while another one of its query has something to read: Spark asks one after another.
    """

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._of_sources: Final[weakref.WeakKeyDictionary[object, Offsets]] = weakref.WeakKeyDictionary()

    def note(self, source: object, ends: Offsets) -> None:
        """Records what a source has seen. Its entry goes when the source does."""
        with self._lock:
            self._of_sources[source] = ends

    def known(self) -> dict[TopicPartition, int]:
        """Returns the end of each partition that every source has seen that reads it."""
        known: dict[TopicPartition, int] = {}
        with self._lock:
            for ends in list(self._of_sources.values()):
                for partition, end in ends.items():
                    known[partition] = min(end, known.get(partition, end))
        return known


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    known: Offsets
    moved: threading.Event = field(default_factory=threading.Event)


class EndsWatch:
    """Looks where topics end for all that wait, on a thread that lives while anything waits."""

    def __init__(self, catalog: Catalog, pause: Callable[[float], None]) -> None:
        """`pause` sleeps, for a number of seconds, between two looks."""
        self._catalog: Final = catalog
        self._pause: Final = pause
        self._lock: Final = threading.Lock()
        self._waiting: Final[set[_Waiting]] = set()
        self._is_polling = False

    def wait(self, known: Offsets, timeout_s: float) -> None:
        """Returns when one of these partitions ends elsewhere or is gone, when no broker answers, or after `timeout_s`."""
        waiting = _Waiting(known)
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

    def _poll(self) -> None:
        while True:
            self._pause(LOOK_EVERY_S)
            with self._lock:
                waiting = list(self._waiting)
                if not waiting:
                    self._is_polling = False
                    return
            self._check(waiting)

    def _check(self, all_waiting: list[_Waiting]) -> None:
        partitions = {partition for waiting in all_waiting for partition in waiting.known}
        try:
            ends = self._catalog.offsets(dict.fromkeys(partitions, LATEST)) if partitions else {}
        except (OdradekError, OSError) as error:
            log.debug(
                "no broker says where topics end: %s", error
            )  # each query asks itself, and says what is wrong
            for waiting in all_waiting:
                waiting.moved.set()
            return
        for waiting in all_waiting:
            if any(ends.get(partition) != end for partition, end in waiting.known.items()):
                waiting.moved.set()


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
        """Returns what one source waits with. `query`: a name that the sources of a query share; None: it is alone."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleWait:
    """The wait of one source of a query."""

    watch: EndsWatch
    ends: QueryEnds
    wait_s: float

    def wait(self, source: object, ends: Offsets) -> None:
        """Waits while the topics of the query end where its sources have seen them end. `ends`: what this source saw last."""
        self.ends.note(source, ends)
        self.watch.wait(self.ends.known(), self.wait_s)
