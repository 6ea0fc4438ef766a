"""Keeps the model of one principal's cluster up to date, a part at a time.

Each part (brokers, topics, disks, groups, transactions) has a rhythm of its own: the pause after a reading is `SHARE` times
what the reading took, within bounds. So a large or a slow cluster is asked less often, by itself. Everything here runs on the
background loop; `snapshot`, `troubles` and `touch` may be used from any thread.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from odradek.client import EARLIEST, LATEST
from odradek.client.admin.types import ClusterDescription, ConfigResource, LogDirDescription
from odradek.client.aio import AsyncAdmin
from odradek.client.network.errors import PartialFailureError, explain
from odradek.console.model.access_reading import AccessReader, SharedReading
from odradek.console.model.assembly import brokers_of, tabulated
from odradek.console.model.group_reading import GroupReader, readable
from odradek.console.model.lag_history import LagHistory
from odradek.console.model.moving import read_progress
from odradek.console.model.pipeline_reading import PipelineReader
from odradek.console.model.rights import ClusterRights
from odradek.console.model.snapshot import (
    UNKNOWN,
    DiskFigures,
    GroupFigures,
    ModelSnapshot,
    Reading,
    TopicDetail,
    add_sizes,
    disk_figures,
    partition_names,
)
from odradek.console.model.time_line import ClusterTimeLine
from odradek.console.model.transaction_reading import read_long_transactions
from odradek.console.model.troubles import Trouble, troubles_of
from odradek.console.records.reading import ClusterReader, RecordSight
from odradek.model.aliases import ClientSettings
from odradek.model.errors import OdradekError
from odradek.runtime.ports import Clock
from odradek.runtime.shielded import outcome_of
from odradek.telemetry import events

T = TypeVar("T")

_log = events.get("console")

SHARE: Final = 10
"""A pause is this many times longer than what the reading took, up to `PAUSE_MAX_S`."""
PAUSE_MAX_S: Final = 60.0
PAUSES_S: Final[Mapping[str, float]] = {
    "brokers": 2.0,
    "topics": 3.0,
    "disks": 10.0,
    "groups": 5.0,
    "transactions": 10.0,
}
IDLE_AFTER_S: Final = 300.0
IDLE_FACTOR: Final = 10
"""Pauses are longer by this factor while no one looks."""
CALL_S: Final = 10.0
LARGE_CALL_S: Final = 60.0
"""The limit of calls whose answers have every topic of a cluster or of a broker."""
GROUPS_AT_ONCE: Final = 50
GROUPS_MAX: Final = 2_000
"""The number of groups whose members and lag are read; others are listed only."""
SETTINGS_MAX: Final = 200
"""The number of topics with replicas out of sync whose min.insync.replicas is read."""
REASSIGNMENTS_AGE_S: Final = 5.0
MOVES_AGE_S: Final = 2.0
"""The time for which pages share a reading of the moves under way."""
DETAILS_MAX: Final = 100
DETAIL_AGE_MS: Final = 3_000
_MIN_ISR: Final = "min.insync.replicas"
_WATCHED: Final = frozenset({"brokers", "topics"})
"""The parts whose changes are events of the time line."""


class ClusterModel:
    """One cluster as one principal sees it. `start` and `close` on the background loop."""

    def __init__(
        self,
        bootstrap: str,
        settings: ClientSettings,
        clock: Clock,
        before: ClusterModel | None = None,
        sight: RecordSight | None = None,
    ) -> None:
        """`before`: a model of the same login, with other settings. What it has read is where this one begins."""
        self.bootstrap: Final = bootstrap
        self.settings: Final = settings
        self.snapshot: ModelSnapshot = ModelSnapshot() if before is None else before.snapshot
        self.clock: Final = clock
        self._admin = AsyncAdmin(bootstrap, **settings)
        self.reader: Final = ClusterReader(bootstrap, settings, clock, sight)
        self.rights: Final = ClusterRights(self._admin, clock)
        self.access: Final = AccessReader(self._admin, clock)
        self.time_line: Final[ClusterTimeLine] = ClusterTimeLine() if before is None else before.time_line
        self.moves: Final = SharedReading(partial(read_progress, self._admin), clock, MOVES_AGE_S)
        self.reassignments: Final = SharedReading(
            self._read_reassignments, clock, REASSIGNMENTS_AGE_S, share=SHARE
        )
        history = LagHistory() if before is None else before.groups.history
        self.groups: Final[GroupReader] = GroupReader(
            self._admin, self.reader, clock, lambda: self.snapshot, history
        )
        self.pipelines: Final = PipelineReader(bootstrap, settings, clock)
        self._touched_s = clock.monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        self._cluster: ClusterDescription | None = None
        self._disks: dict[int, tuple[DiskFigures, ...]] = {} if before is None else dict(before._disks)
        self._details: OrderedDict[str, TopicDetail] = OrderedDict()
        self._under_way: dict[str, asyncio.Task[TopicDetail]] = {}
        self._troubles: tuple[int, list[Trouble]] = (-1, [])
        self._is_tried = asyncio.Event()
        self._hurry: dict[str, asyncio.Event] = {part: asyncio.Event() for part in PAUSES_S}

    @property
    def admin(self) -> AsyncAdmin:
        """The client, for actions on the background loop."""
        return self._admin

    def troubles(self) -> list[Trouble]:
        """Returns what is wrong in the last snapshot; computed once for each."""
        snapshot = self.snapshot
        version, troubles = self._troubles
        if version != snapshot.version:
            troubles = troubles_of(snapshot)
            self._troubles = (snapshot.version, troubles)
        return troubles

    def touch(self) -> None:
        """Notes that someone looks: the model is refreshed at its full pace."""
        self._touched_s = self.clock.monotonic()

    async def start(self) -> None:
        """Begins to refresh. Idempotent."""
        if self._tasks:
            return
        readers: dict[str, Callable[[], Awaitable[None]]] = {
            "brokers": self._read_brokers,
            "topics": self._read_topics,
            "disks": self._read_disks,
            "groups": self._read_groups,
            "transactions": self._read_transactions,
        }
        create = asyncio.get_running_loop().create_task
        self._tasks = [
            create(self._keep_reading(part, read), name=f"odradek-console-{part}")
            for part, read in readers.items()
        ]

    async def wait_until_read(self) -> None:
        """Returns once brokers and topics were read, or could not be."""
        await self._is_tried.wait()

    async def rest(self) -> None:
        """Ends refreshing; pages may still call. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Ends refreshing, and the connections. Idempotent."""
        await self.rest()
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.groups.close()
        await self._admin.close()

    async def refresh_now(self, *parts: str) -> None:
        """Reads these parts soon, without their pause: something was changed."""
        for part in parts:
            self._hurry[part].set()

    async def _keep_reading(self, part: str, read: Callable[[], Awaitable[None]]) -> None:
        while True:
            began_s = self.clock.monotonic()
            self._hurry[part].clear()
            try:
                await read()
            except OdradekError as error:
                self._note(part, explain(error))
            except Exception as error:  # noqa: BLE001 - the root of a task: the page shows what went wrong
                _log.exception("console_refresh_failed", part=part)
                self._note(part, f"unexpected {type(error).__name__}")
            else:
                self._note(part, "")
                if part in _WATCHED:
                    self.time_line.note(self.snapshot, self.clock.wall_ms())
            took_s = self.clock.monotonic() - began_s
            pause_s = max(PAUSES_S[part], min(PAUSE_MAX_S, SHARE * took_s))
            if self.clock.monotonic() - self._touched_s > IDLE_AFTER_S:
                pause_s *= IDLE_FACTOR
            await self._pause(part, pause_s)

    async def _pause(self, part: str, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._hurry[part].wait()
        except TimeoutError:
            pass

    def _note(self, part: str, problem: str) -> None:
        known = self.snapshot.readings[part]
        reading = Reading(read_ms=known.read_ms if problem else self.clock.wall_ms(), problem=problem)
        self._change(readings={**self.snapshot.readings, part: reading})
        if self.snapshot.is_read or self.snapshot.readings["brokers"].problem:
            self._is_tried.set()

    def _change(self, **fields: Any) -> None:
        self.snapshot = replace(self.snapshot, version=self.snapshot.version + 1, **fields)

    def _change_brokers(self, **fields: object) -> None:
        """Brokers have figures of partitions and of disks: they are put together again when either changes."""
        self._change(**fields)
        if self._cluster is not None:
            known = {broker.broker_id: broker for broker in self.snapshot.brokers}
            self._change(brokers=brokers_of(self._cluster, self.snapshot.partitions, self._disks, known))

    # -- the parts

    async def _read_brokers(self) -> None:
        self._cluster = await self._admin.describe_cluster(timeout_s=CALL_S)
        self._change_brokers(cluster_id=self._cluster.cluster_id or "")

    async def _read_topics(self) -> None:
        described = await self._admin.describe_topics(timeout_s=LARGE_CALL_S)
        topics, partitions = tabulated(described.values())
        del described
        out_of_sync = [topic.name for topic in topics.values() if topic.under_replicated or topic.offline]
        min_isr = await self._min_isr(out_of_sync[:SETTINGS_MAX])
        self._change_brokers(topics=topics, partitions=partitions, min_isr=min_isr)

    async def _read_reassignments(self) -> int:
        return len(await readable(self._admin.list_reassignments(timeout_s=CALL_S)))

    async def _min_isr(self, topics: Iterable[str]) -> dict[str, int]:
        resources = [ConfigResource.topic(name) for name in topics]
        if not resources:
            return {}
        settings = await readable(self._admin.describe_configs(resources, timeout_s=CALL_S))
        return {
            resource.name: int(entries[_MIN_ISR].value or 1)
            for resource, entries in settings.items()
            if _MIN_ISR in entries
        }

    async def _read_disks(self) -> None:
        sizes: dict[str, int] = {}
        largest: dict[str, array[int]] = {}
        cluster = self._cluster or await self._admin.describe_cluster(timeout_s=CALL_S)
        problems = []
        for broker in cluster.brokers:  # one by one: an answer lists every replica of the broker
            try:
                directories = await self._directories_of(broker.broker_id)
            except OdradekError as error:
                problems.append(explain(error))
                continue
            self._disks[broker.broker_id] = tuple(disk_figures(directory) for directory in directories)
            add_sizes(directories, sizes, largest)
        if not problems or sizes:
            self._change_brokers(sizes=sizes, largest=largest)
        if problems:
            raise OdradekError(problems[0])

    async def _directories_of(self, broker_id: int) -> tuple[LogDirDescription, ...]:
        described = await self._admin.describe_log_dirs([broker_id], timeout_s=LARGE_CALL_S)
        return described[broker_id]

    async def _read_groups(self) -> None:
        known = self.snapshot.groups
        figures: dict[str, GroupFigures] = {}
        try:
            listed = await self._admin.list_groups(timeout_s=CALL_S)
        except PartialFailureError as error:  # a broker has just died: its groups stay as they were
            listed = [listing for listings in error.results.values() for listing in listings]
            figures = dict(known)
        names = [listing.group_id for listing in listed]
        figures |= {
            listing.group_id: GroupFigures(
                listing.group_id,
                listing.type,
                listing.state,
                known[listing.group_id].members if listing.group_id in known else UNKNOWN,
                known[listing.group_id].lag if listing.group_id in known else UNKNOWN,
                UNKNOWN,
            )
            for listing in listed
        }
        self._change(groups=dict(figures))
        for start in range(0, min(len(names), GROUPS_MAX), GROUPS_AT_ONCE):
            some = names[start : start + GROUPS_AT_ONCE]
            figures.update(await self.groups.figures(some))
            self._change(groups=dict(figures))

    async def _read_transactions(self) -> None:
        transactions, count = await read_long_transactions(self._admin, self.clock.wall_ms(), CALL_S)
        self._change(long_transactions=transactions, long_transaction_count=count)

    # -- one topic

    async def topic_detail(self, name: str) -> TopicDetail:
        """Returns offsets and settings of a topic, at most a few seconds old; concurrent callers share one reading."""
        known = self._details.get(name)
        if known is not None and self.clock.wall_ms() - known.read_ms < DETAIL_AGE_MS:
            return known
        task = self._under_way.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._read_detail(name))
            self._under_way[name] = task
            task.add_done_callback(lambda _: self._under_way.pop(name, None))
        return await outcome_of(task)

    def forget_detail(self, name: str) -> None:
        """Has the topic read again by the next caller: something was changed."""
        self._details.pop(name, None)

    async def _read_detail(self, name: str) -> TopicDetail:
        topic = self.snapshot.topics.get(name)
        names = [] if topic is None else partition_names(topic)
        problems: list[str] = []

        async def attempt(call: Awaitable[T], otherwise: T) -> T:
            try:
                return await call
            except OdradekError as error:
                problems.append(explain(error))
                return otherwise

        admin, resource = self._admin, ConfigResource.topic(name)
        led = (
            []
            if topic is None
            else [
                tp
                for tp, row in zip(names, self.snapshot.partitions.of(topic), strict=True)
                if not row.is_offline
            ]
        )
        starts, ends, settings = await asyncio.gather(
            attempt(admin.list_offsets(dict.fromkeys(led, EARLIEST), timeout_s=CALL_S), {}),
            attempt(admin.list_offsets(dict.fromkeys(led, LATEST), timeout_s=CALL_S), {}),
            attempt(
                admin.describe_configs([resource], documentation=True, synonyms=True, timeout_s=CALL_S), {}
            ),
        )
        detail = TopicDetail(
            name=name,
            read_ms=self.clock.wall_ms(),
            starts={tp.partition: offset.offset for tp, offset in starts.items()},
            ends={tp.partition: offset.offset for tp, offset in ends.items()},
            settings=settings.get(resource, {}),
            problems=tuple(dict.fromkeys(problems)),
        )
        self._details[name] = detail
        while len(self._details) > DETAILS_MAX:
            self._details.popitem(last=False)
        return detail
