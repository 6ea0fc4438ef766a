"""Moving a partition to other replicas (KIP-455). Pure functions from a partition to the next.

While a move is under way, `replicas` holds the target, in its order, followed by the replicas to remove; all
of them are kept until every replica of the target is in sync, and then the others are dropped in one step,
with a new leader where one of them led (`elections.completed`). So the only complete copy is never among the
dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from odradek.cluster.availability import ReplicaAvailability
from odradek.cluster.elections import renewed
from odradek.cluster.image import NO_LEADER, PartitionImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A request for a partition's target replicas; None cancels the move under way."""

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...] | None


def original_of(partition: PartitionImage) -> tuple[BrokerId, ...]:
    """Returns the replicas that it had before a move under way."""
    return tuple(replica for replica in partition.replicas if replica not in partition.adding)


def check_target(
    partition: PartitionImage,
    target: Sequence[BrokerId],
    brokers: frozenset[BrokerId],
    *,
    allow_factor_change: bool = True,
) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT or INVALID_REPLICATION_FACTOR unless the partition may be moved to these brokers."""
    if not target:
        raise _invalid("the assignment names no replica")
    for number, broker in enumerate(target):
        if broker in target[:number]:
            raise _invalid(f"the assignment names broker {broker} twice")
        if broker not in brokers and broker not in partition.replicas:
            raise _invalid(f"the cluster has no broker {broker}")
    factor = len(original_of(partition))
    if not allow_factor_change and len(target) != factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the assignment has {len(target)} replica(s) instead of {factor}, and the request forbids to change that",
        )


def begun(
    partition: PartitionImage, target: Sequence[BrokerId], availability: ReplicaAvailability
) -> PartitionImage:
    """Returns the partition on its way to `target`, instead of any earlier move. Call `check_target` before and `settled` next.

    Raises INVALID_REPLICA_ASSIGNMENT when no replica in sync would be left.
    """
    original = original_of(partition)
    removing = tuple(broker_id for broker_id in original if broker_id not in target)
    draft = replace(
        partition,
        replicas=(*target, *removing),
        adding=tuple(broker_id for broker_id in target if broker_id not in original),
        removing=removing,
    )
    return renewed(partition, _within_replicas(draft, availability))


def cancelled(partition: PartitionImage, availability: ReplicaAvailability) -> PartitionImage:
    """Returns the partition with the replicas before the move. Raises NO_REASSIGNMENT_IN_PROGRESS without one, else as
    `begun`."""
    if not partition.is_reassigned:
        raise KafkaError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            "the partition is not being reassigned, so there is nothing to cancel",
        )
    draft = replace(partition, replicas=original_of(partition), adding=(), removing=())
    return renewed(partition, _within_replicas(draft, availability))


def _within_replicas(draft: PartitionImage, availability: ReplicaAvailability) -> PartitionImage:
    """Limits the draft's ISR, eligible replicas and leader to its replicas."""
    isr = tuple(broker_id for broker_id in draft.isr if broker_id in draft.replicas)
    if not isr:
        raise _invalid(
            f"the replicas that are in sync, {list(draft.isr)}, would all be dropped, and what only they have would be lost"
        )
    eligible = tuple(broker_id for broker_id in draft.eligible if broker_id in draft.replicas)
    draft = replace(draft, isr=isr, eligible=eligible)
    if draft.leader in isr or draft.leader == NO_LEADER:
        return draft
    candidate = next(
        (replica for replica in draft.replicas if replica in isr and replica in availability.electable),
        NO_LEADER,
    )
    if candidate == NO_LEADER:
        raise _invalid(
            "its leader would be dropped, and no one else who is in sync is there to lead: try again later"
        )
    return replace(draft, leader=candidate)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
