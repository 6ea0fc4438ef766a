"""Plans the controller's own repairs: replicas of dead brokers are made again elsewhere, preferred leaders lead again.

Pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from uuid import UUID

from odradek.cluster.availability import ReplicaAvailability
from odradek.cluster.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage
from odradek.cluster.placement import replacement_for
from odradek.cluster.reassignment import Reassignment
from odradek.model.ids import BrokerId, TopicPartition

StandingFor = Callable[[UUID, int], ReplicaAvailability]


def replicas_to_heal(
    image: ClusterImage,
    dead: Collection[BrokerId],
    *,
    full: Collection[BrokerId] = (),
    partitions_max: int,
) -> list[Reassignment]:
    """Moves that replace dead brokers, for as many partitions as may be under way at one time together with those that are.

    Brokers whose disks are `full` get no copy. Only a partition that has a leader can be copied. A replica for which there is
    no broker left stays where it is.
    """
    under_way = sum(partition.is_reassigned for _, partition in _partitions(image))
    added_counts: Counter[BrokerId] = Counter(
        broker for _, partition in _partitions(image) for broker in partition.replicas
    )
    racks = {broker.broker_id: broker.rack for broker in image.brokers}
    takers = [broker for broker in image.brokers if broker.broker_id not in full]
    moves: list[Reassignment] = []
    for name, partition in _partitions(image):
        if under_way + len(moves) >= partitions_max:
            break
        if partition.leader == NO_LEADER or not any(broker in dead for broker in partition.target):
            continue
        target = _without_dead(partition, dead, takers, racks, added_counts)
        if target != partition.target:
            moves.append(Reassignment(topic=name.topic, partition=name.partition, replicas=target))
            added_counts.update(broker for broker in target if broker not in partition.replicas)
    return moves


def healing_to_cancel(
    image: ClusterImage, begun: Mapping[tuple[UUID, int], tuple[BrokerId, ...]]
) -> list[Reassignment]:
    """Returns the healing moves whose dead brokers are all back while no new copy is in sync.

    What the old copy lacks is less than what the new one does. A move that someone changed meanwhile is not ours any more.
    """
    alive = frozenset(broker.broker_id for broker in image.brokers)
    moves = []
    for (topic_id, index), target in begun.items():
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            continue
        partition = topic.partitions[index]
        is_ours = partition.is_reassigned and partition.target == target
        if (
            is_ours
            and alive.issuperset(partition.removing)
            and set(partition.adding).isdisjoint(partition.isr)
        ):
            moves.append(Reassignment(topic=topic.name, partition=index, replicas=None))
    return moves


def preferred_leaders_to_restore(
    image: ClusterImage, standing_for: StandingFor, *, percentage: int
) -> list[TopicPartition]:
    """Returns the partitions that their preferred leader could lead, of each broker that lacks more than this share of its
    own."""
    preferred: dict[BrokerId, list[tuple[TopicPartition, PartitionImage]]] = {}
    for name, partition in _partitions(image):
        preferred.setdefault(partition.replicas[0], []).append((name, partition))
    names = []
    for broker, own in preferred.items():
        lacking = [(name, partition) for name, partition in own if partition.leader != broker]
        if len(lacking) * 100 <= percentage * len(own):
            continue
        names += [
            name
            for name, partition in lacking
            if broker in partition.isr
            and broker in standing_for(image.topics[name.topic].topic_id, name.partition).electable
        ]
    return names


def _without_dead(
    partition: PartitionImage,
    dead: Collection[BrokerId],
    takers: Sequence[BrokerImage],
    racks: dict[BrokerId, str | None],
    added_counts: Counter[BrokerId],
) -> tuple[BrokerId, ...]:
    target = list(partition.target)
    for index, broker in enumerate(target):
        if broker in dead:
            others = [broker_id for broker_id in target if broker_id != broker]
            chosen = replacement_for(others, takers, racks, added_counts)
            if chosen is not None:
                target[index] = chosen
    return tuple(target)


def _partitions(image: ClusterImage) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            yield TopicPartition(topic.name, index), partition
