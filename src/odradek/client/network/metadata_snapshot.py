"""A client's view of the cluster: an immutable snapshot, and the changes that an answer to Metadata makes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Self
from uuid import UUID

from odradek.client.settings.address import Address
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import NO_BROKER, NO_EPOCH, ZERO_UUID, TopicPartition
from odradek.protocol.messages.metadata.metadata import MetadataResponse, MetadataResponseTopic

LEADER_MAY_HAVE_MOVED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""Errors after which the cluster image is asked for again."""
_HIGHEST_PARTITION_MIN: Final = 100_000
"""Up to this number a partition is believed in, however many of those before it are missing."""
_ENDED_IDS_MAX: Final = 1_000
_OLD_ANSWERS_MAX: Final = 10
"""The number of answers with a topic that ended that are taken for old ones; after that the topic is believed to exist."""
_EMPTY: Final[Mapping[int, Address]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSnapshot:
    """One partition. `leader` is NO_BROKER while it has none."""

    partition: int
    leader: int = NO_BROKER
    leader_epoch: int = NO_EPOCH
    """-1 where the broker does not say (before Kafka 2.1)."""
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSnapshot:
    """One topic; `partitions[n].partition == n`."""

    name: str
    topic_id: UUID = ZERO_UUID
    internal: bool = False
    partitions: tuple[PartitionSnapshot, ...] = ()

    @property
    def available(self) -> tuple[int, ...]:
        """Partitions with a leader."""
        return tuple(partition.partition for partition in self.partitions if partition.leader >= 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSnapshot:
    """Brokers and topics as of the last answers. Topics no one asked for are not in it."""

    cluster_id: str | None = None
    controller: int = NO_BROKER
    brokers: Mapping[int, Address] = field(default_factory=lambda: _EMPTY)
    racks: Mapping[int, str] = field(default_factory=dict)
    topics: Mapping[str, TopicSnapshot] = field(default_factory=dict)
    topic_errors: Mapping[str, ErrorCode] = field(default_factory=dict)
    """The errors of requested topics that could not be described."""
    ended_ids: Mapping[UUID, int] = field(default_factory=dict)
    """The last topics that were deleted or created again, and the number of answers with their ids that still count as old."""

    def partition(self, tp: TopicPartition) -> PartitionSnapshot | None:
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def leader(self, tp: TopicPartition) -> int | None:
        """Returns the broker that leads the partition, if it has a known address."""
        partition = self.partition(tp)
        if partition is None or partition.leader not in self.brokers:
            return None
        return partition.leader

    def topic_id(self, topic: str) -> UUID:
        """Returns the topic's id; ZERO_UUID where the cluster has no topic ids, or the topic is not known."""
        known = self.topics.get(topic)
        return known.topic_id if known is not None else ZERO_UUID

    def is_gone(self, topic: str) -> bool:
        """Tells whether the cluster answered that there is no such topic."""
        return self.topic_errors.get(topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def topic_name(self, topic_id: UUID) -> str | None:
        for topic in self.topics.values():
            if topic.topic_id == topic_id:
                return topic.name
        return None

    def merged(self, response: MetadataResponse) -> Self:
        """Returns this image updated from `response`: brokers are replaced, topics in it are updated, others
        stay.

        A partition keeps the state with the highest leader epoch: responses of a broker that lags must not
        bring an old leader back (KIP-320), nor a deleted topic. A topic with another id is another topic."""
        topics = dict(self.topics)
        errors = dict(self.topic_errors)
        ended_ids = dict(self.ended_ids)
        for topic in response.topics:
            name = topic.name
            if not name:
                continue
            code = ErrorCode.of(topic.error_code)
            known = topics.get(name)
            if code is ErrorCode.NONE and _is_old(known, topic.topic_id, ended_ids):
                continue
            errors.pop(name, None)
            if code is ErrorCode.NONE:
                ended_ids.pop(topic.topic_id, None)
                topics[name] = _merged_topic(known, topic, name)
            else:
                errors[name] = code
                if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                    topics.pop(name, None)
            if known is not None and (name not in topics or topics[name].topic_id != known.topic_id):
                ended_ids[known.topic_id] = _OLD_ANSWERS_MAX
        return replace(
            self,
            cluster_id=response.cluster_id,
            controller=response.controller_id,
            brokers=MappingProxyType(
                {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
            ),
            racks=MappingProxyType(
                {broker.node_id: broker.rack for broker in response.brokers if broker.rack}
            ),
            topics=topics,
            topic_errors=errors,
            ended_ids=dict(list(ended_ids.items())[-_ENDED_IDS_MAX:]),
        )

    def with_leader(
        self, tp: TopicPartition, leader: int, leader_epoch: int, endpoints: Mapping[int, Address]
    ) -> Self:
        """Returns the snapshot with a newer leader of the partition and its address, from an answer with an error (KIP-951)."""
        known = self.partition(tp)
        if known is None or leader < 0 or leader_epoch <= known.leader_epoch:
            return self
        topic = self.topics[tp.topic]
        moved = replace(known, leader=leader, leader_epoch=leader_epoch)
        partitions = (*topic.partitions[: tp.partition], moved, *topic.partitions[tp.partition + 1 :])
        return replace(
            self,
            brokers=MappingProxyType({**self.brokers, **endpoints}),
            topics={**self.topics, tp.topic: replace(topic, partitions=partitions)},
        )

    def without(self, topics: Iterable[str]) -> Self:
        """Returns the snapshot without topics that no one is interested in any more."""
        gone = set(topics)
        return replace(
            self,
            topics={name: topic for name, topic in self.topics.items() if name not in gone},
            topic_errors={name: code for name, code in self.topic_errors.items() if name not in gone},
        )


def check_partitions(response: MetadataResponse) -> None:
    """Raises INVALID_REQUEST for an answer with partition numbers far too high: every lower number takes memory."""
    for topic in response.topics:
        highest = max((partition.partition_index for partition in topic.partitions), default=-1)
        if highest > max(_HIGHEST_PARTITION_MIN, 2 * len(topic.partitions)):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the answer to Metadata has a partition {highest} of topic {topic.name!r}, and {len(topic.partitions)} in all",
            )


def _is_old(known: TopicSnapshot | None, topic_id: UUID, ended_ids: dict[UUID, int]) -> bool:
    """True if a broker that lags describes the topic that had the name before."""
    if known is None or topic_id == known.topic_id or ended_ids.get(topic_id, 0) <= 0:
        return False
    ended_ids[topic_id] -= 1
    return True


def _merged_topic(known: TopicSnapshot | None, topic: MetadataResponseTopic, name: str) -> TopicSnapshot:
    fresh = {
        partition.partition_index: PartitionSnapshot(
            partition=partition.partition_index,
            leader=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            replicas=tuple(partition.replica_nodes),
            isr=tuple(partition.isr_nodes),
            offline=tuple(partition.offline_replicas),
        )
        for partition in topic.partitions
    }
    if known is not None and known.topic_id == topic.topic_id:
        for old in known.partitions:
            new = fresh.get(old.partition)
            if new is None or 0 <= new.leader_epoch < old.leader_epoch:
                fresh[old.partition] = old
    count = max(fresh, default=-1) + 1
    return TopicSnapshot(
        name=name,
        topic_id=topic.topic_id,
        internal=topic.is_internal,
        partitions=tuple(fresh.get(number) or PartitionSnapshot(partition=number) for number in range(count)),
    )


def missing_partition(tp: TopicPartition, image: MetadataSnapshot, api_timeout_s: float) -> KafkaError:
    """Returns the error for a partition that the cluster does not have, or that has no leader."""
    topic = image.topics.get(tp.topic)
    if topic is None or not topic.partitions:
        code = image.topic_errors.get(tp.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return KafkaError(code, f"there is no topic {tp.topic!r} (waited {api_timeout_s:g} s for it)")
        return KafkaError(code, f"topic {tp.topic!r}: {code.meaning}")
    if not 0 <= tp.partition < len(topic.partitions):
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {tp.topic!r} has partitions 0 to {len(topic.partitions) - 1}, not {tp.partition}",
        )
    return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has had no leader for {api_timeout_s:g} s")
