"""The health of this broker's replicas, for the controller: which cannot be used, and which lack records."""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.replicas.partition_lanes import PartitionLanes
from odradek.broker.replicas.replica_registry import ReplicaId, ReplicaRegistry
from odradek.cluster.availability import LogEnd
from odradek.cluster.image import NO_LEADER
from odradek.cluster.sync import BrokerReport
from odradek.model.ids import TopicPartition
from odradek.replication.partition import Partition
from odradek.storage.directories.log_manager import LogManager


class ReplicaHealth:
    """Reports the health of this broker's replicas. It reads them as they are now, and stores nothing."""

    def __init__(self, registry: ReplicaRegistry, directories: LogManager, lanes: PartitionLanes) -> None:
        self._registry = registry
        self._directories = directories
        self._lanes = lanes

    def report(self) -> BrokerReport:
        """Returns the whole report. The broker epoch is not known here."""
        return BrokerReport(
            broker_id=self._registry.me,
            broker_epoch=-1,
            offline=self.offline,
            damaged=self.damaged,
            lost=self.lost,
            lacking=self.lacking,
            uncertain=self.uncertain,
            opening=self.opening,
            full=self.full,
            slow=self.slow,
            has_space=self._directories.disks.any_with_space,
        )

    @property
    def offline(self) -> frozenset[ReplicaId]:
        """Replicas that should be here and cannot be used, for the controller to know."""
        return self._registry.offline

    @property
    def offline_reasons(self) -> dict[TopicPartition, str]:
        """Returns for each replica that cannot be used the reason, for people."""
        return self._registry.offline_reasons

    @property
    def damaged(self) -> frozenset[ReplicaId]:
        """Replicas whose committed records are missing or damaged, while the image counts on them; replicas
        that must be truncated, until they are, even if no broker counts on them: truncation takes another
        leader epoch; and replicas that may show deleted records, unless they follow by now: then their leader
        soon sends the log's start offset.
        """
        replica_ids = set[ReplicaId]()
        for name in self._directories.damaged:
            partition = self._registry.partitions.get(name)
            if partition is not None:
                state = self._registry.assigned(partition.topic_id, name.partition)
                counts = state is not None and self._registry.me in (*state.isr, *state.eligible)
                if counts or (state is not None and partition.log.damage_offset is not None):
                    replica_ids.add((partition.topic_id, name.partition))
        for name in self._directories.doubtful:
            partition = self._registry.partitions.get(name)
            if partition is not None and (partition.is_leader or not self._registry.has_roles):
                replica_ids.add((partition.topic_id, name.partition))
        return frozenset(replica_ids)

    @property
    def lost(self) -> frozenset[ReplicaId]:
        """Replicas that the image counts on, and that have not all that they had: they may lead only if that is accepted."""
        replica_ids = set(self._registry.lost)
        for name in self._directories.damaged:
            partition = self._registry.partitions.get(name)
            if partition is not None and partition.log.lacks_records and self._is_counted_on(partition):
                replica_ids.add((partition.topic_id, name.partition))
        return frozenset(replica_ids)

    @property
    def uncertain(self) -> dict[ReplicaId, LogEnd]:
        """Replicas that may lack something, and where their logs end, while the image counts on them or no broker leads."""
        log_ends = dict[ReplicaId, LogEnd]()
        for name in self._directories.damaged:
            partition = self._registry.partitions.get(name)
            if partition is None or not partition.log.is_uncertain:
                continue
            state = self._registry.assigned(partition.topic_id, name.partition)
            if state is not None and (state.leader == NO_LEADER or self._is_counted_on(partition)):
                end = LogEnd(leader_epoch=partition.log.latest_epoch, offset=partition.log.end_offset)
                log_ends[partition.topic_id, name.partition] = end
        return log_ends

    @property
    def lacking(self) -> frozenset[ReplicaId]:
        """Replicas that no one counts on, and that lack what they had: any other is better."""
        noted = [self._registry.partitions.get(name) for name in self._directories.lack_notes]
        return frozenset(
            (partition.topic_id, partition.name.partition)
            for partition in noted
            if partition is not None and not self._is_counted_on(partition)
        )

    def _is_counted_on(self, partition: Partition) -> bool:
        state = self._registry.assigned(partition.topic_id, partition.name.partition)
        return state is not None and self._registry.me in (*state.isr, *state.eligible)

    @property
    def full(self) -> frozenset[ReplicaId]:
        """Replicas on a disk that has no space."""
        disks = self._directories.disks
        return self._open_where(disks.is_full) if disks.any_full else frozenset()

    @property
    def slow(self) -> frozenset[ReplicaId]:
        """Replicas on a disk that answers slowly."""
        disks = self._directories.disks
        return self._open_where(disks.is_slow) if disks.any_slow else frozenset()

    def _open_where(self, condition: Callable[[TopicPartition], bool]) -> frozenset[ReplicaId]:
        return frozenset(
            (partition.topic_id, partition.name.partition)
            for partition in self._registry
            if condition(partition.name)
        )

    @property
    def opening(self) -> frozenset[ReplicaId]:
        """The replicas that the image assigns to this broker, and that are not open yet."""
        replica_ids = set[ReplicaId]()
        for name in self._lanes.busy:
            topic = self._registry.placed(name)
            if topic is not None and not self._registry.is_settled(name, topic):
                replica_ids.add((topic.topic_id, name.partition))
        return frozenset(replica_ids)
