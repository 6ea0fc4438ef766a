"""The partitions of this broker: opened, reconfigured, retired and removed as the cluster image changes.

One partition's trouble stays its own: a log that cannot be opened, or whose directory failed, is offline, answers
KAFKA_STORAGE_ERROR, and leaves the others alone. A partition offline because the disk was full comes back by itself.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from odradek.cluster.image import INTERNAL_TOPICS, ClusterImage, TopicImage
from odradek.config.broker import BrokerConfig
from odradek.config.definition import LONG_MAX
from odradek.config.topic import topic_config
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.replication.flusher import Flusher
from odradek.replication.partition import Partition
from odradek.runtime.ports import Runtime
from odradek.storage.directories import LogDirectories
from odradek.storage.log import Log
from odradek.storage.relocation import FolderCopy
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.storage.cleaning.service import LogCleaner

_log = events.get("broker")
_PASSES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
"""Why a log could not be opened, and may be later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryState:
    """One data directory, for DescribeLogDirs; -1 bytes when its space cannot be read."""

    path: str
    offline: bool
    partitions: tuple[Partition, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1


class Replicas:
    """Used on the event loop only."""

    def __init__(
        self, runtime: Runtime, directories: LogDirectories, *, on_all_failed: Callable[[], None]
    ) -> None:
        self._runtime = runtime
        self._directories = directories
        self._on_all_failed = on_all_failed
        self._flusher = Flusher(runtime.offload, self._flush_failed)
        self._cleaner: LogCleaner | None = None
        """Made, and imported, for the first log that is compacted."""
        self._compacts = True
        self._partitions: dict[TopicPartition, Partition] = {}
        self._by_id: dict[tuple[UUID, int], Partition] = {}
        self._offline: dict[TopicPartition, KafkaError] = {}
        self._timed: dict[Partition, None] = {}
        """Those with a `flush.ms`: the clock must look at them, and at no others."""
        self._unopened: dict[TopicPartition, UUID] = {}
        """Those that wait for space, or for a free file descriptor, to be opened."""
        self._topics: Mapping[str, TopicImage] = {}
        self._topic_ids: Mapping[UUID, TopicImage] = {}
        self._config: BrokerConfig | None = None
        self.on_led: Callable[[Partition], None] = _ignore
        """Called when this broker begins to lead a partition, and can append to it."""
        self.on_lost: Callable[[Partition], None] = _ignore
        """Called when it leads it no longer: deleted, or offline."""
        self._changing = asyncio.Lock()
        """Logs are opened and deleted by one at a time."""
        directories.on_failure = self._directory_failed

    # -- finding

    def leader(self, topic: str, index: int) -> Partition:
        """The partition that this broker leads; raises as `replica` does, and NOT_LEADER_OR_FOLLOWER where it only follows."""
        partition = self.replica(topic, index)
        partition.check_leads()
        return partition

    def leader_by_id(self, topic_id: UUID, index: int) -> Partition:
        """Like `leader`; UNKNOWN_TOPIC_ID when no topic has the id."""
        partition = self.replica_by_id(topic_id, index)
        partition.check_leads()
        return partition

    def replica(self, topic: str, index: int) -> Partition:
        """The partition, led or followed. UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER where only others have replicas,
        or KAFKA_STORAGE_ERROR while it is offline."""
        name = TopicPartition(topic, index)
        partition = self._partitions.get(name)
        if partition is None:
            raise self._offline.get(name) or self._not_here(name)
        return partition

    def replica_by_id(self, topic_id: UUID, index: int) -> Partition:
        """Like `replica`; UNKNOWN_TOPIC_ID when no topic has the id."""
        partition = self._by_id.get((topic_id, index))
        if partition is not None:
            return partition
        topic = self._topic_ids.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        return self.replica(topic.name, index)

    def _not_here(self, name: TopicPartition) -> KafkaError:
        topic = self._topics.get(name.topic)
        if topic is not None and 0 <= name.partition < len(topic.partitions):
            return KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker has no replica of {name}: others have"
            )
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"this broker has no partition {name.partition} of topic {name.topic!r}",
        )

    def check_writable_by_clients(self, partition: Partition) -> None:
        if partition.name.topic in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.name.topic} is written by brokers alone"
            )

    def is_offline(self, name: TopicPartition) -> bool:
        return name in self._offline

    def directory_states(self) -> list[DirectoryState]:
        states = []
        for directory in self._directories.all():
            if directory.offline is not None:
                states.append(DirectoryState(path=directory.path, offline=True))
                continue
            total_bytes, usable_bytes = directory.space()
            held = [
                one
                for one in self._partitions.values()
                if self._directories.home_of(one.name) == directory.path
            ]
            states.append(
                DirectoryState(
                    path=directory.path,
                    offline=False,
                    partitions=tuple(held),
                    total_bytes=total_bytes,
                    usable_bytes=usable_bytes,
                )
            )
        return states

    # -- following the cluster

    async def load(self, image: ClusterImage, config: BrokerConfig) -> None:
        """Open every partition of the image; logs of topics that the image does not know are left alone."""
        self._topics, self._topic_ids, self._config = image.topics, image.topics_by_id, config
        for topic in image.topics.values():
            await self._open_topic(topic, config, range(len(topic.partitions)), are_new=False)
        known = {
            TopicPartition(topic.name, index)
            for topic in image.topics.values()
            for index in range(len(topic.partitions))
        }
        for stray in self._directories.strays(known):
            _log.warning("stray_log_left_alone", path=stray)

    async def apply(self, before: ClusterImage, after: ClusterImage, config: BrokerConfig) -> None:
        """Do what it takes to get from one image to the next."""
        async with self._changing:
            self._topics, self._topic_ids, self._config = after.topics, after.topics_by_id, config
            await self._follow(before, after, config)

    async def _follow(self, before: ClusterImage, after: ClusterImage, config: BrokerConfig) -> None:
        for topic_id, topic in before.topics_by_id.items():
            if topic_id not in after.topics_by_id:
                await self._remove_topic(topic)
        for topic_id, topic in after.topics_by_id.items():
            old = before.topics_by_id.get(topic_id)
            if old is topic:
                continue
            present = len(old.partitions) if old is not None else 0
            await self._open_topic(topic, config, range(present, len(topic.partitions)), are_new=True)
            if old is not None and old.configs != topic.configs:
                self._reconfigure_topic(topic, config)

    async def reconfigure(self, image: ClusterImage, config: BrokerConfig) -> None:
        """The broker's settings changed, and with them what topics inherit."""
        self._config = config
        for topic in image.topics.values():
            self._reconfigure_topic(topic, config)

    async def _open_topic(
        self, topic: TopicImage, config: BrokerConfig, indexes: Iterable[int], *, are_new: bool
    ) -> None:
        log_config = topic_config(topic.configs, config)
        for index in indexes:
            name = TopicPartition(topic.name, index)
            try:
                log = await self._directories.open_log(name, topic.topic_id, log_config, is_new=are_new)
            except KafkaError as error:
                self._not_opened(name, topic, error)
                continue
            self._add(
                Partition(name, topic.topic_id, log, topic.partitions[index].leader_epoch, self._flusher)
            )

    def _not_opened(self, name: TopicPartition, topic: TopicImage, error: KafkaError) -> None:
        if name not in self._offline:
            _log.error("partition_offline", partition=name, reason=error.message)
        self._offline[name] = error
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _PASSES:
            self._unopened[name] = topic.topic_id
        else:
            self._unopened.pop(name, None)

    def _add(self, partition: Partition) -> None:
        partition.log.begin_epoch(partition.leader_epoch)
        self._offline.pop(partition.name, None)
        self._unopened.pop(partition.name, None)
        self._partitions[partition.name] = partition
        self._note_flush_time(partition)
        self._by_id[partition.topic_id, partition.name.partition] = partition
        self.on_led(partition)

    def _reconfigure_topic(self, topic: TopicImage, config: BrokerConfig) -> None:
        log_config = topic_config(topic.configs, config)
        for index in range(len(topic.partitions)):
            partition = self._partitions.get(TopicPartition(topic.name, index))
            if partition is not None:
                partition.reconfigure(log_config)
                self._note_flush_time(partition)

    def _note_flush_time(self, partition: Partition) -> None:
        if partition.config.flush_ms < LONG_MAX:
            self._timed[partition] = None
        else:
            self._timed.pop(partition, None)

    async def _remove_topic(self, topic: TopicImage) -> None:
        gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} was deleted")
        for index in range(len(topic.partitions)):
            name = TopicPartition(topic.name, index)
            partition = self._partitions.pop(name, None)
            self._by_id.pop((topic.topic_id, index), None)
            self._offline.pop(name, None)
            self._unopened.pop(name, None)
            if partition is not None:
                self._timed.pop(partition, None)
                self.on_lost(partition)
                partition.retire(gone)
            try:
                await self._directories.delete_log(name)
            except KafkaError as error:
                _log.error("partition_not_deleted", partition=name, reason=error.message)

    # -- the clockwork

    async def apply_retention(self) -> None:
        now_ms = self._runtime.clock.wall_ms()
        for partition in list(self._partitions.values()):
            if partition.retired is None:
                await self._retain(partition, now_ms)
            await asyncio.sleep(0)  # tens of thousands of partitions must not hold the loop
        await self._directories.remove_deleted()

    async def _retain(self, partition: Partition, now_ms: int) -> None:
        try:
            await self._directories.apply_retention(partition.log, now_ms, below=partition.high_watermark)
        except KafkaError as error:
            _log.warning("retention_failed", partition=partition.name, reason=error.message)

    async def compact(self) -> None:
        """Compact what needs it, until nothing does."""
        compacted = [one for one in self._partitions.values() if "compact" in one.config.cleanup_policy]
        if self._config is None or not compacted or not self._compacts:
            return
        if self._cleaner is None:
            from odradek.storage.cleaning.service import LogCleaner

            self._cleaner = LogCleaner(self._runtime, self._directories)
        await self._cleaner.run_round(compacted, self._config)

    def stop_compacting(self) -> None:
        """A round under way ends soon, and none begins any more."""
        self._compacts = False
        if self._cleaner is not None:
            self._cleaner.stop()

    async def write_checkpoints(self) -> None:
        await self._directories.write_checkpoints()

    async def try_to_recover(self) -> None:
        """Give back partitions whose disk was full and is not any more."""
        for log in self._directories.failed_logs():
            await self._directories.repair(log)
        for name, topic_id in list(self._unopened.items()):
            await self._open_again(name, topic_id)

    async def _open_again(self, name: TopicPartition, topic_id: UUID) -> None:
        async with self._changing:
            topic = self._topic_ids.get(topic_id)
            if topic is None or self._config is None or self._unopened.get(name) != topic_id:
                return  # it was deleted, or opened, meanwhile
            await self._open_topic(topic, self._config, [name.partition], are_new=True)

    async def flush_by_time(self) -> None:
        """Flush what `flush.ms` says has waited long enough."""
        for partition in self._timed:
            partition.flush_if_due()

    def delete_records(self, partition: Partition, offset: int) -> None:
        partition.log.delete_records(offset)

    # -- moves between directories

    def begin_move(self, partition: Partition, path: str) -> FolderCopy | None:
        """A copy to be filled, or None when the partition is at `path` already. KafkaError as in `LogDirectories`."""
        copy = self._directories.begin_move(partition.name, path)
        return None if self._directories.home_of(partition.name) == path else copy

    async def give_up_move(self, copy: FolderCopy) -> None:
        await self._directories.give_up_move(copy)

    async def finish_move(self, partition: Partition, copy: FolderCopy) -> None:
        """Let the partition go on from its copy. Its clients are sent away for a moment, with an error they try again on.

        KafkaError when it cannot be done: the partition goes on where it was if its disk allows it.
        """
        async with self._changing:
            if partition.retired is not None or self._partitions.get(partition.name) is not partition:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition.name} is gone")
            name, topic_id = partition.name, partition.topic_id
            moving = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is being moved: try again")
            partition.seal(moving)
            self._forget(partition)
            self._offline[name] = moving
            try:
                log = await self._directories.move_log(name, copy, topic_id, partition.config)
            except KafkaError as error:
                partition.retire(error)
                await self._stay(partition, error)
                raise
            self._succeed(partition, log)
        await self._directories.remove_deleted()

    async def _stay(self, partition: Partition, reason: KafkaError) -> None:
        try:
            log = await self._directories.open_log(partition.name, partition.topic_id, partition.config)
        except KafkaError:
            self._offline[partition.name] = reason
        else:
            self._succeed(partition, log)

    def _succeed(self, partition: Partition, log: Log) -> None:
        self._add(Partition(partition.name, partition.topic_id, log, partition.leader_epoch, self._flusher))
        partition.release()

    def _forget(self, partition: Partition) -> None:
        del self._partitions[partition.name]
        self._timed.pop(partition, None)
        self._by_id.pop((partition.topic_id, partition.name.partition), None)
        self.on_lost(partition)

    # -- failures

    def _flush_failed(self, partition: Partition, error: OSError) -> None:
        if (
            partition.retired is not None
        ):  # deleted meanwhile: nobody waits for it, and its name may be another's
            _log.warning("flush_of_retired_failed", partition=partition.name, error=error)
            return
        self._directories.fail(partition.log, error)

    def _directory_failed(self, path: str, error: OSError) -> None:
        """What is in the directory cannot be trusted any more: all of it goes offline, until a restart."""
        _log.error("log_directory_offline", path=path, error=error)
        for held in list(self._partitions.values()):
            if self._directories.home_of(held.name) == path:
                self._take_offline(held, f"the log directory {path} failed: {error}")
        if self._directories.all_failed:
            self._on_all_failed()

    def _take_offline(self, partition: Partition, reason: str) -> None:
        error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.name}: {reason}")
        self._offline[partition.name] = error
        self._forget(partition)
        partition.retire(error)

    async def close(self) -> None:
        """Make everything durable and mark the directories as cleanly closed."""
        await self._flusher.drain()
        closing = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")
        for partition in self._partitions.values():
            partition.retire(closing)
        self._partitions.clear()
        self._by_id.clear()
        await self._directories.close_logs()


def _ignore(_: Partition) -> None:
    """Nobody wants to know."""
