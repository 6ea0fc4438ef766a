"""Share groups' state in partitions that this broker leads: a cache in memory, stored in `__share_group_state`.

A change takes effect at once and is written afterwards; the request that caused it is answered when it is
durable. When a write is refused, the state in memory may be ahead of the stored state: it is dropped, and
loaded again for the next request. It is also dropped with the leadership, and when the group's last member
here leaves: an administrator may change the group's offsets then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from odradek.broker.coordinators.runtime import CoordinatorRuntime
from odradek.broker.replicas.replica_manager import ReplicaManager
from odradek.broker.sessions.share_sessions import ShareSessionKey, ShareSessions
from odradek.broker.share.dead_letters import DeadLetterTopics
from odradek.broker.share.persister import SharePersister
from odradek.cluster.image import SHARE_GROUP_STATE
from odradek.groups.share.partition import (
    AcknowledgedRange,
    DeadRecord,
    ShareLimits,
    SharePartition,
    StateBatch,
)
from odradek.groups.share.settings import ShareSettings
from odradek.groups.share.state import UNKNOWN_OFFSET, ShareState, ShareStates, StateChange
from odradek.groups.share.state_formats import SharePartitionKey
from odradek.model.durations import by_duration_ms
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.replication.partition import Partition
from odradek.runtime.ports import Clock, Offload
from odradek.runtime.shielded import outcome_of, unheard
from odradek.runtime.turns import Turn, Turns
from odradek.shards import Shards, decided
from odradek.storage.files.at_hand import ReadProgress, read_off_loop
from odradek.telemetry import events

_log = events.caused_by_peers("groups")
Settings = Callable[[str], ShareSettings]


class LivePartition:
    """One partition for one group. All changes of `core` go through this class, so that they are stored."""

    def __init__(
        self,
        partition_key: SharePartitionKey,
        partition: Partition,
        core: SharePartition,
        leader_epoch: int,
        state_epoch: int,
        owner: SharePartitions,
    ) -> None:
        self.partition_key: Final = partition_key
        self.partition: Final = partition
        self.core: Final = core
        self.leader_epoch: Final = leader_epoch
        """The epoch of the leadership under which it was loaded. The next leadership loads again, as another broker would."""
        self._state_epoch = state_epoch
        self._stored_offset = core.start_offset
        self._owner = owner
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[Callable[[], None], None] = {}
        self.is_dropped = False

    @property
    def settings(self) -> ShareSettings:
        return self._owner.settings(self.partition_key.group_id)

    @property
    def is_over(self) -> bool:
        """Whether the leadership ended under which it was loaded."""
        return not self.partition.is_leader or self.partition.leader_epoch != self.leader_epoch

    def check_leads(self) -> None:
        """Raises NOT_LEADER_OR_FOLLOWER when the leadership is over, or the error that ended the partition."""
        self.partition.check_leads()
        if self.is_over:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.partition.name} was led elsewhere meanwhile"
            )

    # -- waiters for records that come back

    def watch(self, wake: Callable[[], None]) -> None:
        self._waiting[wake] = None

    def unwatch(self, wake: Callable[[], None]) -> None:
        self._waiting.pop(wake, None)

    def _wake(self) -> None:
        for wake in list(self._waiting):
            wake()

    # -- changes

    def acknowledge(self, member_id: str, ranges: Sequence[AcknowledgedRange]) -> asyncio.Future[None] | None:
        """Applies a member's acknowledgements. Raises INVALID_RECORD_STATE and INVALID_REQUEST at once; the returned future
        raises a refused write."""
        stored = self._keep(self.core.acknowledge(member_id, ranges, now_ms=self._owner.now_ms()))
        self._wake()
        return self._with_dead(stored)

    def release(self, member_id: str) -> asyncio.Future[None] | None:
        stored = self._keep(self.core.release(member_id))
        self._wake()
        return self._with_dead(stored)

    def archive(self, dead: Sequence[DeadRecord]) -> asyncio.Future[None] | None:
        """Archives records whose dead letters are written, or given up."""
        return self._keep(self.core.archive(dead))

    def _with_dead(self, stored: asyncio.Future[None] | None) -> asyncio.Future[None] | None:
        """Returns the write, and the dead letters of records that were given up with it, as one."""
        dead = self.core.drain_dead()
        return self._owner.bury(self, dead, stored) if dead else stored

    def acknowledge_gaps(self, member_id: str, ranges: Sequence[AcknowledgedRange]) -> None:
        """What the member has there is no record for anyone."""
        self._behind(self._keep(self.core.acknowledge(member_id, ranges, now_ms=self._owner.now_ms())))

    def follow_log_start(self) -> None:
        """Stops waiting for records that the log has deleted."""
        if self.partition.start_offset > self.core.start_offset:
            self._behind(self._keep(self.core.begin_at(self.partition.start_offset)))

    def locked(self) -> None:
        """Watches the time of records that were acquired."""
        if self._timer is None and not self.is_dropped:
            deadline_ms = self.core.next_deadline_ms()
            if deadline_ms is not None:
                seconds = max(deadline_ms - self._owner.now_ms(), 1) / 1000
                self._timer = asyncio.get_running_loop().call_later(seconds, self.expire)

    def expire(self) -> None:
        """Give back the records whose locks have ended; the timer does it."""
        self._timer = None
        batches = self.core.expire(self._owner.now_ms())
        if batches:
            _log.info(
                "share_locks_expired", group=self.partition_key.group_id, partition=str(self.partition.name)
            )
            self._behind(self._keep(batches))
        self._behind(self._with_dead(None))
        self._wake()
        self.locked()

    def _behind(self, stored: asyncio.Future[None] | None) -> None:
        if stored is not None:
            self._owner.behind(stored)

    def _keep(self, batches: Sequence[StateBatch]) -> asyncio.Future[None] | None:
        """Stores changes; returns None without changes. The outcome of the write is handled even if no caller waits for it."""
        start_offset = self.core.start_offset
        news = [batch for batch in batches if batch.last_offset >= start_offset]
        if not news and start_offset == self._stored_offset:
            return None
        self._stored_offset = start_offset
        change = StateChange(self._state_epoch, self.leader_epoch, start_offset, news)
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self.check_leads()
            self._owner.keeper.write(self.partition_key, change).add_done_callback(
                partial(self._written, stored)
            )
        except KafkaError as error:
            self._refuse(stored, error)
        return stored

    def _written(self, stored: asyncio.Future[None], written: asyncio.Future[None]) -> None:
        error = _GIVEN_UP if written.cancelled() else written.exception()
        if error is not None:
            self._refuse(stored, error)
        elif not stored.done():
            stored.set_result(None)

    def _refuse(self, stored: asyncio.Future[None], error: BaseException) -> None:
        self._owner.drop_if(self)
        if not stored.done():
            stored.set_exception(_refused(error) if isinstance(error, KafkaError) else error)
            stored.exception()  # the waiter gets it; no one has to

    def drop(self) -> None:
        self.is_dropped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()


class SharePartitions:
    """The service of share groups' partitions; used on the event loop only."""

    def __init__(
        self,
        coordinators: CoordinatorRuntime,
        replicas: ReplicaManager,
        shards: Shards[ShareStates],
        settings: Settings,
        clock: Clock,
        offload: Offload,
        dead_letters: DeadLetterTopics,
    ) -> None:
        self.sessions: Final = ShareSessions()
        self.settings: Final = settings
        self.keeper: Final = SharePersister(coordinators, shards, self._check_open)
        self._replicas = replicas
        self._shards = shards
        self._clock = clock
        self._offload = offload
        self._dead_letters = dead_letters
        self._burying: set[asyncio.Task[None]] = set()
        self._live: dict[SharePartitionKey, LivePartition] = {}
        self._keys_by_group: dict[str, dict[SharePartitionKey, None]] = {}
        """The keys of `_live`, by group."""
        self._loading: dict[SharePartitionKey, asyncio.Task[LivePartition]] = {}
        self._leaving: dict[ShareSessionKey, None] = {}
        """Members whose connection was lost, and who may have something yet."""
        self._releasing: asyncio.Task[None] | None = None
        self._closed = False

    def now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    # -- finding

    def loaded(self, partition_key: SharePartitionKey) -> LivePartition | None:
        """Returns the partition if it is loaded. UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
        KAFKA_STORAGE_ERROR, and NOT_LEADER_OR_FOLLOWER while the broker stops."""
        self._check_open()
        partition = self._replicas.leader_by_id(partition_key.topic_id, partition_key.partition)
        live = self._live.get(partition_key)
        if live is not None and (live.partition is not partition or live.is_over):
            self.drop(partition_key)
            return None
        return live

    def load(self, partition_key: SharePartitionKey) -> asyncio.Task[LivePartition]:
        """Loads a partition from its stored state; without one it starts by the group's `share.auto.offset.reset`. Wait for the
        task with `outcome_of`."""
        task = self._loading.get(partition_key)
        if task is None:
            task = self._loading[partition_key] = asyncio.get_running_loop().create_task(
                self._load(partition_key)
            )
            task.add_done_callback(lambda _: self._loading.pop(partition_key, None))
            task.add_done_callback(unheard)
        return task

    async def get(self, partition_key: SharePartitionKey) -> LivePartition:
        live = self.loaded(partition_key)
        return live if live is not None else await outcome_of(self.load(partition_key))

    async def _load(self, partition_key: SharePartitionKey) -> LivePartition:
        try:
            return await self._read(partition_key)
        except asyncio.CancelledError:
            if not self._closed:
                raise
            raise _GIVEN_UP from None  # a waiting request needs a response, and a cancelled one gets none

    async def _read(self, partition_key: SharePartitionKey) -> LivePartition:
        partition = self._replicas.leader_by_id(partition_key.topic_id, partition_key.partition)
        leader_epoch = partition.leader_epoch
        state = await self.keeper.read(partition_key, leader_epoch)
        if state is None or not _can_go_on(partition, state):
            settings, now_ms = self.settings(partition_key.group_id), self._clock.wall_ms()
            offset = await read_off_loop(self._offload, partial(reset_offset, partition, settings, now_ms))
            epoch = 0 if state is None else state.state_epoch + 1
            await self.keeper.initialize(partition_key, epoch, offset)
            state = await self.keeper.read(partition_key, leader_epoch)
            if state is None:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the group's state was deleted meanwhile")
        core = SharePartition(state.start_offset, self._limits(partition_key), state.batches)
        live = LivePartition(partition_key, partition, core, leader_epoch, state.state_epoch, self)
        live.check_leads()
        self._live[partition_key] = live
        self._keys_by_group.setdefault(partition_key.group_id, {})[partition_key] = None
        return live

    def _limits(self, partition_key: SharePartitionKey) -> Callable[[], ShareLimits]:
        return lambda: self.settings(partition_key.group_id).limits

    # -- what is kept

    async def begin_at(self, partition_key: SharePartitionKey, start_offset: int) -> None:
        """Lets the group read on from there, whatever it had acknowledged or acquired."""
        before = await self.keeper.summary(partition_key)
        await self.keeper.initialize(partition_key, before.state_epoch + 1, start_offset)
        self.drop(partition_key)

    async def forget(self, partition_key: SharePartitionKey) -> None:
        """The group has never read there."""
        await self.keeper.delete(partition_key)
        self.drop(partition_key)

    async def topics_deleted(self, topic_ids: frozenset[UUID]) -> None:
        """Deletes the state of deleted topics. It waits for no other broker: the caller may not know yet that one is dead."""
        for partition_key in [key for key in self._live if key.topic_id in topic_ids]:
            self.drop(partition_key)
        for _, shard in self._shards:
            try:
                is_done = False
                while not is_done:
                    is_done = decided(shard, partial(ShareStates.delete_topics, topic_ids=topic_ids))
                    await asyncio.sleep(0)
            except KafkaError as error:
                _log.info("state_of_deleted_topics_kept", topics=len(topic_ids), reason=error.message)

    async def prune(self) -> None:
        """Delete what no restart needs of `__share_group_state`."""
        for index, shard in self._shards:
            try:
                partition = self._replicas.leader(SHARE_GROUP_STATE, index)
                end_offset = partition.high_watermark
                needed = await shard.execute(ShareStates.needed_from)
                offset = end_offset if needed is None else min(needed, end_offset)
                if offset > partition.start_offset:
                    self._replicas.delete_records(partition, offset)
            except KafkaError as error:
                _log.info("share_state_not_pruned", partition=index, reason=error.message)

    def drop(self, partition_key: SharePartitionKey) -> None:
        live = self._live.pop(partition_key, None)
        if live is not None:
            group_keys = self._keys_by_group[partition_key.group_id]
            del group_keys[partition_key]
            if not group_keys:
                del self._keys_by_group[partition_key.group_id]
            live.drop()

    def drop_if(self, live: LivePartition) -> None:
        """Drops the partition, unless another has replaced it."""
        if self._live.get(live.partition_key) is live:
            self.drop(live.partition_key)

    def drop_unread(self, group_id: str) -> None:
        """Drops the group's partitions from memory if none of its members reads here any more: all state is stored."""
        if not self.sessions.any_of(group_id):
            for partition_key in list(self._keys_by_group.get(group_id, ())):
                self.drop(partition_key)

    def behind(self, stored: asyncio.Future[None]) -> None:
        """Lets a write go on without a waiter; logs a refusal."""
        stored.add_done_callback(_log_refusal)

    # -- dead letters

    def bury(
        self, live: LivePartition, dead: Sequence[DeadRecord], stored: asyncio.Future[None] | None
    ) -> asyncio.Task[None]:
        """Writes dead letters, then archives their records; returns the task, which waits for `stored`, too."""
        task = asyncio.get_running_loop().create_task(self._bury(live, dead, stored))
        self._burying.add(task)
        task.add_done_callback(self._burying.discard)
        task.add_done_callback(unheard)
        return task

    async def _bury(
        self, live: LivePartition, dead: Sequence[DeadRecord], stored: asyncio.Future[None] | None
    ) -> None:
        try:
            try:
                await self._dead_letters.write(
                    live.partition_key.group_id, live.partition, dead, live.settings
                )
            except OdradekError as error:
                _log.warning(
                    "dead_letters_not_written",
                    group=live.partition_key.group_id,
                    partition=str(live.partition.name),
                    records=len(dead),
                    first_offset=dead[0].offset,
                    topic=live.settings.dead_letter_topic,
                    reason=str(error),
                )
            archived = live.archive(dead)
            for write in (stored, archived):
                if write is not None:
                    await write
        except asyncio.CancelledError:
            if not self._closed:
                raise
            raise _GIVEN_UP from None  # a waiting request needs a response, and a cancelled one gets none

    # -- members

    def release(self, group_id: str, member_id: str) -> list[asyncio.Future[None]]:
        """Releases all records that the member has acquired."""
        self._leaving.pop(ShareSessionKey(group_id, member_id), None)
        live_partitions = [
            self._live[partition_key] for partition_key in self._keys_by_group.get(group_id, ())
        ]
        released = (live.release(member_id) for live in live_partitions)
        return [write for write in released if write is not None]

    def release_behind(self, keys: Iterable[ShareSessionKey], turns: Turns) -> None:
        """Releases members whose connection was lost, in steps: one connection may have thousands of members. Until it is done
        a member `is_leaving`, and must be released before it begins again."""
        self._leaving.update(dict.fromkeys(keys))
        if self._leaving and self._releasing is None and not self._closed:
            self._releasing = asyncio.get_running_loop().create_task(self._release_leaving(turns.begin()))

    def is_leaving(self, key: ShareSessionKey) -> bool:
        return key in self._leaving

    async def _release_leaving(self, turn: Turn) -> None:
        try:
            while self._leaving:
                key = next(iter(self._leaving))
                for partition_key in list(self._keys_by_group.get(key.group_id, ())):
                    await turn.step()
                    live = self._live.get(partition_key)
                    if key not in self._leaving:
                        break  # it is back, and was released
                    if live is not None and (stored := live.release(key.member_id)) is not None:
                        self.behind(stored)
                self._leaving.pop(key, None)
                self.drop_unread(key.group_id)
        finally:
            self._releasing = None

    def _check_open(self) -> None:
        if self._closed:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker is stopping")

    def close(self) -> None:
        """Waiters for records are answered: they are not to hold up the end of the broker."""
        self._closed = True
        for partition_key in list(self._live):
            self.drop(partition_key)
        for task in self._loading.values():
            task.cancel()
        for burying in self._burying:
            burying.cancel()
        if self._releasing is not None:
            self._releasing.cancel()


