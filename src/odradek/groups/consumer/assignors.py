"""The assignors that a broker runs for consumer groups (KIP-848), as pure functions.

Both take every member's subscription, the partition counts of the topics, and the present target; both return
the new target of every member. The same arguments give the same answer, in whatever order they come, and both are sticky:
a partition changes hands only where balance asks for it.

`uniform` balances how many partitions a member has, over all topics together. When all members subscribe to the same
topics, no two members differ by more than one partition. When they do not, no single partition could be given to another
subscriber of its topic to make two members more equal.

`range` balances each topic on its own, and gives runs of neighbouring partitions. Members that subscribe to topics of equal
partition counts get the same partition numbers of each, so that records with one key meet in one member (co-partitioning).

Topics without partitions (deleted ones) are left out. Racks are not looked at, as in Kafka 4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final
from uuid import UUID

from odradek.groups.modern.assignment import NOTHING, Assignment, Targets


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignorMember:
    """A member as an assignor sees it. A static member keeps its place in every order by its instance id."""

    topics: frozenset[UUID]
    instance_id: str | None = None


Candidates = Mapping[str, AssignorMember]
PartitionCounts = Mapping[UUID, int]
Assignor = Callable[[Candidates, PartitionCounts, Targets], dict[str, Assignment]]

_Shares = dict[str, dict[UUID, set[int]]]
"""Member id -> topic -> partitions, while a target is being made."""


def uniform(candidates: Candidates, counts: PartitionCounts, current: Targets) -> dict[str, Assignment]:
    """Assigns equal numbers of partitions over all topics together, with few moves."""
    members = sorted(candidates)
    if not members:
        return {}
    first = candidates[members[0]].topics
    if all(candidates[member].topics == first for member in members):
        shares = _equal_shares(members, _existing(first, counts), counts, current)
    else:
        shares = _levelled_shares(members, candidates, counts, current)
    return _finished(shares, current)


def ranges(candidates: Candidates, counts: PartitionCounts, current: Targets) -> dict[str, Assignment]:
    """Runs of partitions of each topic on its own; the same runs of co-partitioned topics; few moves."""
    members = sorted(candidates, key=lambda member: _range_order(member, candidates[member]))
    shares: _Shares = {member: {} for member in members}
    for topic in _existing(_union(candidates.values()), counts):
        subscribers = [member for member in members if topic in candidates[member].topics]
        for member, partitions in _topic_ranges(topic, counts[topic], subscribers, current).items():
            if partitions:
                shares[member][topic] = partitions
    return _finished(shares, current)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": ranges}
"""Assignors by the names that clients and `group.consumer.assignors` use."""


def _existing(topics: Iterable[UUID], counts: PartitionCounts) -> list[UUID]:
    return sorted(topic for topic in topics if counts.get(topic, 0) > 0)


def _union(candidates: Iterable[AssignorMember]) -> set[UUID]:
    return set().union(*(candidate.topics for candidate in candidates))


def _finished(shares: _Shares, current: Targets) -> dict[str, Assignment]:
    """Freezes the shares; a member whose share did not change keeps the same object, so that callers can compare cheaply."""
    finished: dict[str, Assignment] = {}
    for member, share in shares.items():
        frozen = {topic: frozenset(partitions) for topic, partitions in share.items() if partitions}
        before = current.get(member)
        finished[member] = before if before == frozen else frozen
    return finished


# -- uniform, all members with the same topics


def _equal_shares(
    members: list[str], topics: list[UUID], counts: PartitionCounts, current: Targets
) -> _Shares:
    """Shares equally: members keep their partitions up to their quota; the rest goes round to those below theirs."""
    least, extra_count = divmod(sum(counts[topic] for topic in topics), len(members))
    target = {member: _still_valid(current.get(member, NOTHING), topics, counts) for member in members}
    _settle_doubles(members, target)
    sizes = {member: sum(map(len, target[member].values())) for member in members}
    richest_first = sorted(members, key=lambda member: (-sizes[member], member))
    quotas = {member: least + (rank < extra_count) for rank, member in enumerate(richest_first)}
    for member in members:
        _give_up(target[member], sizes[member] - quotas[member])
    hungry = deque(
        (member, quotas[member] - sizes[member]) for member in members if sizes[member] < quotas[member]
    )
    for topic, partition in _unassigned(topics, counts, target.values()):
        member, wanted = hungry.popleft()
        target[member].setdefault(topic, set()).add(partition)
        if wanted > 1:
            hungry.append((member, wanted - 1))
    return target


def _still_valid(share: Assignment, topics: Iterable[UUID], counts: PartitionCounts) -> dict[UUID, set[int]]:
    """Returns the partitions of a share that exist and are subscribed."""
    valid = {}
    for topic in topics:
        partitions = {partition for partition in share.get(topic, ()) if 0 <= partition < counts[topic]}
        if partitions:
            valid[topic] = partitions
    return valid


def _settle_doubles(members: list[str], target: _Shares) -> None:
    """Leaves a partition that two members claim to the first: a target that was read back must not be trusted blindly."""
    seen: dict[UUID, set[int]] = {}
    for member in members:
        for topic, partitions in target[member].items():
            taken = seen.setdefault(topic, set())
            partitions -= taken
            taken |= partitions


def _give_up(share: dict[UUID, set[int]], count: int) -> None:
    """Takes `count` partitions away, each time from the topic of which the member has most: this spreads the rest."""
    if count <= 0:
        return
    by_topic = {topic: sorted(partitions) for topic, partitions in share.items()}
    largest = [(-len(partitions), topic) for topic, partitions in by_topic.items()]
    heapify(largest)
    for _ in range(count):
        size, topic = largest[0]
        share[topic].remove(by_topic[topic].pop())
        heapreplace(largest, (size + 1, topic))


def _unassigned(
    topics: Iterable[UUID], counts: PartitionCounts, shares: Iterable[Mapping[UUID, AbstractSet[int]]]
) -> list[tuple[UUID, int]]:
    taken: dict[UUID, set[int]] = {}
    for share in shares:
        for topic, partitions in share.items():
            taken.setdefault(topic, set()).update(partitions)
    no_members: set[int] = set()
    return [
        (topic, partition)
        for topic in topics
        for partition in range(counts[topic])
        if partition not in taken.get(topic, no_members)
    ]


# -- uniform, members with different topics


def _levelled_shares(
    members: list[str], candidates: Candidates, counts: PartitionCounts, current: Targets
) -> _Shares:
    """Levels shares: members keep their partitions; the rest goes to the least loaded; then topics are levelled as far as
    possible."""
    topics = _existing(_union(candidates.values()), counts)
    subscribers: dict[UUID, list[str]] = {topic: [] for topic in topics}
    target: _Shares = {}
    for member in members:
        mine = [topic for topic in topics if topic in candidates[member].topics]
        for topic in mine:
            subscribers[topic].append(member)
        target[member] = _still_valid(current.get(member, NOTHING), mine, counts)
    _settle_doubles(members, target)
    loads = {member: sum(map(len, share.values())) for member, share in target.items()}
    by_choice = sorted(topics, key=lambda topic: (len(subscribers[topic]), topic))
    for topic in by_choice:
        _hand_out(topic, counts[topic], subscribers[topic], target, loads)
    while sum(_level(topic, subscribers[topic], target, loads) for topic in by_choice):
        pass  # every move lowers the sum of the squares of the loads, so this ends
    return target


def _hand_out(
    topic: UUID, count: int, subscribers: list[str], target: _Shares, loads: dict[str, int]
) -> None:
    taken = set().union(*(target[member].get(topic, ()) for member in subscribers))
    if len(taken) == count:
        return
    poorest = [(loads[member], member) for member in subscribers]
    heapify(poorest)
    for partition in range(count):
        if partition in taken:
            continue
        load, member = poorest[0]
        target[member].setdefault(topic, set()).add(partition)
        loads[member] = load + 1
        heapreplace(poorest, (load + 1, member))


def _level(topic: UUID, subscribers: list[str], target: _Shares, loads: dict[str, int]) -> bool:
    """Moves partitions of one topic from the most to the least loaded while that narrows the gap; returns whether any moved.

    In one call a member either gives or receives, never both: loads meet in the middle.
    """
    poorest = [(loads[member], member) for member in subscribers]
    richest = [(-loads[member], member) for member in subscribers if target[member].get(topic)]
    heapify(poorest)
    heapify(richest)
    moved = False
    while richest:
        rich_load, rich = -richest[0][0], richest[0][1]
        poor_load, poor = poorest[0]
        if rich_load - poor_load < 2:
            break
        mine = target[rich][topic]
        partition = max(mine)
        mine.remove(partition)
        target[poor].setdefault(topic, set()).add(partition)
        loads[rich], loads[poor] = rich_load - 1, poor_load + 1
        heapreplace(poorest, (poor_load + 1, poor))
        heappop(richest)
        if mine:
            heappush(richest, (1 - rich_load, rich))
        moved = True
    return moved


# -- range


def _range_order(member: str, candidate: AssignorMember) -> tuple[bool, str]:
    """Sort key: static members first, by instance id: their place outlives a restart, which changes the member id."""
    if candidate.instance_id is not None:
        return False, candidate.instance_id
    return True, member


def _topic_ranges(topic: UUID, count: int, subscribers: list[str], current: Targets) -> dict[str, set[int]]:
    """Divides one topic: members keep its lowest partitions up to their quota, and runs of the rest fill the gaps."""
    least, extra_count = divmod(count, len(subscribers))
    taken: set[int] = set()
    retained: dict[str, list[int]] = {}
    for member in subscribers:
        before = current.get(member, NOTHING).get(topic, ())
        retained[member] = sorted(
            partition for partition in before if 0 <= partition < count and partition not in taken
        )
        taken.update(retained[member])
    richer = [member for member in subscribers if len(retained[member]) > least]
    extras = set(richer[:extra_count])
    others = (member for member in subscribers if member not in extras)
    extras.update(member for member, _ in zip(others, range(extra_count - len(extras)), strict=False))
    quotas = {member: least + (member in extras) for member in subscribers}
    shares = {member: retained[member][: quotas[member]] for member in subscribers}
    left = sorted(set(range(count)).difference(*shares.values()))
    position = 0
    for member in subscribers:
        wanted = quotas[member] - len(shares[member])
        shares[member] += left[position : position + wanted]
        position += wanted
    return {member: set(partitions) for member, partitions in shares.items()}
