"""Decides on a leader's proposal of an ISR (AlterPartition, KIP-497). A pure core; refusals have Kafka's codes.

A proposal is made against one state of the partition, named by its two epochs, so that one that was overtaken
by an election or by another change is refused, and the leader continues from the newer state. New members
must be alive, here to stay (KIP-841), and in the incarnation whose fetches the leader saw (KIP-903).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from odradek.cluster.availability import Liveness, ReplicaAvailability, TopicRules
from odradek.cluster.elections import completed, eligible_after, renewed
from odradek.cluster.image import BrokerImage, PartitionImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedIsr:
    """A proposed ISR, with the epoch of each broker; `recovering` while an unclean leader has not recovered yet."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[BrokerId, int], ...]
    recovering: bool = False


def changed_isr(
    partition: PartitionImage,
    proposal: ProposedIsr,
    *,
    proposer: BrokerId,
    liveness: Liveness,
    availability: ReplicaAvailability,
    rules: TopicRules,
) -> PartitionImage:
    """Returns the partition with the new ISR, and with a reassignment completed that waited for it.

    Raises KafkaError when the proposal is refused; the partition then stays as it is.
    """
    _check_state(partition, proposal, proposer)
    if len(partition.isr) < rules.min_isr_of(partition):  # a slow replica is better than none
        availability = availability._replace(electable=availability.electable | availability.slow)
    _check_members(partition, proposal, liveness, availability)
    isr = tuple(broker for broker, _ in proposal.isr)
    draft = replace(
        partition,
        isr=isr,
        eligible=eligible_after(partition, isr, rules),
        recovering=proposal.recovering,
    )
    return completed(renewed(partition, draft), availability)


def _check_state(partition: PartitionImage, proposal: ProposedIsr, proposer: BrokerId) -> None:
    ahead = (
        proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch
    )
    if ahead:
        raise KafkaError(
            ErrorCode.NOT_CONTROLLER,
            "the proposal is newer than what this controller knows: ask the next one",
        )
    if proposal.leader_epoch < partition.leader_epoch:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"leader epoch {proposal.leader_epoch} is over, it is {partition.leader_epoch} now",
        )
    if proposer != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {proposer} does not lead the partition")
    if proposal.partition_epoch < partition.partition_epoch:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"partition epoch {proposal.partition_epoch} is over, it is {partition.partition_epoch} now",
        )


def _check_members(
    partition: PartitionImage, proposal: ProposedIsr, liveness: Liveness, availability: ReplicaAvailability
) -> None:
    members = [broker for broker, _ in proposal.isr]
    strangers = [broker for broker in members if broker not in partition.replicas]
    if strangers:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{_named(strangers)} cannot be in sync: the replicas are on {_named(partition.replicas)}",
        )
    if len(set(members)) != len(members):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the ISR names a broker twice: {_named(members)}")
    if partition.leader not in members:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the leader cannot leave the ISR by itself")
    if proposal.recovering and (len(members) > 1 or not partition.recovering):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "only an unclean leader recovers, and no other replica is in sync until then",
        )
    for broker, epoch in proposal.isr:
        if broker not in partition.isr:
            _check_joins(liveness.brokers.get(broker), broker, epoch, availability)


def _named(brokers: Sequence[BrokerId]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"


def _check_joins(
    image: BrokerImage | None, broker: BrokerId, epoch: int, availability: ReplicaAvailability
) -> None:
    reason = None
    if image is None:
        reason = "is not in service"
    elif broker not in availability.electable:
        reason = "is leaving, its log is offline, or its disk is full or slow"
    elif epoch != image.epoch:
        reason = f"has epoch {image.epoch}, not {epoch}: it was restarted"
    if reason is not None:
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"broker {broker} cannot join the ISR: it {reason}")