def _log_refusal(stored: asyncio.Future[None]) -> None:
    error = None if stored.cancelled() else stored.exception()
    if error is not None:
        _log.warning("share_state_not_kept", reason=str(error))


_GIVEN_UP: Final = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")


def _can_go_on(partition: Partition, state: ShareState) -> bool:
    """Tells whether the group has begun to read, and the log still reaches its position."""
    return state.start_offset != UNKNOWN_OFFSET and state.start_offset <= partition.log.end_offset


def _refused(error: KafkaError) -> KafkaError:
    """Returns an error that readers of the partition understand: try again, nothing is acquired any more."""
    fenced = error.code in (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH)
    return error if fenced else KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)


def reset_offset(
    partition: Partition, settings: ShareSettings, now_wall_ms: int, beside: ReadProgress | None = None
) -> int:
    """Returns the offset at which a group starts in a partition that it has not read (`share.auto.offset.reset`; the latest by
    default). See `Log.offset_for_timestamp` for the read progress."""
    end_offset = partition.last_stable_offset if settings.committed_only else partition.high_watermark
    if settings.offset_reset == "earliest":
        return partition.start_offset
    duration_ms = by_duration_ms(settings.offset_reset)
    if duration_ms is None:
        return end_offset
    timestamped_offset = partition.log.offset_for_timestamp(
        now_wall_ms - duration_ms, end_offset=end_offset, beside=beside
    )
    return end_offset if timestamped_offset is None else timestamped_offset.offset
