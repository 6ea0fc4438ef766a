"""The cluster as no one in it can see it: all brokers at one instant. Nemesis and checkers look through this, clients never."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Final

from tests.simulation.cluster.keeper import ClusterKeeper

from odradek.broker.app import Broker
from odradek.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.model.ids import TopicPartition
from odradek.replication.partition import Partition

_ROLE_TOPICS: Final = {"group": "__consumer_offsets", "txn": "__transaction_state"}


class ClusterView:
    """Of the brokers that these keepers keep."""

    def __init__(self, keepers: Sequence[ClusterKeeper]) -> None:
        self.keepers = keepers
        self._by_id = {keeper.broker_id: keeper for keeper in keepers}

    def up(self) -> list[tuple[ClusterKeeper, Broker]]:
        """Those that serve, or are stopped in the middle of it."""
        return [
            (keeper, keeper.broker) for keeper in self.keepers if keeper.is_up and keeper.broker is not None
        ]

    def image(self) -> ClusterImage | None:
        """The newest that any broker knows."""
        images = [image_of(broker) for _, broker in self.up()]
        return max(images, key=lambda keeper: (keeper.controller_epoch, keeper.version), default=None)

    def who(self, role: str, rng: Random) -> ClusterKeeper | None:
        """A broker that has the role now; any that lives where no one has."""
        living = [keeper for keeper in self.keepers if keeper.life is not None]
        if not living:
            return None
        keeper = self._find(role, rng)
        return keeper if keeper is not None and keeper.life is not None else rng.choice(living)

    def _find(self, role: str, rng: Random) -> ClusterKeeper | None:
        image = self.image()
        if image is None:
            return None
        if role == "controller":
            return self._by_id.get(image.controller_id)
        if role == "fresh":
            return max(self.keepers, key=lambda keeper: keeper.up_since_s)
        if role == "any":
            return None
        partitions = _partitions(image, _ROLE_TOPICS.get(role))
        if not partitions:
            return None
        if role == "last":
            fewest = min(len(partition.isr) for partition in partitions)
            partitions = [partition for partition in partitions if len(partition.isr) == fewest]
            return self._by_id.get(rng.choice(partitions).isr[0])
        chosen = rng.choice(partitions)
        if role == "heir":
            heirs = [
                replica for replica in chosen.replicas if replica in chosen.isr and replica != chosen.leader
            ]
            return self._by_id.get(heirs[0]) if heirs else None
        if role == "follower":
            others = [replica for replica in chosen.replicas if replica != chosen.leader]
            return self._by_id.get(rng.choice(others)) if others else None
        return self._by_id.get(chosen.leader)

    def may_rot(self, keeper: ClusterKeeper) -> bool:
        """Whether everything that it holds is in sync somewhere else."""
        image = self.image()
        return image is not None and all(
            set(partition.isr) - {keeper.broker_id}
            for partition in _partitions(image, None)
            if keeper.broker_id in partition.replicas
        )

    def may_lose_disk(self, keeper: ClusterKeeper) -> bool:
        """Whether that is so of internal topics, too, the others have made their logs, and all are there to go on."""
        image = self.image()
        return (
            image is not None
            and all(other.is_up for other in self.keepers)
            and all(
                self._is_held_in_sync(topic, index, besides=keeper)
                for topic in image.topics.values()
                for index, partition in enumerate(topic.partitions)
                if keeper.broker_id in partition.replicas
            )
        )

    def _is_held_in_sync(self, topic: TopicImage, index: int, *, besides: ClusterKeeper) -> bool:
        """Of a topic that was just created the replicas in sync may have no log yet: one that dies then cannot tell that there
        was nothing in it."""
        name = TopicPartition(topic.name, index)
        return any(
            name in held_by(broker) and held_by(broker)[name].topic_id == topic.topic_id
            for keeper, broker in self.up()
            if keeper is not besides and keeper.broker_id in topic.partitions[index].isr
        )


def _partitions(image: ClusterImage, topic: str | None) -> list[PartitionImage]:
    chosen: Iterable[PartitionImage] = (
        partition
        for name, topic_image in image.topics.items()
        for partition in topic_image.partitions
        if (name == topic if topic else not topic_image.internal)
    )
    return [partition for partition in chosen if partition.isr]


def image_of(broker: Broker) -> ClusterImage:
    """What the broker runs on."""
    return broker.context.image


def held_by(broker: Broker) -> Mapping[TopicPartition, Partition]:
    """The open partitions of a broker, led and followed, now and later."""
    return broker.context.replicas.partitions


def replicas_of(broker: Broker) -> dict[TopicPartition, Partition]:
    """The same, as they are now."""
    return dict(held_by(broker))
