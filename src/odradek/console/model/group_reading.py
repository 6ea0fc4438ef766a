"""Reads groups: figures of many for the snapshot, and all of one for its page. Everything here runs on the background loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from odradek.client import LATEST
from odradek.client.admin.group_descriptions import SHARE, GroupDescription
from odradek.client.aio import AsyncAdmin
from odradek.client.consumer.unread_ages import furthest_behind
from odradek.client.network.errors import PartialFailureError, explain
from odradek.console.model.group_ages import GroupAges, LatePositions
from odradek.console.model.group_lag import GroupDetail, MemberLag, OpenTransactionFact, PartitionLag
from odradek.console.model.lag_history import LagHistory
from odradek.console.model.snapshot import UNKNOWN, GroupFigures, ModelSnapshot
from odradek.console.records.reading import ClusterReader
from odradek.model.errors import KafkaError, OdradekError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock
from odradek.runtime.shielded import outcome_of
from odradek.telemetry import events

_log = events.get("console")

CALL_S: Final = 10.0
DETAIL_AGE_MS: Final = 4_000
LISTED_AGE_MS: Final = 30_000
"""A group in a list may be that old where reading it again takes too long."""
DETAILS_MAX: Final = 100
DETAILS_AT_ONCE: Final = 8
"""The groups of one page that are read at the same time."""
MOMENTS_MAX: Final = 30
"""The number of earlier moments that are kept of each group that someone looks at."""
TRANSACTIONS_MAX: Final = 20
_COMMITTED: Final = 1
K = TypeVar("K")
V = TypeVar("V")


class _Moment(NamedTuple):
    """Positions and ends of a group's partitions at one time."""

    at_ms: int
    positions: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


