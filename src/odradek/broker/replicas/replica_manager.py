"""The replicas of this broker: it opens, reconfigures, retires and removes them as the cluster's image changes.

Of every partition in the image that names this broker as a replica there is one here, and of no other. One partition's trouble
stays its own: a log that cannot be opened, or whose directory failed, is offline, answers KAFKA_STORAGE_ERROR, and leaves the
others alone. A partition offline because the disk was full comes back by itself.

Where to find what: `replica_registry.py` has them, `roles.py` says who leads, `opening.py` opens and deletes,
`maintenance.py` has what is done from time to time, `replica_health.py` what the controller must know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from odradek.broker.cluster.loss_evidence import ALL_THERE, DiskFindings
from odradek.broker.replicas.maintenance import ReplicaMaintenance
from odradek.broker.replicas.opening import LogOpenRequest, LogRemoval, ReplicaOpening
from odradek.broker.replicas.partition_lanes import PartitionLanes, PendingSteps
from odradek.broker.replicas.replica_health import ReplicaHealth
from odradek.broker.replicas.replica_registry import ReplicaRegistry
from odradek.broker.replicas.roles import PartitionFetchers, ReplicaRoles
from odradek.broker.replicas.topic_configs import TopicConfigs
from odradek.cluster.image import INTERNAL_TOPICS, ClusterImage, PartitionImage, TopicImage
from odradek.config.broker import BrokerConfig
from odradek.config.definition import LONG_MAX
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.replication.flusher import Flusher
from odradek.replication.partition import Partition, ReplicationContext
from odradek.replication.throttle import ReplicationThrottle
from odradek.runtime.ports import Runtime
from odradek.security.buckets import Window
from odradek.storage.directories.disk_condition import SlowDiskLimits
from odradek.storage.directories.log_dir_move import FolderCopy
from odradek.storage.directories.log_manager import LogManager, MissingLogAction
from odradek.storage.files.damage import DamagedBatchError
from odradek.telemetry import events

_log = events.get("broker")
_TURN: Final = 256
"""The number of partitions after which other tasks get the loop."""
_AT_ONCE: Final = 8
_SHARED_AT_ONCE: Final = 64
"""More than `_AT_ONCE`: lanes that make or delete logs share their syncs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryState:
    """One data directory, for DescribeLogDirs; -1 bytes when its space cannot be read."""

    path: str
    offline: bool
    partitions: tuple[Partition, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1
    condition: str = ""
    """`full`, `slow`, or empty."""


class ReplicaManager:
    """Opens, reconfigures and closes this broker's replicas as the cluster's image changes. Used on the event loop only.
    `member` is given where the broker may be one of several."""

    def __init__(
        self,
        runtime: Runtime,
        directories: LogManager,
        *,
        me: BrokerId,
        on_all_failed: Callable[[], None],
        member: ReplicationContext | None = None,
    ) -> None:
        self._runtime = runtime
        self.directories = directories
        self._on_all_failed = on_all_failed
        self.flusher = self._new_flusher(runtime)
        self._registry = ReplicaRegistry(me)
        self._partitions = self._registry.partitions
        self._roles = ReplicaRoles(me, runtime.clock)
        self._opening = ReplicaOpening(
            directories,
            self._registry,
            self._roles,
            self.flusher,
            member,
            config_of=self._config_of,
            assume=self._assume,
        )
        self._lanes = PartitionLanes(
            at_once=_AT_ONCE, shared_at_once=_SHARED_AT_ONCE, on_failed=self._step_failed
        )
        self.health: Final = ReplicaHealth(self._registry, directories, self._lanes)
        """The state of this broker's replicas and directories, for the controller."""
        self.maintenance: Final = ReplicaMaintenance(
            runtime, directories, self._registry, self._roles, lambda: self._config
        )
        self._between_logs: dict[Partition, str | None] = {}
        """Partitions that end a move and cannot be used meanwhile, with the directories that they leave."""
        self._queued: dict[TopicPartition, None] = {}
        """Lanes with a step that did not begin, and that will look at the newest image."""
        self._topic_configs: Final = TopicConfigs()
        self._applied: dict[UUID, TopicImage] = {}
        self._decided: Mapping[str, TopicImage] = {}
        """The topics of the last image that was decided on to its end: those that are the same in the next one are skipped."""
        self._config: BrokerConfig | None = None
        self.leader_throttle: Final = ReplicationThrottle(me, self._leader_rate, self._throttle_window)
        """The throttle of what other brokers copy from this one."""
        self._deciding = asyncio.Lock()
        """Images are applied one after another. This does not wait for any log."""
        self.partitions: Mapping[TopicPartition, Partition] = self._partitions
        """The open partitions, led and followed, now and later: to be read only."""
        self.leader = self._registry.leader
        self.leader_by_id = self._registry.leader_by_id
        self.replica = self._registry.replica
        self.replica_by_id = self._registry.replica_by_id
        self.is_offline = self._registry.is_offline
        directories.on_failure(self._directory_failed)
        directories.on_damaged(self._met_damage)
        directories.disks.on_changed = self._disk_changed

    def _new_flusher(self, runtime: Runtime) -> Flusher:
        return Flusher(
            runtime.offload,
            self._flush_failed,
            syncs=runtime.file_syncs,
            now=runtime.clock.monotonic,
            on_synced=self._flush_ended,
        )

    def announce(self, *, on_led: Callable[[Partition], None], on_lost: Callable[[Partition], None]) -> None:
        """Sets the callbacks for when this broker begins to lead a partition, and can append to it, and when it stops leading:
        others do, or under another epoch, or it was deleted or is offline. Each is called once for each leadership."""
        self._roles.on_led, self._roles.on_lost = on_led, on_lost

    def report_to(self, on_offline_changed: Callable[[], None]) -> None:
        """Sets the callback for possible changes of `health`."""
        self._registry.on_offline_changed = on_offline_changed

    def expect_following(self, make: Callable[[], PartitionFetchers]) -> None:
        """Sets the function that makes the fetchers; it is called when this broker follows a partition for the first time."""
        self._roles.make_following = make

    def _leader_rate(self) -> int:
        return (
            LONG_MAX if self._config is None else self._config.replication.leader_replication_throttled_rate
        )

    def _throttle_window(self) -> Window:
        if self._config is None:
            return Window()
        return Window(
            sample_count=self._config.replication.replication_quota_window_num,
            sample_seconds=self._config.replication.replication_quota_window_size_seconds,
        )

    def check_writable_by_clients(self, partition: Partition) -> None:
        if partition.name.topic in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{partition.name.topic} is internal: only brokers write to it",
            )

    @property
    def newest_image(self) -> ClusterImage | None:
        """The one that is being applied: what this broker leads already is in it, though it is not shown yet."""
        return self._registry.image

    def directory_states(self) -> list[DirectoryState]:
        states = []
        for directory in self.directories.all():
            if directory.offline is not None:
                states.append(DirectoryState(path=directory.path, offline=True))
                continue
            total_bytes, usable_bytes = directory.space()
            described = [
                partition
                for partition in (*self._registry, *self._between_logs)
                if self.shown_directory_of(partition) == directory.path
            ]
            states.append(
                DirectoryState(
                    path=directory.path,
                    offline=False,
                    partitions=tuple(described),
                    total_bytes=total_bytes,
                    usable_bytes=usable_bytes,
                    condition=directory.condition.name,
                )
            )
        return states

    def shown_directory_of(self, partition: Partition) -> str | None:
        """Returns the directory of a replica. A moving replica is in the old directory until it is in the new
        one, so every reader sees it in one of them."""
        if partition in self._between_logs:
            return self._between_logs[partition]
        return self.directories.log_directory_of(partition.name)

    # -- following the cluster

    async def load(
        self, image: ClusterImage, config: BrokerConfig, findings: DiskFindings = ALL_THERE
    ) -> None:
        """Open every replica that the image has for this broker.

        They get no roles: the image may be of a former life, whose leadership ended with it, as did what was not durable.
        What `findings` say of the disks is on the disks when this returns.
        """
        began = self._runtime.clock.monotonic()
        _share_descriptors(self.directories, self._runtime, config)
        self._opening.findings = findings
        async with self._deciding:
            await self._decide(image, config, PendingSteps())
        await self._lanes.drain()
        self._opening.are_new = True
        await self.directories.note_evidence()
        if self._partitions and not all(directory.was_clean for directory in self.directories.all()):
            seconds = round(self._runtime.clock.monotonic() - began, 3)
            _log.info("logs_recovered", count=len(self._partitions), seconds=seconds)

    async def apply(
        self, before: ClusterImage, after: ClusterImage, config: BrokerConfig
    ) -> asyncio.Future[None] | None:
        """Give the replicas that are open the roles of the next image, and begin to open and delete the others.

        Returns a future that ends when that is done, as far as it is this image's; None when it is done. The
        next image does not wait for it. A partition that is busy with an earlier image's change applies the
        newest image afterwards.
        """
        pending = PendingSteps()
        async with self._deciding:
            first, self._registry.has_roles = not self._registry.has_roles, True
            await self._decide(after, config, pending, first=first)
            if first:
                self._set_strays_aside(after, pending)
        ended = pending.ended()
        if ended is not None:
            ended.add_done_callback(lambda _: self._registry.on_offline_changed())
        return ended

    def _set_strays_aside(self, image: ClusterImage, pending: PendingSteps) -> None:
        """Logs without a replica on this broker, according to a controller in office: their topics were
        deleted, or their replicas moved away, while this broker or one of its directories was down."""
        known = [
            TopicPartition(topic.name, index)
            for topic in image.topics.values()
            for index, state in enumerate(topic.partitions)
            if self._registry.me in state.replicas
        ]
        for name in self.directories.strays(known):
            if not self._lanes.is_busy(name):  # it is being deleted
                self._lanes.put(name, partial(self._set_stray_aside, name), pending=pending)

    async def _set_stray_aside(self, name: TopicPartition) -> None:
        if self._registry.placed(name) is not None:
            return  # opening it tells what it is
        try:
            await self.directories.set_stray_aside(
                name, lambda topic_id, index: self._registry.assigned(topic_id, index) is not None
            )
        except KafkaError as error:
            _log.warning("strays_not_set_aside", reason=error.message)

    async def _decide(
        self, image: ClusterImage, config: BrokerConfig, pending: PendingSteps, *, first: bool = False
    ) -> None:
        """Applies roles to open partitions at once; puts partitions that open or close on the lanes."""
        self._registry.image, self._config = image, config
        self._roles.brokers_changed(image)
        changes = 0
        for topic_name, topic in image.topics.items():
            if self._decided.get(topic_name) is topic and not first:
                continue
            topic_id = topic.topic_id
            old = self._applied.get(topic_id)
            if old is topic and not first:
                continue
            self._applied[topic_id] = topic
            if old is not None and old.configs != topic.configs:
                self._reconfigure_topic(topic)
            for index in range(len(topic.partitions)):
                if (
                    first
                    or old is None
                    or index >= len(old.partitions)
                    or old.partitions[index] != topic.partitions[index]
                ):
                    self._change(TopicPartition(topic.name, index), pending)
                    changes += 1
                    if changes % _TURN == 0:
                        await asyncio.sleep(0)
        self._decided = image.topics
        self._forget_gone(image, pending)
        self.directories.remove_deleted_soon()
        if self._registry.has_roles:
            for name in self.directories.lack_notes:
                if self._opening.owes_note(name) and not self._lanes.is_busy(name):
                    self._put(name, pending)

    def _forget_gone(self, image: ClusterImage, pending: PendingSteps) -> None:
        """Every topic of the image is among the applied ones by now: any others were deleted."""
        if len(self._applied) == len(image.topics_by_id):
            return
        for topic_id in [gone_id for gone_id in self._applied if gone_id not in image.topics_by_id]:
            self._topic_gone(self._applied.pop(topic_id), pending)

    def _topic_gone(self, topic: TopicImage, pending: PendingSteps) -> None:
        for index, state in enumerate(topic.partitions):
            if self._registry.me in state.replicas:
                self._change(TopicPartition(topic.name, index), pending)

    def _change(self, name: TopicPartition, pending: PendingSteps) -> None:
        """Handles a partition that is new, or that has changed."""
        self._opening.doom(name)
        partition = self._partitions.get(name)
        if partition is not None:
            state = self._registry.assigned(partition.topic_id, name.partition)
            if state is not None and self._registry.has_roles:
                self._assume(partition, state)
        elif self._registry.away_id(name) is not None or self._lanes.is_busy(name):
            self._opening.retry_offline(name)
        if self._lanes.is_busy(name):
            self._put(name, None)  # a waiter for this image does not wait for an earlier one's work
        elif self._opening.next_step(name) is not None:
            self._put(name, pending)
        else:
            self._opening.cancel_retry(name)

    def _put(self, name: TopicPartition, pending: PendingSteps | None) -> None:
        if name in self._queued:
            return
        self._queued[name] = None
        step = self._opening.next_step(name)
        shares = isinstance(step, LogRemoval) or (isinstance(step, LogOpenRequest) and step.is_new)
        self._lanes.put(name, partial(self._settle, name), shares=shares, pending=pending)

    async def _settle(self, name: TopicPartition) -> None:
        self._queued.pop(name, None)
        await self._opening.settle(name)

    def _step_failed(self, name: TopicPartition, error: Exception) -> None:
        topic = self._registry.placed(name)
        if topic is not None and not self._registry.is_settled(name, topic):
            reason = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} could not be opened: {error}")
            self._registry.not_opened(name, topic.topic_id, reason)

    def _config_of(self, topic: TopicImage) -> LogConfig:
        """Returns a topic's settings, as they are now."""
        assert self._config is not None, "there is no image without settings"
        return self._topic_configs.of(topic.configs, self._config)

    def _assume(self, partition: Partition, state: PartitionImage) -> None:
        try:
            self._roles.assume(partition, state)
        except Exception as error:  # noqa: BLE001 - what stops one partition must not leave the others without a role
            _log.exception("role_not_taken", partition=partition.name, leader=state.leader)
            self._take_offline(partition, f"it could not take its role: {error}")

    async def reconfigure(self, image: ClusterImage, config: BrokerConfig) -> None:
        """Applies changed settings of the broker, which topics inherit."""
        self._config = config
        self.directories.producer_expiration_ms = config.storage.producer_id_expiration_ms
        _share_descriptors(self.directories, self._runtime, config)
        for topic in image.topics.values():
            self._reconfigure_topic(topic)

    def _reconfigure_topic(self, topic: TopicImage) -> None:
        log_config = self._config_of(topic)
        for index in range(len(topic.partitions)):
            partition = self._registry.open_by_id(topic.topic_id, index)
            if partition is not None:
                partition.reconfigure(log_config)
                self._registry.note_flush_time(partition)

    # -- recovery of single replicas

    async def try_to_recover(self) -> None:
        """Give back partitions whose disk was full and is not any more."""
        for log in self.directories.failed_logs():
            await self.directories.repair(log)
        pending = PendingSteps()
        for name in self._registry.unopened:
            if not self._lanes.is_busy(name):
                self._opening.retry_offline(name, at_any_rate=True)
                self._put(name, pending)
        ended = pending.ended()
        if ended is not None:
            await ended

    def delete_records(self, partition: Partition, offset: int) -> None:
        partition.log.delete_records(offset)

    # -- moves between directories

    def begin_move(self, partition: Partition, path: str) -> FolderCopy | None:
        """Returns a copy to be filled, or None when the partition is at `path` already. KafkaError as in `LogManager`."""
        copy = self.directories.begin_move(partition.name, path)
        return None if self.directories.log_directory_of(partition.name) == path else copy

    async def finish_move(self, partition: Partition, copy: FolderCopy) -> None:
        """Continue the partition from its copy. For a moment its clients get a retriable error.

        Raises KafkaError when it cannot be done: the partition stays where it was if its disk works.
        """
        await self._lanes.run(partition.name, partial(self._finish_move, partition, copy))
        await self.directories.remove_deleted()

    async def _finish_move(self, partition: Partition, copy: FolderCopy) -> None:
        name, topic_id = partition.name, partition.topic_id
        if partition.retired is not None or self._partitions.get(name) is not partition:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is gone")
        moving = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is being moved: try again")
        partition.seal(moving)
        self._registry.remove(partition)
        self._roles.drop(partition)
        self._registry.is_away(name, topic_id, moving)
        self._between_logs[partition] = self.directories.log_directory_of(name)
        try:
            log = await self.directories.move_log(name, copy, topic_id, partition.config)
        except KafkaError as error:
            partition.retire(error)
            await self._stay(partition, error)
            raise
        finally:
            del self._between_logs[partition]
        self._opening.succeed(partition, log)
        partition.release()

    async def _stay(self, partition: Partition, reason: KafkaError) -> None:
        try:
            log = await self.directories.open_log(
                partition.name, partition.topic_id, partition.config, if_absent=MissingLogAction.LOST
            )
        except KafkaError:
            self._registry.is_away(partition.name, partition.topic_id, reason)
        else:
            self._opening.succeed(partition, log)

    async def check_disks(self) -> None:
        """Find out which disks are full, or slow, or not any more."""
        if self._config is not None:
            storage = self._config.storage
            self.directories.disks.limits = SlowDiskLimits(
                sync_s=storage.odradek_log_dir_slow_sync_ms / 1000,
                after_s=storage.odradek_log_dir_slow_after_ms / 1000,
            )
        await self.directories.disks.check(self.flusher.under_way)

    # -- failures

    def _disk_changed(self) -> None:
        self._registry.on_offline_changed()

    def _flush_ended(self, partition: Partition, seconds: float) -> None:
        if partition.retired is None:
            self.directories.disks.flushed(partition.name, seconds)

    def _flush_failed(self, partition: Partition, error: OSError) -> None:
        if (
            partition.retired is not None
        ):  # deleted meanwhile: nothing waits for it, and its name may be another's
            _log.warning("flush_of_retired_failed", partition=partition.name, error=error)
            return
        self.directories.fail(partition.log, error)

    def _directory_failed(self, path: str, error: OSError) -> None:
        """Takes all of a failed directory offline until a restart: its contents cannot be trusted any more."""
        _log.error("log_directory_offline", path=path, error=error)
        for partition in self._registry:
            if self.directories.log_directory_of(partition.name) == path:
                self._take_offline(partition, f"the log directory {path} failed: {error}")
        if self.directories.all_failed:
            self._on_all_failed()

    def _met_damage(self, name: TopicPartition, damage: DamagedBatchError) -> None:
        _log.error("replica_damaged", partition=name, reason=damage.message)
        self._registry.on_offline_changed()

    def _take_offline(self, partition: Partition, reason: str) -> None:
        error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.name}: {reason}")
        self._opening.retire(partition, error)
        self._registry.is_away(partition.name, partition.topic_id, error)

    async def close(self) -> None:
        """Make everything durable and mark the directories as cleanly closed. What is being opened, or deleted, comes to its
        end; nothing else is opened."""
        self._opening.is_closing = True
        await self._lanes.close()
        await self._roles.close()
        await self.flusher.drain()
        await self.directories.write_checkpoints(await self.maintenance.high_watermarks())
        closing = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")
        for partition in self._registry:
            partition.retire(closing)
            self._registry.remove(partition)
        await self.directories.close_logs()


def _share_descriptors(directories: LogManager, runtime: Runtime, config: BrokerConfig) -> None:
    """Gives logs the descriptors that connections leave: `max.connections` may not be the one of the broker's file."""
    directories.share_descriptors(runtime.descriptors.for_connections(config.network.max_connections))
