"""Moves of replicas as clients plan and carry them out: the cluster as an image, batches, and throttles. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from odradek.client.admin.types import ClusterDescription, ConfigChange, ConfigResource, TopicDescription
from odradek.cluster.balance import BalancePlan, Move, plan
from odradek.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition

MOVES_AT_ONCE: Final = 50
"""Partitions that move at the same time: what is begun can be cancelled, and what is not begun costs nothing."""
THROTTLE_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""Settings of brokers (KIP-73): bytes a second that throttled replicas may be copied."""
THROTTLED_REPLICAS: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
"""Settings of topics (KIP-73): the replicas that the rates are for."""


def cluster_image(cluster: ClusterDescription, topics: Iterable[TopicDescription]) -> ClusterImage:
    """Returns the cluster, as its brokers describe it, in the form that plans are made of."""
    images = {
        topic.name: TopicImage(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=tuple(
                PartitionImage(
                    leader=BrokerId(partition.leader),
                    leader_epoch=LeaderEpoch(partition.leader_epoch),
                    replicas=tuple(map(BrokerId, partition.replicas)),
                    isr=tuple(map(BrokerId, partition.isr)),
                )
                for partition in topic.partitions
            ),
        )
        for topic in topics
    }
    return ClusterImage(
        version=0,
        cluster_id=cluster.cluster_id or "",
        controller_id=BrokerId(cluster.controller_id),
        brokers=tuple(
            BrokerImage(
                broker_id=BrokerId(broker.broker_id), host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in cluster.brokers
        ),
        topics=images,
        topics_by_id={topic.topic_id: topic for topic in images.values()},
    )


def known_brokers(image: ClusterImage) -> list[int]:
    """Returns the brokers that live, and those that hold replicas without living."""
    alive = {int(broker.broker_id) for broker in image.brokers}
    held = {
        int(replica)
        for topic in image.topics.values()
        for partition in topic.partitions
        for replica in partition.replicas
    }
    return sorted(alive | held)


def plan_for(
    image: ClusterImage,
    sizes: Mapping[TopicPartition, int],
    drained: Sequence[int],
    *,
    spread: bool,
) -> BalancePlan:
    """Returns the plan. Raises KafkaError where there is none, and for a broker that neither lives nor holds replicas."""
    known = known_brokers(image)
    for broker in drained:
        if broker not in known:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"there is no broker {broker}; there are {', '.join(map(str, known))}",
            )
    return plan(image, sizes, drained=[BrokerId(broker) for broker in drained], spread=spread)


def moves_without_leader(image: ClusterImage, moves: Iterable[Move]) -> list[TopicPartition]:
    """Returns the partitions of these moves that no broker leads: nothing of them can be copied, so they do not end."""
    return [
        move.name
        for move in moves
        if image.topics[move.name.topic].partitions[move.name.partition].leader == NO_BROKER
    ]


def next_moves(left: Sequence[Move], under_way: int) -> tuple[list[Move], list[Move]]:
    """Returns the moves to begin now, and those that wait until some of the moves under way have ended."""
    room = max(0, MOVES_AT_ONCE - under_way)
    return list(left[:room]), list(left[room:])


def throttle_changes(
    moves: Iterable[Move], rate: int | None, alive: Collection[int]
) -> dict[ConfigResource, dict[str, ConfigChange]]:
    """Returns the changes that limit these moves to a rate, Kafka's way (KIP-73); with None, those that take the limit away.

    Brokers that are not `alive` are left out: they copy nothing, and no one can change their settings.
    """
    moves = list(moves)
    brokers = sorted({int(broker) for move in moves for broker in (*move.before, *move.after)})
    topics = sorted({move.name.topic for move in moves})
    broker_value, topic_value = (None, None) if rate is None else (str(rate), "*")
    changes: dict[ConfigResource, dict[str, ConfigChange]] = {}
    for broker in brokers:
        if broker in alive:
            changes[ConfigResource.broker(broker)] = dict.fromkeys(THROTTLE_RATES, broker_value)
    for topic in topics:
        changes[ConfigResource.topic(topic)] = dict.fromkeys(THROTTLED_REPLICAS, topic_value)
    return changes
