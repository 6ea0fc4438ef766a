"""The replicas of this broker, open, or offline with the reason; requests find them here."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Final
from uuid import UUID

from odradek.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.config.definition import LONG_MAX
from odradek.model.errors import ErrorCode, ErrorContent, KafkaError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.replication.partition import Partition
from odradek.storage.files.damage import LostRecordsError
from odradek.telemetry import events

_log = events.get("broker")
_PASSES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
"""Errors after which a log that could not be opened may be opened later."""

ReplicaId = tuple[UUID, int]
"""A topic's id and the number of a partition."""


class ReplicaRegistry:
    """The table of this broker's replicas, by name and by topic id: open, or offline with the reason. Used on the event loop
    only. `image` is the newest that is being applied."""

    def __init__(self, me: BrokerId) -> None:
        self.me: Final = me
        self.image: ClusterImage | None = None
        self.has_roles = False
        """Roles count from the first image on that knows of this life of the broker."""
        self.partitions: Final[dict[TopicPartition, Partition]] = {}
        self._by_id: dict[ReplicaId, Partition] = {}
        self._offline: dict[TopicPartition, tuple[UUID, ErrorContent]] = {}
        self._unopened: dict[TopicPartition, tuple[UUID, bool]] = {}
        """Replicas that wait for disk space, or for a free file descriptor, to be opened, and whether they are new."""
        self._lost: dict[TopicPartition, UUID] = {}
        """Offline replicas whose records are lost on this broker."""
        self.timed: Final[dict[Partition, None]] = {}
        """Partitions with a `flush.ms`: only these need regular checks of their age."""
        self.on_offline_changed: Callable[[], None] = _ignore
        """Called when a replica cannot be used any more, or can again."""

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self.partitions.values()))

    # -- finding

    def leader(self, topic: str, index: int) -> Partition:
        """Returns the partition that this broker leads; raises as `replica` does, and NOT_LEADER_OR_FOLLOWER where it only
        follows."""
        partition = self.replica(topic, index)
        partition.check_leads()
        return partition

    def leader_by_id(self, topic_id: UUID, index: int) -> Partition:
        """Returns or raises what `leader` does; raises UNKNOWN_TOPIC_ID when no topic has the id."""
        partition = self.replica_by_id(topic_id, index)
        partition.check_leads()
        return partition

    def replica(self, topic: str, index: int) -> Partition:
        """Returns the partition, led or followed. UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER where it is not open
        here, or KAFKA_STORAGE_ERROR while it is offline."""
        # A plain tuple equals the name, and costs a quarter of it.
        partition: Partition | None = self.partitions.get((topic, index))  # type: ignore[call-overload]
        if partition is None:
            raise self._why_not(TopicPartition(topic, index))
        return partition

    def replica_by_id(self, topic_id: UUID, index: int) -> Partition:
        """Returns or raises what `replica` does; raises UNKNOWN_TOPIC_ID when no topic has the id."""
        partition = self._by_id.get((topic_id, index))
        return partition if partition is not None else self.replica(self._name_of(topic_id), index)

    def _name_of(self, topic_id: UUID) -> str:
        topic = self.topic(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        return topic.name

    def _why_not(self, name: TopicPartition) -> KafkaError:
        if (offline := self._offline.get(name)) is not None:
            return offline[1].error()
        topic = self.image.topics.get(name.topic) if self.image is not None else None
        if topic is None or not 0 <= name.partition < len(topic.partitions):
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"this broker has no partition {name.partition} of topic {name.topic!r}",
            )
        if self.me in topic.partitions[name.partition].replicas:
            message = f"this broker has not opened its replica of {name} yet: try again"
        else:
            message = f"others have replicas of {name}; this broker has none"
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)

    def topic(self, topic_id: UUID) -> TopicImage | None:
        return self.image.topics_by_id.get(topic_id) if self.image is not None else None

    def assigned(self, topic_id: UUID, index: int) -> PartitionImage | None:
        """Returns the partition in the newest image, if it assigns a replica to this broker."""
        topic = self.topic(topic_id)
        if topic is None or index >= len(topic.partitions):
            return None
        state = topic.partitions[index]
        return state if self.me in state.replicas else None

    def placed(self, name: TopicPartition) -> TopicImage | None:
        """Returns the partition's topic in the newest image, if it assigns a replica of the partition to this
        broker."""
        topic = self.image.topics.get(name.topic) if self.image is not None else None
        if topic is None or self.assigned(topic.topic_id, name.partition) is None:
            return None
        return topic

    def is_offline(self, name: TopicPartition) -> bool:
        return name in self._offline

    def away_id(self, name: TopicPartition) -> UUID | None:
        """Returns the id of the topic whose replica, of that name, cannot be used."""
        away = self._offline.get(name)
        return None if away is None else away[0]

    @property
    def offline(self) -> frozenset[ReplicaId]:
        """Returns the replicas that cannot be used. One that is being moved soon can."""
        return frozenset(
            (topic_id, name.partition)
            for name, (topic_id, reason) in self._offline.items()
            if reason.code is ErrorCode.KAFKA_STORAGE_ERROR
        )

    @property
    def offline_reasons(self) -> dict[TopicPartition, str]:
        """Returns for each replica that cannot be used the reason."""
        return {name: reason.message for name, (_, reason) in self._offline.items()}

    @property
    def unopened(self) -> list[TopicPartition]:
        """Returns the replicas that may be opened later."""
        return list(self._unopened)

    def waits_to_be_opened(self, name: TopicPartition) -> bool | None:
        """Returns whether an `unopened` replica is new; None for all others."""
        return self._unopened[name][1] if name in self._unopened else None

    @property
    def lost(self) -> frozenset[ReplicaId]:
        """Replicas that are offline because records are lost; this broker can lead them only if the loss is accepted."""
        return frozenset((topic_id, name.partition) for name, topic_id in self._lost.items())

    def is_lost(self, name: TopicPartition, topic_id: UUID) -> bool:
        return self._lost.get(name) == topic_id

    def open_by_id(self, topic_id: UUID, index: int) -> Partition | None:
        return self._by_id.get((topic_id, index))

    def is_settled(self, name: TopicPartition, topic: TopicImage) -> bool:
        """Open, or known to be offline."""
        is_open = self.open_by_id(topic.topic_id, name.partition) is not None
        return is_open or self.away_id(name) == topic.topic_id

    # -- coming and going

    def add(self, partition: Partition) -> None:
        was_offline = self._offline.pop(partition.name, None) is not None
        self._unopened.pop(partition.name, None)
        self._lost.pop(partition.name, None)
        self.partitions[partition.name] = partition
        self._by_id[partition.topic_id, partition.name.partition] = partition
        self.note_flush_time(partition)
        if was_offline:
            self.on_offline_changed()

    def remove(self, partition: Partition) -> None:
        del self.partitions[partition.name]
        self._by_id.pop((partition.topic_id, partition.name.partition), None)
        self.timed.pop(partition, None)

    def note_flush_time(self, partition: Partition) -> None:
        if partition.config.flush_ms < LONG_MAX:
            self.timed[partition] = None
        else:
            self.timed.pop(partition, None)

    def is_away(self, name: TopicPartition, topic_id: UUID, reason: KafkaError) -> None:
        """Notes that the replica cannot be used until it is added again."""
        self._offline[name] = topic_id, ErrorContent.of(reason)
        self.on_offline_changed()

    def _is_back(self, name: TopicPartition) -> None:
        if self._offline.pop(name, None) is not None:
            self.on_offline_changed()

    def not_opened(
        self, name: TopicPartition, topic_id: UUID, error: KafkaError, *, is_new: bool = False
    ) -> None:
        """Does what `is_away` does; if the reason may be temporary, adds the replica to `unopened`."""
        if name not in self._offline:
            _log.error("partition_offline", partition=name, reason=error.message)
        if isinstance(error, LostRecordsError):
            self._lost[name] = topic_id
        else:
            self._lost.pop(name, None)
        self.is_away(name, topic_id, error)
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _PASSES:
            self._unopened[name] = topic_id, is_new
        else:
            self._unopened.pop(name, None)

    def forget(self, name: TopicPartition) -> None:
        """Forgets a replica that is no longer wanted, and so not offline either."""
        self._unopened.pop(name, None)
        self._lost.pop(name, None)
        self._is_back(name)


def _ignore() -> None:
    """Does nothing: the default callback."""
