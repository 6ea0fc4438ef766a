"""Planted bugs of what a full or slow disk does to a cluster."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch
from uuid import UUID

from tests.simulation.mutant import Patches, mutant

from odradek.broker.replicas.replica_health import ReplicaHealth
from odradek.cluster.availability import Liveness, ReplicaAvailability, without
from odradek.cluster.controller import brokers as broker_changes
from odradek.cluster.controller.brokers import BrokerChanges
from odradek.storage.directories.disk_condition import DiskCondition

_SCENARIO = "disks"


@mutant("a broker tells no one that its disk is full", _SCENARIO)
def full_disk_kept_secret() -> Patches:
    yield patch.object(ReplicaHealth, "full", property(lambda self: frozenset()))


@mutant("a replica on a full disk stays in sync, and every acks=all waits for it", _SCENARIO)
def full_replica_stays_in_sync() -> Patches:
    right = Liveness.standing_for

    def standing_for(self: Liveness, topic_id: UUID, index: int) -> ReplicaAvailability:
        availability = right(self, topic_id, index)
        return availability._replace(staying=availability.staying | availability.full)

    yield patch.object(Liveness, "standing_for", standing_for)


@mutant("a broker whose disk is full counts as dead: what only it has cannot be read", _SCENARIO)
def full_broker_counts_as_dead() -> Patches:
    right = Liveness.standing_for

    def standing_for(self: Liveness, topic_id: UUID, index: int) -> ReplicaAvailability:
        availability = right(self, topic_id, index)
        return without(availability, availability.full)

    yield patch.object(Liveness, "standing_for", standing_for)


@mutant("a disk that was full once is full for ever", _SCENARIO)
def full_for_ever() -> Patches:
    yield patch.object(DiskCondition, "saw_space", lambda self, now, *, has_space: False)


@mutant(
    "a full disk counts as well at the next look, whether or not anything can be written",
    _SCENARIO,
    aside="the broker is in sync only after it wrote what it lacks, which fails and makes the disk full again",
)
def full_no_more_without_a_probe() -> Patches:
    def saw_space(self: DiskCondition, now: float, *, has_space: bool) -> bool:
        was_full, self.is_full = self.is_full, False
        return was_full

    yield patch.object(DiskCondition, "saw_space", saw_space)


@mutant("a broker on a slow disk leads for ever", _SCENARIO)
def slow_broker_never_relieved() -> Patches:
    def relieved_brokers(*_ignored: Any) -> frozenset[Any]:
        return frozenset()

    yield patch.object(broker_changes, "relieved_brokers", relieved_brokers)


@mutant("new topics are placed on full disks as on any other", _SCENARIO)
def placed_on_full_disks() -> Patches:
    yield patch.object(BrokerChanges, "without_space", lambda self: frozenset())
