"""Families with a sample for each partition, and the totals that come from the same pass.

Names are those of Kafka's JMX beans as the JMX exporter's rules for Kafka spell them, and those of kafka_exporter. The leader
of a partition emits the latter; the controller does where there is no leader. So a sum over all brokers is right.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.broker.context import BrokerContext
from odradek.cluster.image import NO_LEADER, PartitionImage, TopicImage
from odradek.model.errors import KafkaError
from odradek.replication.partition import Partition
from odradek.telemetry.metrics import Family, gauge, labels


class PartitionFamilies:
    """Filled by `steps`, which yields between two partitions."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._me = broker.config.server.node_id
        replica = "kafka_server_replicamanager_"
        self.leaders = gauge(f"{replica}leadercount", "Partitions that this broker leads.")
        self.replicas = gauge(f"{replica}partitioncount", "Replicas that this broker has, led and followed.")
        self.under_replicated = gauge(
            f"{replica}underreplicatedpartitions", "Partitions led here that lack a replica in sync."
        )
        self.under_min = gauge(
            f"{replica}underminisrpartitioncount",
            "Partitions led here with fewer replicas in sync than min.insync.replicas.",
        )
        self.at_min = gauge(
            f"{replica}atminisrpartitioncount",
            "Partitions led here with as many replicas in sync as min.insync.replicas.",
        )
        self.reassigning = gauge(f"{replica}reassigningpartitions", "Partitions led here that are moved.")
        self.size = gauge("kafka_log_log_size", "Bytes of a replica's log on this broker.")
        self.start = gauge("kafka_log_log_logstartoffset", "First offset of a replica's log.")
        self.end = gauge("kafka_log_log_logendoffset", "Offset after the last record of a replica's log.")
        self.segments = gauge("kafka_log_log_numlogsegments", "Segments of a replica's log.")
        kafkas = "kafka_cluster_partition_"
        self.is_under = gauge(
            f"{kafkas}underreplicated", "1 if a partition led here lacks a replica in sync."
        )
        self.is_under_min = gauge(
            f"{kafkas}underminisr", "1 if fewer replicas are in sync than min.insync.replicas."
        )
        self.is_at_min = gauge(f"{kafkas}atminisr", "1 if as many are in sync as min.insync.replicas.")
        self.replicas_count = gauge(f"{kafkas}replicascount", "Replicas of a partition led here.")
        self.in_sync_count = gauge(
            f"{kafkas}insyncreplicascount", "Replicas in sync of a partition led here."
        )
        self.producers = gauge(f"{replica}produceridcount", "Producers that the logs here know.")
        self.max_lag = gauge(
            "kafka_server_replicafetchermanager_maxlag", "Largest lag of a replica that this broker follows."
        )
        self.lag = gauge(
            "kafka_server_fetcherlagmetrics_consumerlag",
            "Records that the leader shows and a replica followed here lacks.",
        )
        exported = "kafka_topic_partition_"
        self.current_offset = gauge(f"{exported}current_offset", "High watermark of a partition.")
        self.oldest_offset = gauge(f"{exported}oldest_offset", "First offset of a partition.")
        self.in_sync = gauge(f"{exported}in_sync_replica", "Replicas in sync of a partition.")
        self.leader = gauge(f"{exported}leader", "Id of the broker that leads a partition; -1: none.")
        self.is_preferred = gauge(
            f"{exported}leader_is_preferred", "1 if the first replica of a partition leads it."
        )
        self.replica_count = gauge(f"{exported}replicas", "Replicas of a partition.")
        self.exported_under = gauge(
            f"{exported}under_replicated_partition", "1 if a partition lacks a replica in sync."
        )
        self._totals = dict.fromkeys(
            ("replicas", "leaders", "under", "under_min", "at_min", "moved", "producers", "lag"), 0
        )

    def steps(self) -> Iterator[None]:
        """Reads every replica of this broker. A step takes microseconds."""
        totals = self._totals
        for partition in list(self._broker.replicas.partitions.values()):
            if partition.retired is None:
                totals["replicas"] += 1
                self._add(partition)
            yield
        for family, key in (
            (self.leaders, "leaders"),
            (self.replicas, "replicas"),
            (self.under_replicated, "under"),
            (self.under_min, "under_min"),
            (self.at_min, "at_min"),
            (self.reassigning, "moved"),
            (self.producers, "producers"),
        ):
            family.add(totals[key])
        self.max_lag.add(totals["lag"], labels(clientId="Replica"))

    def totals(self) -> list[Family]:
        return [
            self.leaders,
            self.replicas,
            self.under_replicated,
            self.under_min,
            self.at_min,
            self.reassigning,
            self.producers,
            self.max_lag,
        ]

    def of_partitions(self) -> list[Family]:
        return [
            self.is_under,
            self.is_under_min,
            self.is_at_min,
            self.lag,
            self.replicas_count,
            self.in_sync_count,
            self.exported_under,
            self.in_sync,
            self.leader,
            self.is_preferred,
            self.replica_count,
            self.current_offset,
            self.oldest_offset,
            self.size,
            self.start,
            self.end,
            self.segments,
        ]

    def _add(self, partition: Partition) -> None:
        name, log = partition.name, partition.log
        text = labels(topic=name.topic, partition=name.partition)
        self.size.add(log.size_bytes, text)
        self.start.add(log.start_offset, text)
        self.end.add(log.end_offset, text)
        self.segments.add(log.segment_count, text)
        self._totals["producers"] += len(log.producers)
        state = partition.state
        if state is None:
            return
        if not partition.is_leader:
            self._add_followed(partition, text)
            return
        self._add_led(partition, state, text)

    def _add_followed(self, partition: Partition, text: str) -> None:
        try:
            lag = partition.follower().lag
        except KafkaError:
            return  # its role, or the partition, ends at this moment
        self._totals["lag"] = max(self._totals["lag"], lag)
        self.lag.add(lag, text)

    def _add_led(self, partition: Partition, state: PartitionImage, text: str) -> None:
        totals = self._totals
        in_sync, wanted = len(state.isr), len(state.replicas) - len(state.adding)
        least = min(partition.config.min_insync_replicas, len(state.replicas))
        is_under = int(in_sync < wanted)
        totals["leaders"] += 1
        totals["under"] += is_under
        totals["under_min"] += in_sync < least
        totals["at_min"] += in_sync == least
        totals["moved"] += state.is_reassigned
        self.is_under.add(is_under, text)
        self.is_under_min.add(int(in_sync < least), text)
        self.is_at_min.add(int(in_sync == least), text)
        self.replicas_count.add(len(state.replicas), text)
        self.in_sync_count.add(in_sync, text)
        self.current_offset.add(int(partition.high_watermark), text)
        self.oldest_offset.add(int(partition.start_offset), text)
        self._add_state(state, text)

    def _add_state(self, state: PartitionImage, text: str) -> None:
        self.in_sync.add(len(state.isr), text)
        self.leader.add(int(state.leader), text)
        self.is_preferred.add(int(is_led_as_preferred(state)), text)
        self.replica_count.add(len(state.replicas), text)
        self.exported_under.add(int(len(state.isr) < len(state.replicas) - len(state.adding)), text)

    def add_leaderless(self, topic: TopicImage) -> None:
        """Adds partitions without a leader, which only the controller can report."""
        for index, state in enumerate(topic.partitions):
            if state.leader == NO_LEADER:
                self._add_state(state, labels(topic=topic.name, partition=index))


def is_led_as_preferred(state: PartitionImage) -> bool:
    """Returns whether the first replica leads, which is Kafka's preferred leader."""
    return bool(state.replicas) and state.leader == state.replicas[0]
