"""Families with a sample for each partition, and the totals that come from the same pass.

Names follow Kafka's JMX beans, as the JMX exporter's rules for Kafka spell them, and kafka_exporter. The
leader of a partition emits the latter; the controller does where there is no leader. So a sum over all
brokers is right.

A broker may have 10,000 partitions. So the loop makes one row for each, and the families read their columns of the rows later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from odradek.broker.requests.context import BrokerContext
from odradek.cluster.image import NO_LEADER, PartitionImage
from odradek.model.errors import KafkaError
from odradek.replication.partition import Partition
from odradek.telemetry.metrics import Family, MetricKind, Row, gauge, labels

_REPLICA: Final = "kafka_server_replicamanager_"
_CLUSTER: Final = "kafka_cluster_partition_"
_LATE_MS: Final = 300_000
"""Kafka's time that a coordinator may take to end a transaction that is out of time (LATE_TRANSACTION_BUFFER_MS)."""
_EXPORTED: Final = "kafka_topic_partition_"
_OF_STATES: Final = (
    (f"{_EXPORTED}under_replicated_partition", "1 if a partition lacks a replica in sync.", 1),
    (f"{_EXPORTED}in_sync_replica", "Replicas in sync of a partition.", 2),
    (f"{_EXPORTED}leader", "Id of the broker that leads a partition; -1: none.", 3),
    (f"{_EXPORTED}leader_is_preferred", "1 if the first replica of a partition leads it.", 4),
    (f"{_EXPORTED}replicas", "Replicas of a partition.", 5),
)
"""Families of partitions with and without a leader, and their position in a row."""
_OF_LED_FIRST: Final = (
    (f"{_CLUSTER}underreplicated", "1 if a partition led here lacks a replica in sync.", 1),
    (f"{_CLUSTER}underminisr", "1 if fewer replicas are in sync than min.insync.replicas.", 6),
    (f"{_CLUSTER}atminisr", "1 if as many are in sync as min.insync.replicas.", 7),
)
_OF_LED: Final = (
    (f"{_CLUSTER}replicascount", "Replicas of a partition led here.", 5),
    (f"{_CLUSTER}insyncreplicascount", "Replicas in sync of a partition led here.", 2),
)
_OF_LED_LAST: Final = (
    (f"{_EXPORTED}current_offset", "High watermark of a partition.", 8),
    (f"{_EXPORTED}oldest_offset", "First offset of a partition.", 9),
)
_OF_LOGS: Final = (
    ("kafka_log_log_size", "Bytes of a replica's log on this broker.", 1),
    ("kafka_log_log_logstartoffset", "First offset of a replica's log.", 2),
    ("kafka_log_log_logendoffset", "Offset after the last record of a replica's log.", 3),
    ("kafka_log_log_numlogsegments", "Segments of a replica's log.", 4),
)
_LAG: Final = (
    "kafka_server_fetcherlagmetrics_consumerlag",
    "Records that the leader shows and a replica followed here lacks.",
    1,
)
_TOTALS: Final = (
    ("leadercount", "leaders", "Partitions that this broker leads."),
    ("partitioncount", "replicas", "Replicas that this broker has, led and followed."),
    ("underreplicatedpartitions", "under", "Partitions led here that lack a replica in sync."),
    (
        "underminisrpartitioncount",
        "under_min",
        "Partitions led here with fewer replicas in sync than min.insync.replicas.",
    ),
    (
        "atminisrpartitioncount",
        "at_min",
        "Partitions led here with as many replicas in sync as min.insync.replicas.",
    ),
    ("reassigningpartitions", "moved", "Partitions led here that are moved."),
    ("produceridcount", "producers", "Producers that the logs here know."),
    (
        "partitionswithlatetransactionscount",
        "late",
        "Partitions led here whose oldest transaction should have ended five minutes ago or before.",
    ),
)


