"""Records that queries leave out, counted by topic: the error statistics of DESCRIBE EXTENDED.

Entries of the processing log are counted, of Spark's tasks and of the server, from the moment when the server started, as in
ksqlDB. Names and forms come from ksqlDB's `StreamsErrorCollector`, `TopicSensors` and `QueryHostStat`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from odradek.client.admin.aio import AsyncAdmin
from odradek.client.consumer.aio import AsyncConsumer
from odradek.dead_letters.processing_log import left_out_of
from odradek.model.aliases import ClientSettings
from odradek.model.errors import OdradekError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock
from odradek.runtime.real_clock import SystemClock
from odradek.sql.metastore.catalog import SqlCatalog
from odradek.telemetry import events
from odradek.values.times import moment_text

_log = events.get("sql")
_FAILED: Final = "consumer-failed-messages"
_FAILED_PER_SEC: Final = "consumer-failed-messages-per-sec"
_RATE_S: Final = 60
_REFRESH_EVERY_S: Final = 10.0
_PATIENCE_S: Final = 2.0
"""DESCRIBE EXTENDED waits at most so long for entries that were written a moment ago."""
_POLL_S: Final = 5.0
_POLL_RECORDS_MAX: Final = 2_000
_LATEST: Final = -1
_READ_COMMITTED: Final = 1


@dataclass(slots=True)
class TopicErrors:
    """The records of one topic that were left out. `last_ms`: time of the last one, in milliseconds since 1970."""

    count: int = 0
    last_ms: int = 0
    _by_second: dict[int, int] = field(default_factory=dict)

    def add(self, count: int, at_ms: int) -> None:
        """Adds records that were left out at a time. Others may read meanwhile."""
        self.count += count
        self.last_ms = max(self.last_ms, at_ms)
        second, oldest = at_ms // 1000, self.last_ms // 1000 - _RATE_S
        by_second = {**self._by_second, second: self._by_second.get(second, 0) + count}
        self._by_second = {known: counted for known, counted in by_second.items() if known > oldest}

    def per_second(self, now_ms: int) -> float:
        """Returns the rate of the last minute."""
        oldest = now_ms // 1000 - _RATE_S
        recent = sum(counted for second, counted in self._by_second.items() if second > oldest)
        return recent / _RATE_S

    def text(self, now_ms: int) -> str:
        """Returns the statistics as ksqlDB words them; empty where there are none."""
        if not self.count:
            return ""
        values = ((_FAILED, float(self.count)), (_FAILED_PER_SEC, self.per_second(now_ms)))
        shown = " ".join(
            f"{name:>16}:{value:>10.{0 if value == round(value) else 2}f}" for name, value in values
        )
        return f"{shown} {'last-failed':>16}: {moment_text(self.last_ms)}Z"

    def entities(self, host: str, now_ms: int) -> list[dict[str, object]]:
        """Returns the statistics of a server for `clusterErrorStats`. `host`: its address."""
        if not self.count:
            return []
        values = {_FAILED: float(self.count), _FAILED_PER_SEC: self.per_second(now_ms)}
        return [
            {"host": host, "name": name, "value": value, "timestamp": self.last_ms}
            for name, value in values.items()
        ]


class ErrorCounts:
    """Counts of entries by topic, for the topics of a catalog's sources. No I/O."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicErrors] = {}

    def of(self, topic: str) -> TopicErrors:
        return self._topics.get(topic) or TopicErrors()

    def keep(self, topics: Collection[str]) -> None:
        """Forgets all other topics."""
        self._topics = {topic: errors for topic, errors in self._topics.items() if topic in topics}

    def note(self, catalog: SqlCatalog, entries: Iterable[tuple[bytes | None, int]], now_ms: int) -> None:
        """Counts entries: the bytes of each, and its time. What is no entry, or about a foreign topic, does not count."""
        topics = {source.topic for source in (*catalog.sources.values(), *catalog.candidates.values())}
        for content, at_ms in entries:
            left_out = left_out_of(content)
            if left_out is None:
                continue
            topic = left_out.topic or _only_topic(catalog, left_out.query_id)
            if topic in topics:
                errors = self._topics.setdefault(topic, TopicErrors())
                errors.add(left_out.count, min(max(at_ms, 0), now_ms))


