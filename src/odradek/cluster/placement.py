"""Places partitions on brokers. Pure functions.

Preferred leaders are dealt round robin over all brokers, in an order that alternates racks. The other replicas of a partition
go to racks that have none of it yet, and among those to the broker that was given the fewest, so that copies are spread evenly
and a rack that fails takes one copy of each partition, or as few as can be. Brokers without a rack are one rack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from odradek.cluster.image import BrokerImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId


def place(
    partition_count: int,
    replication_factor: int,
    brokers: Sequence[BrokerImage],
    *,
    first: int,
    absent: Sequence[BrokerImage] = (),
    full: Container[BrokerId] = (),
) -> list[list[BrokerId]]:
    """Returns replica lists, preferred leader first; partition 0's is the broker at index `first` of the
    dealing order.

    Brokers that leave or are cordoned get nothing. Those that are `full`, and after them those that are `absent`, get what is
    left over. Absent ones never lead, full ones only where all are full. Raises INVALID_REPLICATION_FACTOR when there are not
    enough others.
    """
    usable = [broker for broker in brokers if not (broker.is_leaving or broker.is_cordoned)]
    spare = [broker for broker in absent if not broker.is_cordoned]
    _check_factor(replication_factor, len(usable), len(spare), len(brokers) + len(absent))
    roomy = [broker for broker in usable if broker.broker_id not in full] or usable
    crowded = [broker for broker in usable if broker not in roomy]
    lists = _placed(partition_count, min(replication_factor, len(roomy)), roomy, first=first)
    for others in (crowded, spare):
        _add_left_over(lists, replication_factor, others, first=first)
    return lists


def _add_left_over(
    lists: list[list[BrokerId]], replication_factor: int, others: Sequence[BrokerImage], *, first: int
) -> None:
    """Deals what the lists lack to `others`, in turn."""
    missing = min(replication_factor - len(lists[0]), len(others)) if lists else 0
    if missing > 0:
        order = _alternating(others)
        for partition, replicas in enumerate(lists):
            start = first + partition
            replicas += [order[(start + step) % len(order)] for step in range(missing)]


def _placed(
    partition_count: int, replication_factor: int, usable: Sequence[BrokerImage], *, first: int
) -> list[list[BrokerId]]:
    order = _alternating(usable)
    racks = {broker.broker_id: broker.rack for broker in usable}
    assigned_counts = Counter(order[(first + partition) % len(order)] for partition in range(partition_count))
    lists = []
    for partition in range(partition_count):
        start = first + partition
        replicas = [order[start % len(order)]]
        if replication_factor > 1:
            # The next in line when all else is equal differs from round to round.
            turn = start + partition // len(order)
            line = [order[(turn + step) % len(order)] for step in range(1, len(order) + 1)]
            _add_replicas(replicas, line, replication_factor, racks, assigned_counts)
        lists.append(replicas)
    return lists


def replacement_for(
    replicas: Sequence[BrokerId],
    candidates: Iterable[BrokerImage],
    racks: Mapping[BrokerId, str | None],
    assigned_counts: Mapping[BrokerId, int],
) -> BrokerId | None:
    """Returns the broker for one more copy in addition to `replicas`, as `place` would choose; None when
    there is none."""
    used = Counter(racks.get(broker) for broker in replicas)
    free = [
        broker
        for broker in candidates
        if broker.broker_id not in replicas and not (broker.is_leaving or broker.is_cordoned)
    ]
    if not free:
        return None
    return min(
        free,
        key=lambda candidate: (
            used[candidate.rack],
            assigned_counts.get(candidate.broker_id, 0),
            candidate.broker_id,
        ),
    ).broker_id


def check_assignment(
    assignment: Mapping[int, Sequence[int]],
    brokers: Sequence[BrokerId],
    *,
    first_partition: int = 0,
    absent: Sequence[BrokerId] = (),
) -> list[list[BrokerId]]:
    """Returns a manual assignment as replica lists, or INVALID_REPLICA_ASSIGNMENT with what is wrong with it.

    Some of the brokers may be `absent`, but not all of any partition.
    """
    expected = list(range(first_partition, first_partition + len(assignment)))
    if sorted(assignment) != expected:
        raise _invalid(f"partitions must be numbered {first_partition} to {expected[-1]} without gaps")
    sizes = {len(replicas) for replicas in assignment.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise _invalid("every partition needs the same number of replicas, at least one")
    known = {*brokers, *absent}
    for partition, replicas in assignment.items():
        if len(set(replicas)) != len(replicas):
            raise _invalid(f"partition {partition} names a broker twice")
        unknown = [broker for broker in replicas if broker not in known]
        if unknown:
            raise _invalid(f"partition {partition} names broker {unknown[0]}, which is not registered")
        if set(replicas).isdisjoint(brokers):
            raise _invalid(f"partition {partition} names only brokers that are down: no broker could lead it")
    return [[BrokerId(broker) for broker in assignment[partition]] for partition in expected]


def _check_factor(factor: int, usable_count: int, spare_count: int, known_count: int) -> None:
    if factor < 1:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor must be at least 1")
    count = usable_count + spare_count
    if factor > count:
        available = f"the {known_count} registered broker(s)"
        if count < known_count:
            available = (
                f"the {count} of {known_count} registered broker(s) that are neither cordoned nor leaving"
            )
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor} is more than {available}"
        )
    if usable_count == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "no broker could lead: all brokers are cordoned, leaving or down",
        )


def _alternating(brokers: Sequence[BrokerImage]) -> list[BrokerId]:
    """Returns all brokers, one of each rack in turn while it has any left."""
    racks: dict[str | None, list[BrokerId]] = {}
    for broker in sorted(brokers, key=lambda candidate: candidate.broker_id):
        racks.setdefault(broker.rack, []).append(broker.broker_id)
    longest = max(map(len, racks.values()))
    return [line[turn] for turn in range(longest) for line in racks.values() if turn < len(line)]


def _add_replicas(
    replicas: list[BrokerId],
    line: Sequence[BrokerId],
    factor: int,
    racks: Mapping[BrokerId, str | None],
    assigned_counts: Counter[BrokerId],
) -> None:
    positions = {broker: position for position, broker in enumerate(line)}
    used = Counter([racks[replicas[0]]])
    while len(replicas) < factor:
        free = [broker for broker in line if broker not in replicas]
        chosen = min(
            free,
            key=lambda broker_id: (used[racks[broker_id]], assigned_counts[broker_id], positions[broker_id]),
        )
        replicas.append(chosen)
        assigned_counts[chosen] += 1
        used[racks[chosen]] += 1


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
