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


class LogEnd(NamedTuple):
    """Where a replica's log ends. Of two, the greater one is the longer log."""

    leader_epoch: int
    """The last that it knows."""
    offset: int


class ReplicaAvailability(NamedTuple):
    """Brokers as they stand for one partition."""

    alive: frozenset[BrokerId]
    """They keep their place: in service, or too short a time unheard of to be given up."""
    serving: frozenset[BrokerId]
    """Those of them that are in service."""
    staying: frozenset[BrokerId]
    """Those that are alive, and not about to leave."""
    electable: frozenset[BrokerId]
    """Those that are in service, and not about to leave."""
    lacking: frozenset[BrokerId] = frozenset()
    """Those of the electable ones whose replica lacks what it had: any other is better."""
    lost: frozenset[BrokerId] = frozenset()
    """In service, not about to leave, and not electable, for their replica has not all that it had: the last resort."""
    uncertain: Mapping[BrokerId, LogEnd] = MappingProxyType({})
    """Those of the electable ones of whose replica it is unknown whether it has all that it had."""
    slow: frozenset[BrokerId] = frozenset()
    """In service, not about to leave, and not electable, for their disk answers slowly: others lead if they can."""
    full: frozenset[BrokerId] = frozenset()
    """The same, for their disk is full: those lead that are merely slow, rather than these."""
    relieved: frozenset[BrokerId] = frozenset()
    """Those of the slow ones that hand over what they lead."""


class Liveness(NamedTuple):
    """All brokers as they stand. Of replicas, (topic id, partition) by broker: `offline` ones cannot be used, for `lost`,
    `lacking`, `uncertain`, `full` and `slow` ones see `BrokerReport`. `relieved` brokers hand over what is on a slow disk.
    """

    brokers: Mapping[BrokerId, BrokerImage]
    """In service."""
    awaited: frozenset[BrokerId] = frozenset()
    """Registered, but not heard of under this controller yet."""
    offline: Mapping[BrokerId, frozenset[tuple[UUID, int]]] = MappingProxyType({})
    lost: Mapping[BrokerId, frozenset[tuple[UUID, int]]] = MappingProxyType({})
    lacking: Mapping[BrokerId, frozenset[tuple[UUID, int]]] = MappingProxyType({})
    uncertain: Mapping[BrokerId, Mapping[tuple[UUID, int], LogEnd]] = MappingProxyType({})
    full: Mapping[BrokerId, frozenset[tuple[UUID, int]]] = MappingProxyType({})
    slow: Mapping[BrokerId, frozenset[tuple[UUID, int]]] = MappingProxyType({})
    relieved: frozenset[BrokerId] = frozenset()

    def availability(self) -> ReplicaAvailability:
        """For every partition without special replicas."""
        serving = frozenset(self.brokers)
        alive = serving | self.awaited
        leaving = frozenset(broker.broker_id for broker in self.brokers.values() if broker.is_leaving)
        return ReplicaAvailability(
            alive=alive, serving=serving, staying=alive - leaving, electable=serving - leaving
        )

    def special_replicas(self) -> frozenset[tuple[UUID, int]]:
        """Offline, lost, lacking, uncertain, or on a disk that is full or slow."""
        return frozenset(
            replica
            for by_broker in (self.offline, self.lost, self.lacking, self.uncertain, self.full, self.slow)
            for replicas in by_broker.values()
            for replica in replicas
        )

    def standing_for(self, topic_id: UUID, index: int) -> ReplicaAvailability:
        """For one partition."""
        replica, usual = (topic_id, index), self.availability()
        lost = _having(self.lost, replica)
        usable = without(usual, lost | _having(self.offline, replica))
        full = usable.electable & _having(self.full, replica)
        slow = (usable.electable & _having(self.slow, replica)) - full
        usable = usable._replace(
            staying=usable.staying - full,
            electable=usable.electable - full - slow,
            full=full,
            slow=slow,
            relieved=slow & self.relieved,
        )
        return usable._replace(
            lacking=(usable.electable | full | slow) & _having(self.lacking, replica),
            lost=usual.electable & lost,
            uncertain={
                broker: ends[replica]
                for broker, ends in self.uncertain.items()
                if replica in ends and broker in usable.electable | full | slow
            },
        )


def _having(
    replicas: Mapping[BrokerId, frozenset[tuple[UUID, int]]], replica: tuple[UUID, int]
) -> frozenset[BrokerId]:
    return frozenset(broker for broker, some in replicas.items() if replica in some)


def without(availability: ReplicaAvailability, brokers: frozenset[BrokerId]) -> ReplicaAvailability:
    """As if these were not there."""
    return ReplicaAvailability(
        alive=availability.alive - brokers,
        serving=availability.serving - brokers,
        staying=availability.staying - brokers,
        electable=availability.electable - brokers,
        lacking=availability.lacking - brokers,
        lost=availability.lost - brokers,
        uncertain={
            broker_id: end for broker_id, end in availability.uncertain.items() if broker_id not in brokers
        },
        slow=availability.slow - brokers,
        full=availability.full - brokers,
        relieved=availability.relieved - brokers,
    )


def relieved_brokers(slow_since: Mapping[BrokerId, float], serving_count: int) -> frozenset[BrokerId]:
    """Brokers that hand over what they lead because their disks are slow: at most half of those in service.

    Those whose disks became slow first come first. The others keep what they lead: where most disks are slow, a move
    would only put more load on the few that are left.
    """
    in_order = sorted(slow_since, key=lambda broker: (slow_since[broker], broker))
    return frozenset(in_order[: serving_count // 2])


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