class GroupReader:
    """Reads the groups that one principal may see."""

    def __init__(
        self,
        admin: AsyncAdmin,
        reader: ClusterReader,
        clock: Clock,
        snapshot: Callable[[], ModelSnapshot],
        history: LagHistory,
    ) -> None:
        self.history: Final = history
        self._admin = admin
        self._reader = reader
        self._clock = clock
        self._snapshot = snapshot
        self._details: OrderedDict[str, GroupDetail] = OrderedDict()
        self._moments: dict[str, deque[_Moment]] = {}
        self._under_way: dict[str, asyncio.Task[GroupDetail]] = {}
        self.ages: Final = GroupAges(reader, clock, self._late)
        self._begun_ms: OrderedDict[str, int] = OrderedDict()
        """The wall clock at the beginning of the last reading of each group; only the last `DETAILS_MAX` groups are kept."""

    async def figures(self, names: list[str]) -> dict[str, GroupFigures]:
        """Returns state, members and lag of these groups; a group that no longer exists is left out."""
        described = await readable(self._admin.describe_groups(names, timeout_s=CALL_S))
        figures = {}
        for name, group in described.items():
            lag = await self._lag_of(group)
            self.history.note(name, self._clock.wall_ms(), lag)
            figures[name] = GroupFigures(
                name, group.type, group.state, len(group.members), lag, group.coordinator
            )
        return figures

    async def _late(self, names: list[str]) -> dict[str, LatePositions]:
        """Returns the positions with the largest lags of each of these groups; a group without known ends is left out."""
        described = await readable(self._admin.describe_groups(names, timeout_s=CALL_S))
        positions = {name: await self._positions(group) for name, group in described.items()}
        ends = await self._ends(dict.fromkeys(self._living(tp for some in positions.values() for tp in some)))
        return {
            name: furthest_behind(some, ends)
            for name, some in positions.items()
            if not some or any(tp in ends for tp in some)
        }

    async def _lag_of(self, group: GroupDescription) -> int:
        positions = await self._positions(group)
        living = self._living(positions)
        if not living:
            return 0 if not positions else UNKNOWN
        ends = await self._ends(living)
        return sum(max(0, ends[tp] - positions[tp]) for tp in living if tp in ends)

    async def _positions(self, group: GroupDescription) -> dict[TopicPartition, int]:
        if group.type == SHARE:
            return dict(group.start_offsets)
        committed = await readable(self._admin.list_group_offsets(group.group_id, timeout_s=CALL_S))
        return {TopicPartition(*tp): known.offset for tp, known in committed.items() if known is not None}

    def _living(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        topics = self._snapshot().topics
        return [tp for tp in partitions if tp.topic in topics and tp.partition < topics[tp.topic].partitions]

    async def _ends(
        self, partitions: Iterable[TopicPartition], isolation: int = 0
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(partitions, LATEST)
        if not wanted:
            return {}
        ends = await readable(self._admin.list_offsets(wanted, isolation=isolation, timeout_s=CALL_S))
        return {tp: end.offset for tp, end in ends.items()}

    # -- one group

    async def detail(self, name: str) -> GroupDetail:
        """Returns all about a group, at most a few seconds old; concurrent callers share one reading.

        KafkaError with GROUP_ID_NOT_FOUND or GROUP_AUTHORIZATION_FAILED.
        """
        known = self._details.get(name)
        if known is not None and self._clock.wall_ms() - known.read_ms < DETAIL_AGE_MS:
            return known
        task = self._under_way.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._read_detail(name))
            self._under_way[name] = task
            self._note_begin(name)
            task.add_done_callback(lambda _: self._under_way.pop(name, None))
        return await outcome_of(task)

    def _note_begin(self, name: str) -> None:
        self._begun_ms[name] = self._clock.wall_ms()
        self._begun_ms.move_to_end(name)
        while len(self._begun_ms) > DETAILS_MAX:
            self._begun_ms.popitem(last=False)

    async def details(self, names: Iterable[str], wait_s: float) -> dict[str, GroupDetail]:
        """Returns all about several groups: those that are read within `wait_s`, and those that were read not long before.
        Groups that are not there or not to be seen are left out.

        The groups whose last reading began first are read first. So a caller that comes again is shown the others, however
        slow some groups are.
        """
        slots = asyncio.Semaphore(DETAILS_AT_ONCE)
        read: dict[str, GroupDetail] = {}
        recent: dict[str, GroupDetail] = {}

        async def attempt(name: str) -> None:
            async with slots:
                try:
                    read[name] = await self.detail(name)
                except OdradekError as error:
                    recent.pop(name, None)
                    _log.debug("console_part_unreadable", reason=explain(error))

        wanted = sorted(dict.fromkeys(names), key=lambda name: self._begun_ms.get(name, UNKNOWN))
        recent.update((name, known) for name in wanted if (known := self._recent(name)) is not None)
        with suppress(TimeoutError):  # a reading that has begun continues, for the next caller
            async with asyncio.timeout(wait_s):
                await asyncio.gather(*map(attempt, wanted))
        return recent | read

    def _recent(self, name: str) -> GroupDetail | None:
        known = self._details.get(name)
        is_recent = known is not None and self._clock.wall_ms() - known.read_ms < LISTED_AGE_MS
        return known if is_recent else None

    def forget(self, name: str) -> None:
        """Has the group read again by the next caller: something was changed."""
        self._details.pop(name, None)
        self._moments.pop(name, None)

    async def close(self) -> None:
        """Ends the readings that are under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.ages.close()

    async def _read_detail(self, name: str) -> GroupDetail:
        problems: list[str] = []
        group = (await self._admin.describe_groups([name], timeout_s=CALL_S))[name]
        positions = await _attempt(self._positions(group), {}, problems)
        owners = {tp: member.member_id for member in group.members for tp in member.assignment}
        living = self._living(sorted(positions.keys() | owners.keys()))
        ends, stable_ends = await asyncio.gather(
            _attempt(self._ends(living), {}, problems),
            _attempt(self._ends(living, _COMMITTED), {}, problems),
        )
        now = _Moment(self._clock.wall_ms(), positions, ends)
        late = [tp for tp in living if 0 <= positions.get(tp, UNKNOWN) < ends.get(tp, UNKNOWN)]
        held = [tp for tp in late if 0 <= stable_ends.get(tp, UNKNOWN) <= positions[tp]]
        ages, transactions = await asyncio.gather(
            _attempt(self._ages(late, now), {}, problems), _attempt(self._transactions(held), {}, problems)
        )
        before = self._earlier(name, now)
        rows = [
            PartitionLag(
                partition=tp,
                position=positions.get(tp, UNKNOWN),
                end=ends.get(tp, UNKNOWN),
                stable_end=stable_ends.get(tp, UNKNOWN),
                member_id=owners.get(tp, ""),
                waits_ms=ages.get(
                    tp, 0 if positions.get(tp, UNKNOWN) >= ends.get(tp, UNKNOWN) >= 0 else UNKNOWN
                ),
                transaction=transactions.get(tp),
                **_movement(before, now, tp),
            )
            for tp in living
        ]
        detail = GroupDetail(
            group_id=name,
            type=group.type,
            state=group.state,
            assignor=group.assignor,
            coordinator=group.coordinator,
            read_ms=now.at_ms,
            members=tuple(
                MemberLag(member.member_id, member.client_id, member.client_host, tuple(member.assignment))
                for member in group.members
            ),
            partitions=tuple(rows),
            problems=tuple(dict.fromkeys(problems)),
        )
        self.history.note(name, now.at_ms, detail.lag)
        self._keep(detail)
        return detail

    def _earlier(self, name: str, now: _Moment) -> _Moment | None:
        """Notes a moment, and returns the oldest one that is kept."""
        moments = self._moments.setdefault(name, deque(maxlen=MOMENTS_MAX))
        earlier = moments[0] if moments else None
        moments.append(now)
        return earlier

    def _keep(self, detail: GroupDetail) -> None:
        self._details[detail.group_id] = detail
        self._details.move_to_end(detail.group_id)
        while len(self._details) > DETAILS_MAX:
            oldest, _ = self._details.popitem(last=False)
            self._moments.pop(oldest, None)

    async def _ages(self, late: Iterable[TopicPartition], now: _Moment) -> dict[TopicPartition, int]:
        """Returns the age of the first unread record, for the partitions with the largest lags."""
        positions = {tp: now.positions[tp] for tp in late}
        return await self._reader.unread_ages_ms(furthest_behind(positions, now.ends))

    async def _transactions(self, held: list[TopicPartition]) -> dict[TopicPartition, OpenTransactionFact]:
        """Returns the oldest open transaction of each of these partitions, of the first ones."""
        if not held:
            return {}
        some = held[:TRANSACTIONS_MAX]
        producers = await readable(self._admin.describe_producers(some, timeout_s=CALL_S))
        oldest = {}
        for tp, listed in producers.items():
            opened = [producer for producer in listed if producer.transaction_start_offset is not None]
            if opened:
                oldest[tp] = min(opened, key=lambda producer: producer.transaction_start_offset or 0)
        ids = sorted({producer.producer_id for producer in oldest.values()})
        if not ids:
            return {}
        names = await readable_list(self._admin.list_transactions(producer_ids=ids, timeout_s=CALL_S))
        by_id = {listing.producer_id: str(listing.transactional_id) for listing in names}
        return {
            tp: OpenTransactionFact(
                by_id.get(producer.producer_id, ""), producer.producer_id, producer.last_timestamp_ms
            )
            for tp, producer in oldest.items()
        }


def _movement(before: _Moment | None, now: _Moment, tp: TopicPartition) -> dict[str, int]:
    """Returns what was read and written since the earlier moment. A position that went back was reset: nothing is known."""
    if before is None or tp not in before.positions or tp not in before.ends or tp not in now.ends:
        return {}
    read = now.positions.get(tp, UNKNOWN) - before.positions[tp]
    written = now.ends[tp] - before.ends[tp]
    if read < 0 or written < 0:
        return {}
    return {"span_ms": now.at_ms - before.at_ms, "read": read, "written": written}


async def _attempt(call: Awaitable[V], otherwise: V, problems: list[str]) -> V:
    try:
        return await call
    except OdradekError as error:
        problems.append(explain(error))
        return otherwise


async def readable(call: Awaitable[Mapping[K, V]]) -> Mapping[K, V]:
    """Returns what a call about several things may read: a topic that does not exist, or that this user may not see, is left
    out."""
    try:
        return await call
    except PartialFailureError as error:
        return error.results
    except KafkaError as error:
        if error.retriable:
            raise
        _log.debug("console_part_unreadable", reason=explain(error))
        return {}


async def readable_list(call: Awaitable[list[V]]) -> list[V]:
    """Returns a list that this user may read; an empty one if the user may not."""
    try:
        return await call
    except KafkaError as error:
        if error.retriable:
            raise
        _log.debug("console_part_unreadable", reason=explain(error))
        return []
