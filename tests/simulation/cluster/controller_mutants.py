"""Planted bugs of the controller and of those who listen to it. Each says its row of the catalogue of failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from uuid import UUID

from tests.simulation.mutant import Patches, mutant

from odradek.broker.cluster.link import ClusterLink
from odradek.cluster import elections, isr_changes
from odradek.cluster.availability import ReplicaAvailability, TopicRules
from odradek.cluster.controller import brokers as broker_changes
from odradek.cluster.controller import partitions
from odradek.cluster.controller.controller import Controller
from odradek.cluster.controller.publishing import Publication
from odradek.cluster.controller.store import ClusterStore
from odradek.cluster.elections import renewed
from odradek.cluster.image import ClusterImage, PartitionImage
from odradek.cluster.sync import BrokerReport
from odradek.model.ids import BrokerId
from odradek.registry import Operation, Put
from odradek.replication.in_sync import FollowerState, InSync
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.log_manager import LogManager

_SCENARIO = "cluster"


# -- elections


@mutant("row 28: any replica may lead where no one in sync is there, silently", _SCENARIO)
def unclean_elections() -> Patches:
    real = elections._with_leader

    def with_leader(
        partition: PartitionImage, availability: ReplicaAvailability, rules: TopicRules
    ) -> PartitionImage:
        return real(partition, availability, rules._replace(allows_unclean=True))

    yield patch.object(elections, "_with_leader", with_leader)


@mutant("row 28: the first replica that lives is elected, in sync or not", _SCENARIO)
def elects_any_live_broker() -> Patches:
    real = elections._with_leader

    def with_leader(
        partition: PartitionImage, availability: ReplicaAvailability, rules: TopicRules
    ) -> PartitionImage:
        partition_image = real(partition, availability, rules)
        candidate = elections._first(partition.replicas, availability.electable)
        if partition_image.leader == partition.leader or candidate not in availability.electable:
            return partition_image
        isr = partition_image.isr if candidate in partition_image.isr else (*partition_image.isr, candidate)
        return replace(partition_image, leader=candidate, isr=isr)

    yield patch.object(elections, "_with_leader", with_leader)


@mutant("row 3: a new leader leads under its predecessor's epoch", _SCENARIO)
def leader_epoch_not_raised() -> Patches:
    def same_epoch(before: PartitionImage, after: PartitionImage) -> PartitionImage:
        if after == before:
            return before
        return replace(after, partition_epoch=before.partition_epoch + 1)

    yield patch.object(elections, "renewed", same_epoch)


@mutant("row 59: where the leader died no one is elected", _SCENARIO)
def leaders_never_move() -> Patches:
    def settled(
        partition: PartitionImage, availability: ReplicaAvailability, rules: TopicRules
    ) -> PartitionImage:
        return partition

    yield patch.object(broker_changes, "settled", settled)


@mutant("row 10: a replica that ever left the ISR may lead again", _SCENARIO)
def everyone_is_eligible() -> Patches:
    def eligible(
        partition: PartitionImage, isr: tuple[BrokerId, ...], rules: TopicRules
    ) -> tuple[BrokerId, ...]:
        return tuple(replica for replica in partition.replicas if replica not in isr)

    yield patch.object(elections, "eligible_after", eligible)
    yield patch.object(isr_changes, "eligible_after", eligible)


@mutant(
    "row 29: dead brokers stay in the ISR",
    _SCENARIO,
    aside="the leader, old or new, proposes itself to remove who does not fetch: it takes a little longer",
)
def dead_stay_in_sync() -> Patches:
    def in_sync(partition: PartitionImage, availability: ReplicaAvailability) -> tuple[BrokerId, ...]:
        return partition.isr

    yield patch.object(elections, "_in_sync", in_sync)


# -- who is in sync


@mutant(
    "row 22: a leader's wish is done, of whatever state of the partition it speaks",
    _SCENARIO,
    aside="who joins is looked at apart, and the leader cannot be left out; what is left was not met in 40 seeds",
)
def stale_proposals() -> Patches:
    def check_state(partition: PartitionImage, proposal: Any, proposer: BrokerId) -> None:
        return None

    yield patch.object(isr_changes, "_check_state", check_state)


@mutant("row 22: a deposed leader's wish makes it leader again", _SCENARIO)
def deposed_leader_decides() -> Patches:
    real = isr_changes.changed_isr

    def changed(partition: PartitionImage, proposal: Any, **known: Any) -> PartitionImage:
        if proposal.leader_epoch < partition.leader_epoch:
            isr = tuple(broker for broker, _ in proposal.isr if broker in partition.replicas)
            return renewed(partition, replace(partition, leader=known["proposer"], isr=isr))
        return real(partition, proposal, **known)

    yield patch.object(partitions, "changed_isr", changed)


@mutant(
    "row 23: a broker that joins the ISR may have been restarted since, or be gone",
    _SCENARIO,
    aside="it has what is committed, and holds back the rest until it is removed for lagging: it takes a little longer",
)
def joins_in_any_life() -> Patches:
    def check_joins(image: Any, broker: BrokerId, epoch: int, availability: ReplicaAvailability) -> None:
        return None

    def may_join(self: InSync, broker: BrokerId, follower: FollowerState) -> bool:
        return True

    yield patch.object(isr_changes, "_check_joins", check_joins)
    yield patch.object(InSync, "_may_join", may_join)


@mutant("row 32: replicas that are to go are dropped before the new ones are in sync", _SCENARIO)
def drops_before_in_sync() -> Patches:
    def completed(partition: PartitionImage, availability: ReplicaAvailability) -> PartitionImage:
        target = partition.target
        if not partition.is_reassigned:
            return partition
        isr = tuple(broker_id for broker_id in partition.isr if broker_id in target) or target
        leader = partition.leader if partition.leader in isr else isr[0]
        draft = replace(
            partition, replicas=target, isr=isr, leader=leader, eligible=(), adding=(), removing=()
        )
        return renewed(partition, draft)

    yield patch.object(elections, "completed", completed)
    yield patch.object(isr_changes, "completed", completed)


@mutant("row 32: a move never ends", _SCENARIO)
def moves_never_end() -> Patches:
    def completed(partition: PartitionImage, availability: ReplicaAvailability) -> PartitionImage:
        return partition

    yield patch.object(isr_changes, "completed", completed)
    yield patch.object(elections, "completed", completed)


@mutant("row 22: what the controller grants is not written, now and then", _SCENARIO)
def granted_and_not_written() -> Patches:
    real = ClusterStore.commit

    async def commit(self: ClusterStore, operations: Sequence[Operation]) -> None:
        is_of_one = len(operations) == 1 and isinstance(operations[0], Put)
        if not is_of_one or operations[0].version % 5 != 4:  # type: ignore[union-attr]
            await real(self, operations)
        else:
            await real(self, [])

    yield patch.object(ClusterStore, "commit", commit)


# -- terms


@mutant("row 24: a deposed controller goes on writing", _SCENARIO)
def deposed_controller_writes() -> Patches:
    async def commit(self: ClusterStore, operations: Sequence[Operation]) -> None:
        forced: list[Operation] = []
        for operation in operations:
            node = await self._registry.get(operation.path)
            if isinstance(operation, Put) and node is not None:
                operation = operation._replace(version=node.version)
            forced.append(operation)
        await self._registry.commit(forced)
        self._remember(operations)

    async def check_office(self: ClusterStore) -> None:
        return None

    def depose(self: ClusterStore) -> None:
        return None

    yield patch.object(ClusterStore, "commit", commit)
    yield patch.object(ClusterStore, "_check_office", check_office)
    yield patch.object(ClusterStore, "depose", depose)


@mutant("row 24: a deposed controller refuses by what it knew", _SCENARIO)
def deposed_controller_refuses() -> Patches:
    async def confirm_office(self: Controller) -> None:
        return None

    yield patch.object(Controller, "confirm_office", confirm_office)


@mutant("row 25: now and then no broker hears of a change", _SCENARIO)
def change_not_sent() -> Patches:
    real = Publication._update

    async def update(self: Publication, epoch: int, version: int) -> Any:
        response = await real(self, epoch, version)
        is_lost = response.payload and response.version % 7 == 3 and epoch == response.controller_epoch
        return response._replace(payload=_renamed(response.payload)) if is_lost else response

    yield patch.object(Publication, "_update", update)


def _renamed(payload: bytes) -> bytes:
    """Of an update, all but its topics."""
    return payload.replace(b'"topics":', b'"topixs":')


@mutant("row 41: a new controller begins without the topics that changed last", _SCENARIO)
def controller_loads_stale_state() -> Patches:
    real = ClusterStore.load

    async def load(self: ClusterStore, image: ClusterImage) -> ClusterImage:
        loaded = await real(self, image)
        return loaded.with_only_topics({**loaded.topics, **image.topics}) if image.topics else loaded

    yield patch.object(ClusterStore, "load", load)


@mutant("row 33: a topic that is made again has the id of the one before it", _SCENARIO)
def topic_ids_repeat() -> Patches:
    from odradek.cluster.controller.topics import TopicChanges

    real = TopicChanges.create

    async def create(self: TopicChanges, wanted: Any, *, validate_only: bool) -> list[Any]:
        entropy = self._entropy

        class Same:
            def uuid(self) -> UUID:
                return UUID(int=0x1234 << 64 | sum(wanted[0].name.encode()))

            def uniform(self) -> float:
                return entropy.uniform()

        self._entropy = Same()
        try:
            return await real(self, wanted, validate_only=validate_only)
        finally:
            self._entropy = entropy

    yield patch.object(TopicChanges, "create", create)


@mutant("row 54: every block of producer ids is the first", _SCENARIO)
def producer_ids_of_a_cluster_repeat() -> Patches:
    async def allocate(self: ClusterStore, count: int) -> int:
        return 0

    yield patch.object(ClusterStore, "allocate_producer_ids", allocate)


@mutant(
    "row 23: a broker that comes back and is elected leads what its former self led, before it was heard",
    _SCENARIO,
    aside="followers are cut to the log of the leader; it must write before they ask: not met in 80 seeds",
)
def former_roles_are_taken() -> Patches:
    async def decided(self: ClusterLink, _before: ClusterImage, after: ClusterImage) -> None:
        await self.apply_image(after)

    yield patch.object(ClusterLink, "decided", decided)


@mutant("row 23: a broker that comes back keeps what its former self led, under the same epoch", _SCENARIO)
def restart_is_not_noticed() -> Patches:
    yield patch.object(broker_changes, "without", lambda availability, brokers: availability)


@mutant(
    "row 16: a replica that lost something committed stays in sync",
    _SCENARIO,
    aside="a log is cut where it is damaged and fetched again at once: it must be elected before, not met in 65 seeds",
)
def damage_not_acted_upon() -> Patches:
    real = broker_changes.BrokerChanges.hear

    async def hear(self: broker_changes.BrokerChanges, report: BrokerReport) -> None:
        await real(self, replace(report, damaged=frozenset()))

    yield patch.object(broker_changes.BrokerChanges, "hear", hear)


# -- acknowledged, and not on a disk


@mutant("row 10: a machine that lost its memory is taken at its word", "page_cache")
def forgotten_and_trusted() -> Patches:
    yield patch.object(LogDirectory, "may_have_forgotten", lambda self, boot_id: False)


@mutant("row 10: what was forgotten is known to one process, and not to the next", "page_cache")
def forgotten_and_then_trusted() -> Patches:
    yield patch.object(LogManager, "boot_id_to_note", lambda self, directory: self._runtime.boot_id)


@mutant("row 68: logs that no one flushes keep the descriptors that others need", "page_cache")
def unflushed_keep_descriptors() -> Patches:
    yield patch.object(LogManager, "drain_crowding_logs", lambda self: [])
