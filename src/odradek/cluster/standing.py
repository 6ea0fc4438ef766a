"""Which brokers count for a partition, and what its topic asks for: the facts that elections are decided on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from odradek.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.model.ids import BrokerId

_MIN_ISR: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"


class Standing(NamedTuple):
    """Brokers as they stand for one partition."""

    alive: frozenset[BrokerId]
    """They keep their place: in service, or too short a time unheard of to be given up."""
    serving: frozenset[BrokerId]
    """Those of them that are in service."""
    staying: frozenset[BrokerId]
    """Those that are alive, and not about to leave."""
    electable: frozenset[BrokerId]
    """Those that are in service, and not about to leave."""


class Liveness(NamedTuple):
    """All brokers as they stand; `offline` are replicas that their broker cannot use: (topic id, partition) by broker."""

    brokers: Mapping[BrokerId, BrokerImage]
    """In service."""
    awaited: frozenset[BrokerId] = frozenset()
    """Registered, but not heard of under this controller yet."""
    offline: Mapping[BrokerId, frozenset[tuple[UUID, int]]] = MappingProxyType({})

    def standing(self) -> Standing:
        """For every partition without offline replicas."""
        serving = frozenset(self.brokers)
        alive = serving | self.awaited
        leaving = frozenset(one.broker_id for one in self.brokers.values() if one.is_leaving)
        return Standing(alive=alive, serving=serving, staying=alive - leaving, electable=serving - leaving)

    def offline_replicas(self) -> frozenset[tuple[UUID, int]]:
        return frozenset(replica for replicas in self.offline.values() for replica in replicas)

    def standing_for(self, topic_id: UUID, index: int) -> Standing:
        """For one partition."""
        unusable = frozenset(
            broker for broker, replicas in self.offline.items() if (topic_id, index) in replicas
        )
        return without(self.standing(), unusable)


def without(standing: Standing, brokers: frozenset[BrokerId]) -> Standing:
    """As if these were not there."""
    return Standing(
        alive=standing.alive - brokers,
        serving=standing.serving - brokers,
        staying=standing.staying - brokers,
        electable=standing.electable - brokers,
    )


class TopicRules(NamedTuple):
    """What a topic's settings say about its leaders."""

    min_isr: int = 1
    allows_unclean: bool = False

    def min_isr_of(self, partition: PartitionImage) -> int:
        """No partition needs more members in sync than it has replicas."""
        return min(self.min_isr, len(partition.replicas))


DEFAULT_RULES: Final = TopicRules()
"""Kafka's defaults."""


def rules_of(image: ClusterImage, topic: TopicImage, defaults: TopicRules) -> TopicRules:
    """The topic's own settings, else the dynamic ones of all brokers, else the defaults of this broker's file."""
    min_isr = topic.configs.get(_MIN_ISR, image.broker_configs.get(_MIN_ISR))
    unclean = topic.configs.get(_UNCLEAN, image.broker_configs.get(_UNCLEAN))
    if min_isr is None and unclean is None:
        return defaults
    return TopicRules(
        min_isr=defaults.min_isr if min_isr is None else int(min_isr),
        allows_unclean=defaults.allows_unclean if unclean is None else unclean.strip().lower() == "true",
    )