class PartitionFamilies:
    """The metric families of this broker's partitions. `steps` fills them, and yields between two partitions."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._logs: list[Row] = []
        self._led: list[Row] = []
        self._leaderless: list[Row] = []
        self._followed: list[Row] = []
        self._topics: dict[str, str] = {}
        """The text of each topic's label."""
        self._totals = dict.fromkeys((total for _, total, _ in _TOTALS), 0)
        self._lag_max = 0
        open_max_ms = broker.config.transaction.max_timeout_ms + _LATE_MS
        self._late_before_ms = broker.runtime.clock.wall_ms() - open_max_ms

    def steps(self) -> Iterator[None]:
        """Reads every replica of this broker. A step takes microseconds."""
        for partition in list(self._broker.replicas.partitions.values()):
            if partition.retired is None:
                self._add(partition)
            yield

    def totals(self) -> list[Family]:
        families = []
        for name, total, meaning in _TOTALS:
            family = gauge(f"{_REPLICA}{name}", meaning)
            family.add(self._totals[total])
            families.append(family)
        lag = gauge(
            "kafka_server_replicafetchermanager_maxlag", "Largest lag of a replica that this broker follows."
        )
        lag.add(self._lag_max, labels(clientId="Replica"))
        return [*families, lag]

    def of_partitions(self) -> list[Family]:
        led, states = [self._led], [self._led, self._leaderless]
        return [
            *[_family(facts, led) for facts in _OF_LED_FIRST],
            _family(_LAG, [self._followed]),
            *[_family(facts, led) for facts in _OF_LED],
            *[_family(facts, states) for facts in _OF_STATES],
            *[_family(facts, led) for facts in _OF_LED_LAST],
            *[_family(facts, [self._logs]) for facts in _OF_LOGS],
        ]

    def _add(self, partition: Partition) -> None:
        (topic, index), log, totals = partition.name, partition.log, self._totals
        of_topic = self._topics.get(topic)
        if of_topic is None:
            of_topic = self._topics[topic] = labels(topic=topic)
        text = f'{of_topic},partition="{index}"'
        self._logs.append((text, log.size_bytes, log.start_offset, log.end_offset, log.segment_count))
        totals["replicas"] += 1
        totals["producers"] += len(log.producers)
        state = partition.state
        if state is None:
            return
        if partition.is_leader:
            self._add_led(partition, state, text)
        else:
            self._add_followed(partition, text)

    def _add_followed(self, partition: Partition, text: str) -> None:
        try:
            lag = partition.follower().lag
        except KafkaError:
            return  # its role, or the partition, ends at this moment
        self._lag_max = max(self._lag_max, lag)
        self._followed.append((text, lag))

    def _add_led(self, partition: Partition, state: PartitionImage, text: str) -> None:
        totals = self._totals
        row = _state_row(text, state)
        _, is_under, in_sync, _, _, replica_count = row
        least = min(partition.config.min_insync_replicas, replica_count)
        is_under_min, is_at_min = int(in_sync < least), int(in_sync == least)
        totals["leaders"] += 1
        totals["under"] += is_under
        totals["under_min"] += is_under_min
        totals["at_min"] += is_at_min
        totals["moved"] += state.is_reassigned
        if partition.log.producers.transactions:
            seen_ms = partition.log.producers.oldest_transaction_seen_ms
            totals["late"] += seen_ms is not None and seen_ms < self._late_before_ms
        self._led.append((*row, is_under_min, is_at_min, partition.high_watermark, partition.start_offset))

    def add_leaderless(self, topic: str, states: Iterable[PartitionImage], first: int) -> None:
        """Adds partitions without a leader, which only the controller can report. `first`: the number of the first one."""
        for index, state in enumerate(states, first):
            if state.leader == NO_LEADER:
                self._leaderless.append(_state_row(labels(topic=topic, partition=index), state))


def is_led_as_preferred(state: PartitionImage) -> bool:
    """Returns whether the first replica leads, which is Kafka's preferred leader."""
    return bool(state.replicas) and state.leader == state.replicas[0]


def _state_row(text: str, state: PartitionImage) -> tuple[str, int, int, int, int, int]:
    """Returns the values of `_OF_STATES`, in their positions."""
    in_sync, replica_count = len(state.isr), len(state.replicas)
    is_under = int(in_sync < replica_count - len(state.adding))
    return text, is_under, in_sync, state.leader, int(is_led_as_preferred(state)), replica_count


def _family(facts: tuple[str, str, int], rows: list[list[Row]]) -> Family:
    name, meaning, position = facts
    columns = [(some, position) for some in rows]
    return Family(name=name, kind=MetricKind.GAUGE, meaning=meaning, columns=columns)
