"""Swaps a query that is being rebuilt (an upgrade) for the one before it, when it has caught up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from odradek.client.admin.aio import AsyncAdmin
from odradek.model.errors import OdradekError
from odradek.model.ids import TopicPartition
from odradek.spark.options.sink_ids import group_of
from odradek.sql.metastore.catalog import SqlSource
from odradek.sql.planning import sink_id
from odradek.sql.queries.channel import StartQuery
from odradek.sql.server.upgrades import RunningQueries
from odradek.telemetry import events

_log = events.get("sql")
SWAP_LAG: Final = 1_000
"""The lag of all partitions together, in records, at which a candidate takes over; pipelines have the same default."""
_LOOK_EVERY_S: Final = 1.0
_EARLIEST, _LATEST = -2, -1
_READ_COMMITTED: Final = 1


class RebuildWatch:
    """Watches sources that are being rebuilt. `swap` puts the candidate of a source in its place."""

    def __init__(self, running: RunningQueries, swap: Callable[[SqlSource], Awaitable[object]]) -> None:
        self._running = running
        self._swap = swap
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch(), name="odradek-sql-rebuild")

    async def close(self) -> None:
        """Stops the watch. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            await self.swap_what_has_caught_up()

    async def swap_what_has_caught_up(self) -> None:
        for candidate in list(self._running.catalog.candidates.values()):
            try:
                behind = await self.behind(candidate)
                if behind is not None and behind <= SWAP_LAG:
                    _log.info("sql_query_swapped", source=candidate.name, topic=candidate.topic)
                    await self._swap(candidate)
            except OdradekError as error:
                _log.warning("sql_rebuild_unknown", source=candidate.name, reason=str(error))

    async def behind(self, candidate: SqlSource) -> int | None:
        """Returns how many records it still has to read; None while it does not run, and before its first batch."""
        query_id = candidate.query_id or ""
        wanted = self._running.engine.wanted.get(query_id)
        if wanted is None or wanted.state not in ("RUNNING", "SLEEPING"):
            return None
        assert isinstance(wanted.order, StartQuery)
        sources = self._running.catalog.queries[query_id].sources
        topics = {self._running.catalog.source(name).topic for name in sources}
        settings = self._running.topics.settings
        async with AsyncAdmin(self._running.topics.servers, **settings) as admin:
            described = await admin.describe_topics(sorted(topics))
            partitions = [partition for topic in described.values() for partition in topic.topic_partitions]
            begins = await admin.list_offsets(dict.fromkeys(partitions, _EARLIEST))
            ends = await admin.list_offsets(dict.fromkeys(partitions, _LATEST), isolation=_READ_COMMITTED)
            group = group_of(sink_id(wanted.order.name))
            committed = await admin.list_group_offsets(group, partitions)
        read = {partition: offset.offset for partition, offset in committed.items() if offset is not None}
        left = lag(
            {partition: end.offset for partition, end in ends.items()},
            {partition: begin.offset for partition, begin in begins.items()},
            read,
        )
        return left if read or left == 0 else None


def lag(
    ends: dict[TopicPartition, int], begins: dict[TopicPartition, int], read: dict[TopicPartition, int]
) -> int:
    """Returns the number of records between what was read and the ends; of partitions that nothing was read of, all records."""
    return sum(
        max(0, end - max(begins[partition], read.get(partition, 0))) for partition, end in ends.items()
    )
