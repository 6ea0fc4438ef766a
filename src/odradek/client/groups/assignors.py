"""The assignors of the classic protocol: which member reads what. The leader of a group runs one of them over everyone's
subscriptions. No I/O, and only the arguments' order counts: two leaders come to the same result.

- range: topic by topic, neighbouring partitions to each member; equal partitions of two topics meet at one member
- roundrobin: all partitions in a row, dealt out in turn
- sticky: as even as it can be, and as little moved as that allows; everyone gives up everything first
- cooperative-sticky: the same, but no one gives up what they keep: what changes hands stays without a reader for one
  round, until its old owner has let go of it (KIP-429)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import Final

from odradek.client.groups.member_bytes import (
    MemberSubscription,
    read_generation,
    read_sticky_data,
    write_generation,
    write_sticky_data,
)
from odradek.client.groups.values import Partitions
from odradek.client.settings.assignor_names import (
    COOPERATIVE_STICKY,
    RANGE,
    ROUNDROBIN,
    STICKY,
    assignor_names,
)
from odradek.model.ids import TopicPartition
from odradek.model.least_loaded import LeastLoaded


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member as its leader sees it."""

    member_id: str
    group_instance_id: str | None = None
    subscription: MemberSubscription


Members = Mapping[str, GroupMember]
"""Members by their id."""
PartitionCounts = Mapping[str, int]
"""The partition counts of topics that exist; others have no readers."""
GroupAssignment = dict[str, list[TopicPartition]]
"""Partitions by member id; every member is in it."""
_OwnedOf = Callable[[MemberSubscription], tuple[Partitions, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignor:
    """One assignor. `user_data(owned, generation)` goes into the member's own subscription."""

    name: str
    assign: Callable[[Members, PartitionCounts], GroupAssignment]
    user_data: Callable[[Partitions, int], bytes | None]
    cooperative: bool = False


def assign_range(members: Members, counts: PartitionCounts) -> GroupAssignment:
    assignment: GroupAssignment = {member_id: [] for member_id in members}
    for topic, readers in _readers(members, counts).items():
        share, extra = divmod(counts[topic], len(readers))
        start = 0
        for index, member_id in enumerate(readers):
            stop = start + share + (1 if index < extra else 0)
            assignment[member_id] += [TopicPartition(topic, number) for number in range(start, stop)]
            start = stop
    return assignment


def assign_roundrobin(members: Members, counts: PartitionCounts) -> GroupAssignment:
    assignment: GroupAssignment = {member_id: [] for member_id in members}
    ordered = _in_order(members)
    turn = 0
    readers = _readers(members, counts)
    for topic in sorted(readers):
        eligible = set(readers[topic])
        for number in range(counts[topic]):
            while ordered[turn % len(ordered)] not in eligible:
                turn += 1
            assignment[ordered[turn % len(ordered)]].append(TopicPartition(topic, number))
            turn += 1
    return assignment


def assign_sticky(members: Members, counts: PartitionCounts) -> GroupAssignment:
    return _Stickiness(members, counts, _owned_by_user_data).assignment


def assign_cooperatively(members: Members, counts: PartitionCounts) -> GroupAssignment:
    """Assigns no partition that another member still has: that follows in the next round."""
    stickiness = _Stickiness(members, counts, _owned_by_fields)
    holders = {
        tp: member_id
        for member_id, member in members.items()
        for tp in _owned_by_fields(member.subscription)[0]
    }
    claimed = stickiness.owners
    return {
        member_id: [tp for tp in partitions if claimed.get(tp, holders.get(tp, member_id)) == member_id]
        for member_id, partitions in stickiness.assignment.items()
    }


class _Stickiness:
    """Keep what is valid, deal out what no one has, then move one by one while that makes the shares more even.

    Topics with the same readers are a pool: within it, any member may take over any partition.
    """

    def __init__(self, members: Members, counts: PartitionCounts, owned_of: _OwnedOf) -> None:
        self._readers = _readers(members, counts)
        self._counts = counts
        self._place = {member_id: place for place, member_id in enumerate(_in_order(members))}
        self._loads = dict.fromkeys(self._place, 0)
        self._pools: dict[tuple[str, ...], dict[str, list[TopicPartition]]] = {}
        """The partitions that each reader has of a pool, by the pool's readers."""
        self._pool_of: dict[str, tuple[str, ...]] = {}
        for topic, readers in self._readers.items():
            self._pool_of[topic] = tuple(readers)
            self._pools.setdefault(self._pool_of[topic], {})
        self.owners = self._valid_owners(members, owned_of)
        """The previous owner of each partition, by the newest generation that claims it."""
        for tp, member_id in self.owners.items():
            self._give(tp, member_id)
        self._deal_out()
        while sum(self._even_out(readers) for readers in self._richest_first()):
            pass  # every move lowers the sum of the squares of the loads, so this ends
        self.assignment: GroupAssignment = {member_id: [] for member_id in self._place}
        for pool in self._pools.values():
            for member_id, partitions in pool.items():
                self.assignment[member_id] += partitions
        for partitions in self.assignment.values():
            partitions.sort()

    def _give(self, tp: TopicPartition, member_id: str) -> None:
        self._pools[self._pool_of[tp.topic]].setdefault(member_id, []).append(tp)
        self._loads[member_id] += 1

    def _valid_owners(self, members: Members, owned_of: _OwnedOf) -> dict[TopicPartition, str]:
        owners: dict[TopicPartition, str] = {}
        generations: dict[TopicPartition, int] = {}
        twice: set[TopicPartition] = set()
        for member_id in _in_order(members):
            owned, generation = owned_of(members[member_id].subscription)
            for tp in owned:
                known = generations.get(tp)
                if known is not None and generation < known:
                    continue
                if known == generation:  # two members claim it: neither keeps it
                    twice.add(tp)
                    continue
                twice.discard(tp)
                generations[tp] = generation
                owners[tp] = member_id
        readers = {topic: set(readers) for topic, readers in self._readers.items()}
        return {
            tp: member_id
            for tp, member_id in sorted(owners.items())
            if tp not in twice
            and 0 <= tp.partition < self._counts.get(tp.topic, 0)
            and member_id in readers.get(tp.topic, ())
        }

    def _deal_out(self) -> None:
        """Partitions with the fewest possible readers first, each to the member that has least."""
        least_loaded = {readers: LeastLoaded(readers, self._loads) for readers in self._pools}
        for topic in sorted(self._readers, key=lambda topic: (len(self._readers[topic]), topic)):
            readers = least_loaded[self._pool_of[topic]]
            for number in range(self._counts[topic]):
                tp = TopicPartition(topic, number)
                if tp not in self.owners:
                    self._give(tp, readers.find())

    def _richest_first(self) -> list[tuple[str, ...]]:
        """The pools, by the most loaded who has something to give there: fewer partitions move than in any other order."""

        def richest(readers: tuple[str, ...]) -> int:
            pool = self._pools[readers]
            return max((self._loads[member_id] for member_id in pool if pool[member_id]), default=0)

        return sorted(self._pools, key=richest, reverse=True)

    def _even_out(self, readers: tuple[str, ...]) -> bool:
        """Move partitions of one pool from the fullest member to the emptiest, while they differ by two; whether any moved.

        In one call a member gives or takes, never both: the loads meet in the middle.
        """
        pool, loads, place = self._pools[readers], self._loads, self._place
        poorest = [(loads[member_id], place[member_id], member_id) for member_id in readers]
        richest = [(-loads[member_id], place[member_id], member_id) for member_id in pool if pool[member_id]]
        heapify(poorest)
        heapify(richest)
        givers: set[str] = set()
        while richest:
            rich_load, rich_place, rich = richest[0]
            poor_load, poor_place, poor = poorest[0]
            if -rich_load - poor_load < 2:
                break
            if rich not in givers:
                givers.add(rich)
                self._sort_for_giving(rich, pool[rich])
            pool.setdefault(poor, []).append(pool[rich].pop())
            loads[rich], loads[poor] = -rich_load - 1, poor_load + 1
            heapreplace(poorest, (poor_load + 1, poor_place, poor))
            if pool[rich]:
                heapreplace(richest, (rich_load + 1, rich_place, rich))
            else:
                heappop(richest)
        return bool(givers)

    def _sort_for_giving(self, giver: str, partitions: list[TopicPartition]) -> None:
        """Sorts the giver's partitions, of which the last is given first: those that it did not have before are at the end."""
        partitions.sort(key=lambda tp: (self.owners.get(tp) == giver, tp), reverse=True)


def _owned_by_user_data(member_subscription: MemberSubscription) -> tuple[Partitions, int]:
    return read_sticky_data(member_subscription.user_data)


def _owned_by_fields(member_subscription: MemberSubscription) -> tuple[Partitions, int]:
    generation = (
        member_subscription.generation
        if member_subscription.version >= 2
        else read_generation(member_subscription.user_data)
    )
    return member_subscription.owned, generation


def _in_order(members: Members) -> list[str]:
    """Static members first, by instance id, then the others by member id: an order that outlives restarts."""

    def place(member: GroupMember) -> tuple[bool, str, str]:
        return (member.group_instance_id is None, member.group_instance_id or "", member.member_id)

    return [member.member_id for member in sorted(members.values(), key=place)]


def _readers(members: Members, counts: PartitionCounts) -> dict[str, list[str]]:
    """Returns the members that may read each topic, in order. Only topics with partitions and readers are included."""
    readers: dict[str, list[str]] = {}
    for member_id in _in_order(members):
        for topic in dict.fromkeys(members[member_id].subscription.topics):
            if counts.get(topic, 0) > 0:
                readers.setdefault(topic, []).append(member_id)
    return readers


def _no_user_data(owned: Partitions, generation: int) -> bytes | None:
    return None


_ALL: Final = (
    Assignor(name=RANGE, assign=assign_range, user_data=_no_user_data),
    Assignor(name=ROUNDROBIN, assign=assign_roundrobin, user_data=_no_user_data),
    Assignor(name=STICKY, assign=assign_sticky, user_data=write_sticky_data),
    Assignor(
        name=COOPERATIVE_STICKY,
        assign=assign_cooperatively,
        user_data=lambda owned, generation: write_generation(generation),
        cooperative=True,
    ),
)
ASSIGNORS: Final[Mapping[str, Assignor]] = {assignor.name: assignor for assignor in _ALL}


def assignors_of(strategy: str) -> tuple[Assignor, ...]:
    """Returns the assignors in partition.assignment.strategy: names separated by commas, short ones or Kafka's class names."""
    return tuple(ASSIGNORS[name] for name in assignor_names(strategy))
