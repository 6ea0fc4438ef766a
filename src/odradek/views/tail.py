"""Follows a topic into a store. Runs on an event loop; reading records and writing rows happen on another thread.

It begins where the store ends, if the topic still continues it (`continuity.py`), else at the beginning with an empty store.
While it reads, the log may show that it does not: an offset that is missing, a position that went back. Then it begins again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Final

from odradek.client.consumer.completed_fetch import FetchedChunk
from odradek.client.network.errors import TimedOutError, explain
from odradek.model.errors import ErrorCode, ErrorValue, KafkaError, OdradekError
from odradek.model.ids import ZERO_UUID
from odradek.runtime.ports import Offload
from odradek.telemetry import events
from odradek.views.changelog import Changelog, LogEnds
from odradek.views.continuity import TopicExtent, reason_to_rebuild, tombstones_may_be_gone
from odradek.views.freshness import Freshness, PartitionFreshness, ViewStatus
from odradek.views.key_formats import KeyFormat
from odradek.views.rows import changes_of
from odradek.views.store import AppliedPosition, ViewState, ViewStore

_log = events.get("views")

LOOK_EVERY_S: Final = 1.0
"""The seconds between requests for the ends of the logs."""
STAMP_EVERY_MS: Final = 300_000
"""The milliseconds after which an idle view writes again that it is complete."""
PAUSE_MS_MIN: Final = 60_000
"""A view that follows is not late before that, however soon tombstones go: it would never get to the end."""
_RETRY_S: Final = 1.0
_LOOK_TIMEOUT_S: Final = 5.0


class _DiscontinuityError(OdradekError):
    """The topic does not continue the rows: they must be read again."""


@dataclass(frozen=True, slots=True)
class _End:
    offset: int
    at_ms: int


class Tail:
    """The tail of one view. `status`, `freshness` and `check_answers` work on any thread; the rest is for the loop."""

    def __init__(
        self,
        changelog: Changelog,
        store: ViewStore,
        keys: KeyFormat,
        offload: Offload,
        *,
        with_timestamps: bool = False,
    ) -> None:
        """`with_timestamps`: stored values begin with the timestamps of their records."""
        self._with_timestamps: Final = with_timestamps
        self._row_format: Final = f"{keys.name} with timestamps" if with_timestamps else keys.name
        """The format of the rows in the store's state, so that rows of another kind are not taken for these."""
        self._changelog: Final = changelog
        self._store: Final = store
        self._keys: Final = keys
        self._offload: Final = offload
        self._clock: Final = changelog.clock
        self.status = ViewStatus.RESTORING
        self.rebuild_count = 0
        """The number of times that rows were dropped. An answer counts only if this was the same before and after it."""
        self._state = ViewState(topic=changelog.topic, key_format=self._row_format)
        self._looked: dict[int, _End] = {}
        self._targets: dict[int, _End] = {}
        """Ends that are still to be reached: once one is, the rows show its moment, or a later one."""
        self._restore_ends: dict[int, int] = {}
        """The offsets that must be reached before the rows show one moment."""
        self._tombstone_retention_ms: int | None = None
        self._stamped_at_ms = 0
        self._skipped_count = 0
        self._problem: str | None = None
        self._look_problem: str | None = None
        self._failure: ErrorValue[Exception] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    # -- beginning

    async def begin(self) -> None:
        """Find out where to go on. Raises what makes that impossible."""
        await self._seek(None)

    async def run(self) -> None:
        """Follow until cancelled, or until something fails for good: `check_answers` raises that from then on."""
        looking = asyncio.get_running_loop().create_task(
            self._guarded(self._keep_looking()), name="odradek-view-look"
        )
        try:
            await self._guarded(self._keep_following())
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _guarded(self, work: Coroutine[object, None, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - the root of a task: callers must learn of it
            self._fail(error)

    async def _keep_following(self) -> None:
        reason: str | None = None
        has_position = True
        while True:
            try:
                if not has_position:
                    await self._seek(reason)
                    has_position, reason = True, None
                await self._follow()
            except _DiscontinuityError as error:
                has_position, reason = False, str(error)
            except KafkaError as error:
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    has_position, reason = False, explain(error)
                    continue
                if not (error.retriable or isinstance(error, TimedOutError)):
                    raise
                self._problem = explain(error)
                await asyncio.sleep(_RETRY_S)

    async def _seek(self, reason: str | None) -> None:
        """Go on where the store ends, or begin again: because of `reason`, or of what the topic looks like."""
        changelog, now_ms = self._changelog, self._clock.wall_ms()
        partitions = await changelog.partitions()
        log = await changelog.log_ends(partitions)
        self._tombstone_retention_ms = await changelog.tombstone_retention_ms()
        stored = self._store.state()
        epochs = {} if stored is None else _epochs(stored, log)
        look = TopicExtent(
            topic_id=changelog.topic_id(),
            key_format=self._row_format,
            starts=log.starts,
            epoch_ends=await changelog.epoch_ends(epochs),
            tombstone_retention_ms=self._tombstone_retention_ms,
        )
        if stored is not None and reason is None:
            reason = reason_to_rebuild(stored, look, now_ms)
        at_start = {
            partition: AppliedPosition(offset=start, complete_at_ms=now_ms)
            for partition, start in log.starts.items()
        }
        if stored is None or reason is not None:
            if stored is not None:
                _log.warning("view_rebuilt", topic=changelog.topic, reason=reason)
            await self._clear(
                ViewState(
                    topic=changelog.topic,
                    topic_id=look.topic_id,
                    key_format=look.key_format,
                    positions=at_start,
                )
            )
        else:
            self._state = replace(stored, positions={**at_start, **stored.positions})
        self._restore_ends = {} if self._state.is_complete else dict(log.ends)
        self._targets.clear()
        self._note_ends(log.ends, now_ms)
        await self._note_completeness()
        changelog.read_from(
            {
                partition: (position.offset, position.leader_epoch)
                for partition, position in self._state.positions.items()
            }
        )

    async def _clear(self, state: ViewState) -> None:
        self.status = ViewStatus.RESTORING
        self.rebuild_count += 1
        await self._offload.run(self._store.clear, state)
        self._state = state

    # -- following

    async def _follow(self) -> None:
        while True:
            chunk = await self._changelog.next_chunk(LOOK_EVERY_S)
            self._check_same_topic()
            if chunk is not None:
                await self._apply(chunk)
            else:
                await self._move()
                await self._add_partitions()
                await self._stamp()
            error = self._changelog.topic_error()
            self._problem = None if error is None else f"topic {self._changelog.topic}: {error.meaning}"
            self._wake_waiters()

    def _check_same_topic(self) -> None:
        """The image knows a topic's new id before anything is fetched under it."""
        topic_id = self._changelog.topic_id()
        if topic_id not in (ZERO_UUID, self._state.topic_id):
            raise _DiscontinuityError("the topic was deleted, and made again")

    async def _apply(self, chunk: FetchedChunk) -> None:
        partition = chunk.topic_partition.partition
        position = self._state.positions[partition]
        self._check_continues(partition, position, chunk.position)
        await self._offload.run(self._write, chunk, partition, position)
        self._changelog.note({partition: self._state.positions[partition].offset})
        await self._note_completeness()

    def _write(self, chunk: FetchedChunk, partition: int, position: AppliedPosition) -> None:
        """Writes a chunk's rows and the new position. Called on the other thread."""
        columns = self._changelog.columns_of(chunk)
        now_ms = self._clock.wall_ms()
        rows: Mapping[bytes, bytes | None] = {}
        position = replace(position, offset=chunk.position)
        if columns is not None and columns.row_count:
            changes = changes_of(columns, self._keys, with_timestamps=self._with_timestamps)
            rows = changes.rows
            position = replace(
                position,
                leader_epoch=chunk.taken_epoch,
                record_timestamp_ms=changes.last_timestamp_ms,
                applied_at_ms=now_ms,
            )
            if changes.skipped:
                self._skipped_count += len(changes.skipped)
                _log.warning(
                    "view_skipped_keys",
                    partition=chunk.topic_partition,
                    count=len(changes.skipped),
                    first_offset=changes.skipped[0],
                    key_format=self._keys.name,
                )
        position = self._completed(partition, position)
        state = replace(self._state, positions={**self._state.positions, partition: position})
        self._store.apply(rows, state)
        self._state = state

    async def _move(self) -> None:
        """Positions may have moved past markers, and past what was aborted or compacted away."""
        reached = self._changelog.positions()
        positions, moved = {}, {}
        for partition, position in self._state.positions.items():
            offset = reached.get(partition, position.offset)
            if offset != position.offset:
                self._check_continues(partition, position, offset)
                moved[partition] = offset
            positions[partition] = self._completed(partition, replace(position, offset=offset))
        state = replace(self._state, positions=positions)
        if moved:
            await self._offload.run(self._store.apply, {}, state)
        self._state = state
        if moved:
            self._changelog.note(moved)
            await self._note_completeness()

    def _check_continues(self, partition: int, position: AppliedPosition, offset: int) -> None:
        if offset < position.offset:
            raise _DiscontinuityError(
                f"the log of partition {partition} was cut at {offset}, below {position.offset}, which had been applied"
            )
        retention_ms = self._tombstone_retention_ms
        if retention_ms is not None:
            retention_ms = max(retention_ms, PAUSE_MS_MIN)
        late = tombstones_may_be_gone(position.complete_at_ms, retention_ms, self._clock.wall_ms())
        if late is not None:
            raise _DiscontinuityError(late)

    async def _add_partitions(self) -> None:
        known = self._changelog.known_partitions()
        if known <= len(self._state.positions):
            return
        new = [partition for partition in range(known) if partition not in self._state.positions]
        starts = (await self._changelog.log_ends(new)).starts
        now_ms = self._clock.wall_ms()
        more = {
            partition: AppliedPosition(offset=start, complete_at_ms=now_ms)
            for partition, start in starts.items()
        }
        self._state = replace(self._state, positions={**self._state.positions, **more})
        self._changelog.read_also(starts)

    async def _stamp(self) -> None:
        """Rows that were complete a moment ago must not look old after a restart."""
        now_ms = self._clock.wall_ms()
        if now_ms - self._stamped_at_ms < STAMP_EVERY_MS:
            return
        if self._stamped_at_ms:
            await self._offload.run(self._store.apply, {}, self._state)
            await self._offload.run(self._store.flush)
        self._stamped_at_ms = now_ms

    # -- how far

    async def _keep_looking(self) -> None:
        while True:
            try:
                await asyncio.sleep(LOOK_EVERY_S)
                ends = await self._changelog.ends(self._state.positions, _LOOK_TIMEOUT_S)
                self._note_ends(ends, self._clock.wall_ms())
                self._look_problem = None
            except KafkaError as error:
                self._look_problem = explain(error)

    def _note_ends(self, ends: Mapping[int, int], at_ms: int) -> None:
        """Notes the ends of the logs. Only the following task changes the state: it may be writing just now."""
        for partition, offset in ends.items():
            self._looked[partition] = _End(offset, at_ms)
            self._targets.setdefault(partition, _End(offset, at_ms))

    def _completed(self, partition: int, position: AppliedPosition) -> AppliedPosition:
        target = self._targets.get(partition)
        if target is None or position.offset < target.offset:
            return position
        self._targets.pop(partition, None)
        return replace(position, complete_at_ms=max(position.complete_at_ms, target.at_ms))

    async def _note_completeness(self) -> None:
        for partition, end in list(self._restore_ends.items()):
            if self._state.positions[partition].offset >= end:
                del self._restore_ends[partition]
        if self._restore_ends:
            return
        if not self._state.is_complete:
            state = replace(self._state, is_complete=True)
            await self._offload.run(self._store.apply, {}, state)
            self._state = state
        self.status = ViewStatus.LIVE
        self._wake_waiters()

    async def wait_until(self, offsets: Mapping[int, int] | None, timeout_s: float | None) -> None:
        """Waits until every record below these offsets is applied; None: every one that can be read now. Raises TimedOutError
        if it takes longer."""
        wanted = offsets
        try:
            async with asyncio.timeout(timeout_s):
                if wanted is None:
                    wanted = await self._changelog.ends(self._state.positions, timeout_s)
                while self._behind(wanted):
                    self._raise_failure()
                    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiters.append(waiter)
                    await waiter
                self._raise_failure()
        except TimeoutError:
            behind, problem = self._behind(wanted or {}), self._problem or self._look_problem
            raise TimedOutError(
                f"the view of {self._changelog.topic} did not get there within {timeout_s:g} s:"
                f" {behind or 'no end is known'}",
                None if problem is None else OdradekError(problem),
            ) from None

    def _behind(self, wanted: Mapping[int, int]) -> str:
        """Describes a partition that lags; empty when none does, and the rows show one moment."""
        for partition, offset in wanted.items():
            position = self._state.positions.get(partition)
            if position is None or position.offset < offset:
                at = "not known yet" if position is None else f"at {position.offset}"
                return f"partition {partition} is {at}, and should be at {offset}"
        return "" if self.status is not ViewStatus.RESTORING else "it is being restored"

    # -- for callers

    def check_answers(self) -> int:
        """Raise what keeps the view from answering; else `rebuild_count`, to be compared after the answer."""
        self._raise_failure()
        if self.status is ViewStatus.RESTORING:
            positions = self._state.positions
            done = sum(position.offset for position in positions.values())
            ends = sum(end.offset for end in self._looked.values())
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"the view of {self._changelog.topic} is being restored ({done} of {ends} offsets): ask again later,"
                " or wait_until('now')",
            )
        return self.rebuild_count

    def freshness(self) -> Freshness:
        """Returns the current freshness."""
        state, looked = self._state, self._looked
        return Freshness(
            topic=self._changelog.topic,
            status=self.status,
            partitions=tuple(
                _partition_freshness(partition, state.positions[partition], looked.get(partition))
                for partition in sorted(state.positions)
            ),
            skipped_count=self._skipped_count,
            problem=self._problem or self._look_problem,
        )

    def close(self, error: Exception) -> None:
        """Ends all waiting with an error."""
        self.status = ViewStatus.CLOSED
        self._failure = self._failure or ErrorValue.of(error)
        self._wake_waiters()

    def _fail(self, error: Exception) -> None:
        if isinstance(error, OdradekError):
            _log.error("view_failed", topic=self._changelog.topic, reason=explain(error))
        else:
            _log.exception("view_broke_down", topic=self._changelog.topic)
        self._problem = explain(error)
        self._failure = ErrorValue.of(error)
        self.status = ViewStatus.FAILED
        self._wake_waiters()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure.exception()

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _partition_freshness(partition: int, position: AppliedPosition, end: _End | None) -> PartitionFreshness:
    return PartitionFreshness(
        partition=partition,
        applied_offset=position.offset,
        end_offset=None if end is None else end.offset,
        record_timestamp_ms=_known(position.record_timestamp_ms),
        applied_at_ms=_known(position.applied_at_ms),
        looked_at_ms=None if end is None else end.at_ms,
    )


def _epochs(stored: ViewState, log: LogEnds) -> dict[int, int]:
    """Returns the leader epochs to ask for."""
    return {
        partition: position.leader_epoch
        for partition, position in stored.positions.items()
        if position.leader_epoch >= 0 and partition in log.starts
    }


def _known(time_ms: int) -> int | None:
    return None if time_ms < 0 else time_ms