def _only_topic(catalog: SqlCatalog, query_id: str) -> str:
    """Returns the topic that a query reads; nothing where it reads several, as the entry does not name one."""
    query = catalog.queries.get(query_id)
    sources = () if query is None else query.sources
    topics = {catalog.sources[name].topic for name in sources if name in catalog.sources}
    return topics.pop() if len(topics) == 1 else ""


class ErrorStatistics:
    """Follows the processing log. `start` when its topic is there, and `close` at the end. Without `start` there are no
    statistics.
    """

    def __init__(
        self,
        servers: str,
        settings: ClientSettings,
        catalog: Callable[[], SqlCatalog],
        clock: Clock | None = None,
    ) -> None:
        self._servers = servers
        self._settings = settings
        self._catalog = catalog
        self._clock = clock or SystemClock()
        self._counts = ErrorCounts()
        self._admin = AsyncAdmin(servers, **settings)
        self._topic = ""
        self._read: dict[TopicPartition, int] = {}
        """The next offset to read."""
        self._reading = asyncio.Lock()
        self._is_on = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_refresh: asyncio.Task[None] | None = None
        """The refresh that has not begun yet: it reads what was written before now."""
        self._problem = ""
        """The reason why the last refresh failed; it is logged once."""

    async def start(self, topic: str) -> None:
        """Begins to count at the end of the topic."""
        self._topic = topic
        try:
            self._read = await self._ends()
        except OdradekError as error:
            _log.warning("sql_error_statistics_off", topic=topic, reason=str(error))
            return
        self._is_on = True
        self._run(self._follow())

    async def close(self) -> None:
        """Stops counting, and closes the client. Idempotent."""
        for task in list(self._tasks):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._is_on = False
        await self._admin.close()

    async def of(self, topic: str) -> TopicErrors:
        """Returns the statistics of a topic, with the entries that were written before the call."""
        if self._is_on:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    await asyncio.shield(self._refresh())
        return self._counts.of(topic)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_EVERY_S)
            await asyncio.shield(self._refresh())

    def _refresh(self) -> asyncio.Task[None]:
        """Returns the next refresh, which many may wait for."""
        if self._next_refresh is None:
            self._next_refresh = self._run(self._refresh_once())
        return self._next_refresh

    def _run(self, work: Coroutine[object, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name="odradek-sql-errors")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _refresh_once(self) -> None:
        async with self._reading:
            self._next_refresh = None
            try:
                await self._catch_up()
            except OdradekError as error:
                if self._problem != str(error):
                    _log.warning("sql_error_statistics_late", topic=self._topic, reason=str(error))
                self._problem = str(error)
            else:
                self._problem = ""

    async def _catch_up(self) -> None:
        catalog = self._catalog()
        self._counts.keep({source.topic for source in catalog.sources.values()})
        ends = await self._ends()
        self._read = {partition: min(self._read.get(partition, 0), end) for partition, end in ends.items()}
        behind = {partition: end for partition, end in ends.items() if end > self._read[partition]}
        if behind:
            await self._read_until(behind)

    async def _ends(self) -> dict[TopicPartition, int]:
        described = await self._admin.describe_topics([self._topic])
        partitions = described[self._topic].topic_partitions
        ends = await self._admin.list_offsets(dict.fromkeys(partitions, _LATEST), isolation=_READ_COMMITTED)
        return {partition: end.offset for partition, end in ends.items()}

    async def _read_until(self, ends: Mapping[TopicPartition, int]) -> None:
        async with AsyncConsumer(
            self._servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            **self._settings,
        ) as consumer:
            await consumer.assign(list(ends))
            for partition in ends:
                consumer.seek(partition, self._read[partition])
            while any(self._read[partition] < end for partition, end in ends.items()):
                records = await consumer.poll(_POLL_S, _POLL_RECORDS_MAX)
                entries = [(record.value, record.timestamp_ms) for record in records]
                await asyncio.to_thread(self._counts.note, self._catalog(), entries, self._clock.wall_ms())
                before, self._read = self._read, {**self._read}
                for partition in ends:
                    self._read[partition] = await consumer.position(partition)
                if self._read == before:
                    return  # the brokers are late, or the topic was deleted: the next refresh continues
