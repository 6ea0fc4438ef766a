"""The brokers that count for a partition, and its topic's rules: the facts that decide elections."""

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
    """The end of a replica's log. Of two, the greater one is the longer log."""

    leader_epoch: int
    """The log's last leader epoch."""
    offset: int


class ReplicaAvailability(NamedTuple):
    """Sets of brokers that decide about one partition's replicas."""

    alive: frozenset[BrokerId]
    """Brokers that keep their place: in service, or not silent for long enough to be given up."""
    serving: frozenset[BrokerId]
    """Brokers that are in service."""
    staying: frozenset[BrokerId]
    """Brokers that are alive and not about to leave."""
    electable: frozenset[BrokerId]
    """Brokers that are in service and not about to leave."""
    lacking: frozenset[BrokerId] = frozenset()
    """Electable brokers whose replica lacks records that it had: any other broker is better."""
    lost: frozenset[BrokerId] = frozenset()
    """Brokers in service that may lead only as a last resort: their replica lacks records. They are not about to leave."""
    uncertain: Mapping[BrokerId, LogEnd] = MappingProxyType({})
    """Electable brokers whose replica may lack records that it had, with the ends of their logs."""
    slow: frozenset[BrokerId] = frozenset()
    """Brokers in service whose disk answers slowly and that are not about to leave: not electable, others lead if they can."""
    full: frozenset[BrokerId] = frozenset()
    """Brokers like `slow` ones, but with a full disk: slow brokers lead rather than these."""
    relieved: frozenset[BrokerId] = frozenset()
    """Slow brokers that hand over what they lead."""


class Liveness(NamedTuple):
    """The state of all brokers. The replicas are (topic id, partition) by broker: `offline` ones cannot be used; for `lost`,
    `lacking`, `uncertain`, `full` and `slow` ones see `BrokerReport`. `relieved` brokers hand over what is on a slow
    disk.
    """

    brokers: Mapping[BrokerId, BrokerImage]
    """Brokers that are in service."""
    awaited: frozenset[BrokerId] = frozenset()
    """Brokers that are registered, but were not heard under this controller yet."""
    offline: Mapping[BrokerId, frozenset[tuple[UUID, int]]] = MappingProxyType({})
    lost: Mapping[BrokerId, frozenset[tuple[UUID, int]]] = MappingProxyType({})
    lacking: Mapping[BrokerId, frozenset[tuple[UUID, int]]] = MappingProxyType({})
    uncertain: Mapping[BrokerId, Mapping[tuple[UUID, int], LogEnd]] = MappingProxyType({})
    full: Mapping[BrokerId, frozenset[tuple[UUID, int]]] = MappingProxyType({})
    slow: Mapping[BrokerId, frozenset[tuple[UUID, int]]] = MappingProxyType({})
    relieved: frozenset[BrokerId] = frozenset()

    def availability(self) -> ReplicaAvailability:
        """Returns the availability for every partition without special replicas."""
        serving = frozenset(self.brokers)
        alive = serving | self.awaited
        leaving = frozenset(broker.broker_id for broker in self.brokers.values() if broker.is_leaving)
        return ReplicaAvailability(
            alive=alive, serving=serving, staying=alive - leaving, electable=serving - leaving
        )

    def special_replicas(self) -> frozenset[tuple[UUID, int]]:
        """Returns replicas that are offline, lost, lacking or uncertain, or on a disk that is full or slow."""
        return frozenset(
            replica
            for by_broker in (self.offline, self.lost, self.lacking, self.uncertain, self.full, self.slow)
            for replicas in by_broker.values()
            for replica in replicas
        )

    def standing_for(self, topic_id: UUID, index: int) -> ReplicaAvailability:
        """Returns the availability for one partition."""
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
    """Returns the availability without these brokers."""
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
    """Returns the brokers that hand over what they lead because their disks are slow: at most half of those in service.

    Those whose disks became slow first come first. The others keep what they lead: where most disks are slow, a move
    would only put more load on the few that are left.
    """
    in_order = sorted(slow_since, key=lambda broker: (slow_since[broker], broker))
    return frozenset(in_order[: serving_count // 2])


class TopicRules(NamedTuple):
    """A topic's settings for its leaders."""

    min_isr: int = 1
    allows_unclean: bool = False

    def min_isr_of(self, partition: PartitionImage) -> int:
        """Returns the partition's min ISR: no partition needs more members in sync than it has replicas."""
        return min(self.min_isr, len(partition.replicas))


DEFAULT_RULES: Final = TopicRules()
"""Kafka's defaults."""


def rules_of(image: ClusterImage, topic: TopicImage, defaults: TopicRules) -> TopicRules:
    """Returns the topic's own settings, else the dynamic ones of all brokers, else the defaults of this broker's file."""
    min_isr = topic.configs.get(_MIN_ISR, image.broker_configs.get(_MIN_ISR))
    unclean = topic.configs.get(_UNCLEAN, image.broker_configs.get(_UNCLEAN))
    if min_isr is None and unclean is None:
        return defaults
    return TopicRules(
        min_isr=defaults.min_isr if min_isr is None else int(min_isr),
        allows_unclean=defaults.allows_unclean if unclean is None else unclean.strip().lower() == "true",
    )
