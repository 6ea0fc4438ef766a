"""Which brokers hold a partition. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId


def place(
    partition_count: int, replication_factor: int, brokers: Sequence[BrokerId], *, first: int
) -> list[list[BrokerId]]:
    """Replica lists, preferred leader first, dealt round robin from the broker at index `first`.

    Raises INVALID_REPLICATION_FACTOR when there are not that many brokers.
    """
    if replication_factor < 1:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor must be at least 1")
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is more than the {len(brokers)} live broker(s)",
        )
    count = len(brokers)
    return [
        [brokers[(first + partition + replica) % count] for replica in range(replication_factor)]
        for partition in range(partition_count)
    ]


def check_assignment(
    assignment: Mapping[int, Sequence[int]], brokers: Sequence[BrokerId], *, first_partition: int = 0
) -> list[list[BrokerId]]:
    """A manual assignment as replica lists, or INVALID_REPLICA_ASSIGNMENT with what is wrong with it."""
    expected = list(range(first_partition, first_partition + len(assignment)))
    if sorted(assignment) != expected:
        raise _invalid(f"partitions must be numbered {first_partition} to {expected[-1]} without gaps")
    sizes = {len(replicas) for replicas in assignment.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise _invalid("every partition needs the same number of replicas, at least one")
    known = set(brokers)
    for partition, replicas in assignment.items():
        if len(set(replicas)) != len(replicas):
            raise _invalid(f"partition {partition} names a broker twice")
        unknown = [broker for broker in replicas if broker not in known]
        if unknown:
            raise _invalid(f"partition {partition} names broker {unknown[0]}, which is not alive")
    return [[BrokerId(broker) for broker in assignment[partition]] for partition in expected]


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
