"""Queries that sleep: where many run, those with nothing to read for long are stopped, and started again when a topic moves.

A query that runs costs memory, whether records come or not. One that sleeps costs nothing: the server looks up where the topics
of all of them end, in one request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from odradek.model.aliases import ClientSettings
from odradek.model.errors import OdradekError
from odradek.model.ids import TopicPartition
from odradek.model.lazy import lazy
from odradek.spark.reading.offsets import from_document
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.client.admin import aio
else:
    aio = lazy("odradek.client.admin.aio")  # the process that starts Java does without

_log = events.get("sql")
_LOOK_EVERY_S: Final = 0.5
_DISCOVER_EVERY_S: Final = 30.0
_READ_COMMITTED: Final = 1
_LATEST: Final = -1

Offsets: TypeAlias = Mapping[TopicPartition, int]
"""The next one to be read, or to be written, of each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepTerms:
    """The settings by which idle queries sleep.

    `awake_count_max`: the number of queries that run although nothing comes. Of those beyond, the ones that had nothing to
    read for `idle_s` sleep; for `crowded_idle_s`, while more than twice as many run.
    """

    awake_count_max: int = 50
    idle_s: float = 120.0
    crowded_idle_s: float = 5.0


def read_offsets(progress: str) -> Offsets | None:
    """Returns how far a query has read, from Spark's JSON of its last progress; None where a source does not report it."""
    offsets: dict[TopicPartition, int] = {}
    for source in json.loads(progress)["sources"]:
        end = source.get("endOffset")
        if not isinstance(end, dict):
            return None
        for partition, offset in from_document(end).next_offsets.items():
            offsets[partition] = min(offset, offsets.get(partition, offset))
    return offsets or None


def has_moved(read: Offsets, ends: Offsets) -> bool:
    """Tells whether a query's topics have something to read, or one of them is another topic now."""
    topics = {partition.topic for partition in read}
    present = {partition: end for partition, end in ends.items() if partition.topic in topics}
    if not topics <= {partition.topic for partition in present}:
        return True
    return any(end != read.get(partition, 0) for partition, end in present.items())


class IdleQueries:
    """Tracks how long queries have had nothing to read. `now` is monotonic, in seconds. No I/O."""

    def __init__(self, terms: SleepTerms) -> None:
        self.terms: Final = terms
        self._read: dict[str, Offsets] = {}
        self._since: dict[str, float] = {}

    def keep(self, query_ids: Collection[str]) -> None:
        """Forgets all others."""
        for query_id in self._read.keys() - set(query_ids):
            del self._read[query_id], self._since[query_id]

    def note(self, query_id: str, read: Offsets | None, now: float) -> None:
        """Notes how far a query has read; None: it does not report that, so its last report counts."""
        if read is not None and self._read.get(query_id) != read:
            self._read[query_id], self._since[query_id] = read, now

    def due(self, running_count: int, now: float) -> list[tuple[str, Offsets]]:
        """Returns queries that may sleep, longest idle first, and how far each has read; each only once per idle time."""
        is_crowded = running_count > 2 * max(1, self.terms.awake_count_max)
        idle_s = min(self.terms.idle_s, self.terms.crowded_idle_s) if is_crowded else self.terms.idle_s
        idle = sorted((since, query_id) for query_id, since in self._since.items() if now - since >= idle_s)
        excess = max(0, running_count - self.terms.awake_count_max)
        due = [query_id for _, query_id in idle[:excess]]
        for query_id in due:
            del self._since[query_id]
        return [(query_id, self._read.pop(query_id)) for query_id in due]


class SleepWatch:
    """Wakes queries when one of their topics moves."""

    def __init__(
        self,
        servers: str,
        settings: ClientSettings,
        sleeping: Callable[[], Mapping[str, Offsets]],
        wake: Callable[[str], None],
    ) -> None:
        """`sleeping` returns the queries that sleep now, and how far each has read."""
        self._admin = aio.AsyncAdmin(servers, **settings)
        self._sleeping = sleeping
        self._wake = wake
        self._partitions: dict[str, Sequence[TopicPartition]] = {}
        self._discovered_at = float("-inf")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch(), name="odradek-sql-sleep")

    async def close(self) -> None:
        """Stops the watch. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
            await self._admin.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            sleeping = dict(self._sleeping())
            if not sleeping:
                continue
            try:
                ends = await self._ends({partition.topic for read in sleeping.values() for partition in read})
            except OdradekError as error:
                _log.warning("sql_ends_unknown", reason=str(error))
                continue
            for query_id, read in sleeping.items():
                if has_moved(read, ends):
                    self._wake(query_id)

    async def _ends(self, topics: Collection[str]) -> Offsets:
        """Returns the ends of the topics that exist."""
        now = asyncio.get_running_loop().time()
        if now - self._discovered_at >= _DISCOVER_EVERY_S or not set(topics) <= self._partitions.keys():
            present = set(await self._admin.list_topics(internal=True))
            described = await self._admin.describe_topics(sorted(present & set(topics)))
            self._partitions = dict.fromkeys(topics, ()) | {
                topic: description.topic_partitions for topic, description in described.items()
            }
            self._discovered_at = now
        wanted = dict.fromkeys(
            (partition for topic in topics for partition in self._partitions[topic]), _LATEST
        )
        ends = await self._admin.list_offsets(wanted, isolation=_READ_COMMITTED) if wanted else {}
        return {partition: end.offset for partition, end in ends.items()}
