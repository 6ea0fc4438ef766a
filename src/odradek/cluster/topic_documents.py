"""The stored form of a topic: in the registry under /topics/NAME, and in what brokers pull from the controller.

A partition is a list, [leader, leader epoch, partition epoch, replicas, isr], and, if needed, a sixth element
with further fields: a topic of 10,000 partitions must fit into one node of a ZooKeeper, 1 MB. Registries
written before there were several brokers hold a partition as {"leader", "epoch", "replicas", "isr"}; they are
still read.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from odradek.cluster.image import NO_LEADER, PartitionImage, TopicImage
from odradek.model.aliases import Json
from odradek.model.ids import BrokerId, LeaderEpoch


def topic_data(topic: TopicImage) -> bytes:
    """Returns the node's content."""
    return json.dumps(topic_as_json(topic), separators=(",", ":")).encode()


def topic_from(name: str, data: bytes) -> TopicImage:
    return topic_from_json(name, json.loads(data))


def topic_as_json(topic: TopicImage) -> dict[str, Json]:
    return {
        "id": str(topic.topic_id),
        "partitions": [partition_as_json(partition) for partition in topic.partitions],
        "configs": dict(topic.configs),
    }


def topic_from_json(name: str, stored: dict[str, Any]) -> TopicImage:
    return TopicImage(
        name=name,
        topic_id=UUID(stored["id"]),
        partitions=tuple(partition_from_json(partition) for partition in stored["partitions"]),
        configs=stored["configs"],
    )


def partition_as_json(partition: PartitionImage) -> list[Json]:
    stored: list[Json] = [
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.replicas,
        partition.isr,
    ]
    more: dict[str, Json] = {}
    if partition.adding:
        more["adding"] = partition.adding
    if partition.removing:
        more["removing"] = partition.removing
    if partition.eligible:
        more["eligible"] = partition.eligible
    if partition.last_known_leader != NO_LEADER:
        more["last_leader"] = partition.last_known_leader
    if partition.recovering:
        more["recovering"] = True
    if more:
        stored.append(more)
    return stored


def partition_from_json(stored: list[Any] | dict[str, Any]) -> PartitionImage:
    if isinstance(stored, dict):
        return PartitionImage(
            leader=BrokerId(stored["leader"]),
            leader_epoch=LeaderEpoch(stored["epoch"]),
            replicas=tuple(stored["replicas"]),
            isr=tuple(stored["isr"]),
        )
    leader, leader_epoch, partition_epoch, replicas, isr, *rest = stored
    if not rest:
        return PartitionImage(
            leader=leader,
            leader_epoch=leader_epoch,
            replicas=tuple(replicas),
            isr=tuple(isr),
            partition_epoch=partition_epoch,
        )
    more = rest[0]
    return PartitionImage(
        leader=leader,
        leader_epoch=leader_epoch,
        replicas=tuple(replicas),
        isr=tuple(isr),
        partition_epoch=partition_epoch,
        adding=tuple(more.get("adding", ())),
        removing=tuple(more.get("removing", ())),
        eligible=tuple(more.get("eligible", ())),
        last_known_leader=BrokerId(more.get("last_leader", NO_LEADER)),
        recovering=more.get("recovering", False),
    )
